"""What paths must be; the messages are tested in `command_line_test`."""

import dataclasses
import os
import tempfile
import unittest
from unittest import mock

from absl import flags
from absl.testing import parameterized

from etcmodel.cli import paths
from etcmodel.errors import UserError
from etcmodel.pipeline import options

# A flag for each kind of path, called as the kind.
_KINDS = (
    *("data", "records", "weights", "source", "checkpoint", "file"),
    *("new_directory", "new_file", "picture", "new_run", "any_run"),
)
_Flags = dataclasses.make_dataclass(
    "_Flags",
    [(x, str | None, options.option(None, path=x)) for x in _KINDS]
    + [
        (
            "files",
            list[str] | None,
            options.option(None, several=True, path="file"),
        ),
        ("overwrite", bool, False),
    ],
)
_Flags.__doc__ = "The flags.\n\nAttributes:\n" + "".join(
    f"    {field.name}: a flag.\n" for field in dataclasses.fields(_Flags)
)


class PathsTest(parameterized.TestCase):
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

    def _check(self, arguments):
        flag_values = flags.FlagValues()
        options.define(flag_values, _Flags)
        flag_values(["program", *arguments.split()])
        paths.check(flag_values, _Flags)

    @parameterized.parameters(
        "",
        "--data=a.json,?.json",
        "--data=gs://bucket/x.json",
        "--records=full,empty",
        "--records=full,gs://bucket/x",
        "--weights=full",
        "--weights=ckpt-3",
        "--weights=gs://bucket/x",
        "--source=full",
        "--source=gs://bucket/x",
        "--checkpoint=best",
        "--checkpoint=ckpt-3",
        "--files=a.json --files=b.json",
        "--file=gs://bucket/x",
        "--new_directory=empty",
        "--new_directory=not/yet/there",
        "--new_directory=full --overwrite",
        "--new_file=not/yet/there",
        "--new_file=a.json --overwrite",
        "--picture=full/x.png",
        "--picture=new.PDF",
        "--new_run=full",
        "--new_run=gs://bucket/x",
        "--any_run=full",
        "--any_run=not/there",
    )
    def test_what_is_fine(self, arguments):
        self._check(arguments)
        self.assertFalse(os.path.exists("not"))

    @parameterized.parameters(
        "--data=a.json,c.json",
        "--records=full,c",
        "--records=gs://bucket/x,c",
        "--weights=ckpt-4",
        "--files=a.json --files=c.json",
        "--new_directory=full",
        "--new_directory=a.json --overwrite",
        "--new_directory=gs://bucket/x",
        "--new_file=a.json",
        "--new_file=empty --overwrite",
        "--new_file=a.json/x",
        "--picture=new.gif",
        "--new_run=a.json",
        "--any_run=a.json",
    )
    def test_what_is_not(self, arguments):
        with self.assertRaises(UserError):
            self._check(arguments)

    @parameterized.parameters(
        (True, "--new_run=full --any_run=full", None),
        (False, "--any_run=full", None),
        (False, "--new_run=full", UserError),
        (False, "--new_run=full/other", UserError),
    )
    def test_where_a_run_may_be_written(self, may_write, arguments, error):
        """In its directory, whether or not one may write beside it."""
        with mock.patch.object(
            os, "access", lambda path, _: may_write == path.endswith("full")
        ):
            if error is None:
                return self._check(arguments)
            with self.assertRaises(error):
                self._check(arguments)

    def test_models_are_got_only_to_be_lifted(self):
        for name in ("weights", "checkpoint"):
            with self.assertRaisesRegex(
                UserError,
                f"^--{name}=runs/1/ckpt-500: there is no such directory or "
                "checkpoint. Check the path.$",
            ):
                self._check(f"--{name}=runs/1/ckpt-500")
        with self.assertRaisesRegex(UserError, "--source=b: .*hf download"):
            self._check("--source=b")


if __name__ == "__main__":
    unittest.main()
