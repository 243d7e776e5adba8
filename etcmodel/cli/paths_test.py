"""What paths must be; the messages are tested in `cli_test`."""

import dataclasses
import os
import tempfile
import unittest
from unittest import mock

from absl import flags

from etcmodel.cli import paths
from etcmodel.errors import UserError
from etcmodel.pipeline import options


@dataclasses.dataclass(kw_only=True)
class _Flags:
    """The flags.

    Attributes:
        data: data files.
        records: records.
        weights: weights.
        source: weights to lift.
        checkpoint: a checkpoint.
        file: files, of which there may be several.
        new_directory: a directory to make.
        new_file: a file to write.
        picture: a picture to write.
        new_run: a run to begin or to continue.
        any_run: a run to read.
        overwrite: whether to replace what is there.
    """

    data: str | None = options.option(None, path="data")
    records: str | None = options.option(None, path="records")
    weights: str | None = options.option(None, path="weights")
    source: str | None = options.option(None, path="source")
    checkpoint: str | None = options.option(None, path="checkpoint")
    file: list[str] | None = options.option(None, several=True, path="file")
    new_directory: str | None = options.option(None, path="new_directory")
    new_file: str | None = options.option(None, path="new_file")
    picture: str | None = options.option(None, path="picture")
    new_run: str | None = options.option(None, path="new_run")
    any_run: str | None = options.option(None, path="any_run")
    overwrite: bool = False


class PathsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(temporary.name)
        os.makedirs("full")
        os.makedirs("empty")
        for name in ("full/x.png", "ckpt-3.index", "a.json", "b.json"):
            open(name, "w").close()

    def _check(self, *arguments):
        flag_values = flags.FlagValues()
        options.define(flag_values, _Flags)
        flag_values(["program", *arguments])
        paths.check(flag_values, _Flags)

    def test_what_is_fine(self):
        for arguments in (
            [],
            ["--data=a.json,?.json"],
            ["--data=gs://bucket/x.json"],
            ["--records=full,empty"],
            ["--records=full, gs://bucket/x"],
            ["--weights=full"],
            ["--weights=ckpt-3"],
            ["--weights=gs://bucket/x"],
            ["--source=full"],
            ["--source=gs://bucket/x"],
            ["--checkpoint=best"],
            ["--checkpoint=ckpt-3"],
            ["--file=a.json", "--file=b.json"],
            ["--file=gs://bucket/x"],
            ["--new_directory=empty"],
            ["--new_directory=not/yet/there"],
            ["--new_directory=full", "--overwrite"],
            ["--new_file=not/yet/there"],
            ["--new_file=a.json", "--overwrite"],
            ["--picture=full/x.png"],
            ["--picture=new.PDF"],
            ["--new_run=full"],
            ["--new_run=gs://bucket/x"],
            ["--any_run=full"],
            ["--any_run=not/there"],
        ):
            with self.subTest(arguments):
                self._check(*arguments)
        self.assertFalse(os.path.exists("not"))

    def test_what_is_not(self):
        for arguments in (
            ["--data=a.json,c.json"],
            ["--records=full,c"],
            ["--weights=ckpt-4"],
            ["--file=a.json", "--file=c.json"],
            ["--new_directory=full"],
            ["--new_directory=a.json", "--overwrite"],
            ["--new_directory=gs://bucket/x"],
            ["--new_file=a.json"],
            ["--new_file=empty", "--overwrite"],
            ["--new_file=a.json/x"],
            ["--picture=new.gif"],
            ["--new_run=a.json"],
            ["--any_run=a.json"],
        ):
            with self.subTest(arguments), self.assertRaises(UserError):
                self._check(*arguments)

    def test_where_a_run_may_be_written(self):
        """In its directory, whether or not one may write beside it."""
        may_write = True

        def access(path, mode):
            del mode
            return may_write == path.endswith("full")

        with mock.patch.object(os, "access", access):
            self._check("--new_run=full")
            may_write = False
            for name in ("--new_run=full", "--new_run=full/other"):
                with self.subTest(name), self.assertRaises(UserError):
                    self._check(name)
            self._check("--any_run=full")

    def test_models_are_got_only_to_be_lifted(self):
        for name in ("weights", "checkpoint"):
            with self.assertRaises(UserError) as caught:
                self._check(f"--{name}=runs/1/ckpt-500")
            self.assertEqual(
                f"--{name}=runs/1/ckpt-500: there is no such directory or "
                "checkpoint. Check the path.",
                str(caught.exception),
            )
        with self.assertRaisesRegex(UserError, "--source=b: .*hf download"):
            self._check("--source=b")


if __name__ == "__main__":
    unittest.main()
