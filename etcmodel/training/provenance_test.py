import contextlib
import os
import subprocess
import tempfile

import numpy as np
from absl.testing import absltest

from etcmodel.training import provenance


def _git(*arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(
        ["git", *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


class ProvenanceTest(absltest.TestCase):
    def test_versions_and_commit(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(contextlib.chdir(directory))
        # The temporary directory may be inside a git repository.
        self.enterContext(
            absltest.mock.patch.dict(
                os.environ,
                {"GIT_CEILING_DIRECTORIES": os.path.dirname(directory)},
            )
        )
        found = provenance.describe()
        self.assertEqual(np.__version__, found["versions"]["numpy"])
        self.assertNotIn("git", found)
        _git("init", "--quiet")
        with open("a.txt", "w") as stream:
            stream.write("a")
        _git("add", "a.txt")
        _git("commit", "--quiet", "--message=a")
        git = provenance.describe()["git"]
        self.assertEqual(_git("rev-parse", "HEAD"), git["commit"])
        self.assertFalse(git["is_changed"])
        with open("a.txt", "w") as stream:
            stream.write("b")
        self.assertTrue(provenance.describe()["git"]["is_changed"])


if __name__ == "__main__":
    absltest.main()
