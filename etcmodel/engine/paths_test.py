"""Tests which paths are accepted; `command_line_test` tests messages."""

import dataclasses
import glob
import os
import re
import tempfile
import unittest
from unittest import mock

from absl.testing import parameterized

from etcmodel.cli.flags import as_flags
from etcmodel.engine import paths
from etcmodel.errors import UserError
from etcmodel.pipeline import atomic
from etcmodel.pipeline import options
from etcmodel.pipeline import swaps
from testing.flags import parse_options

# One flag per kind of path, named like the kind.
_KINDS = (
    *("data", "records", "weights", "source", "checkpoint", "file"),
    *("new_directory", "new_file", "picture", "new_run", "any_run"),
    *("metrics", "new_directory_or_bucket"),
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
        with atomic.atomic_directory("own"):
            pass

    def _check(self, arguments):
        names = [field.name for field in dataclasses.fields(_Flags)]
        try:
            paths.check(parse_options(_Flags, *arguments.split()))
        except UserError as error:
            raise UserError(as_flags(str(error), names)) from None

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
        "--new_directory=own --overwrite",
        "--new_file=not/yet/there",
        "--new_file=a.json --overwrite",
        "--picture=full/x.png",
        "--picture=new.PDF",
        "--new_run=full",
        "--new_run=gs://bucket/x",
        "--any_run=full",
        "--any_run=not/there",
    )
    def test_accepted_paths(self, arguments):
        self._check(arguments)
        self.assertFalse(os.path.exists("not"))

    @parameterized.parameters(
        "--data=a.json,c.json",
        "--records=full,c",
        "--records=gs://bucket/x,c",
        "--weights=ckpt-4",
        "--files=a.json --files=c.json",
        "--new_directory=full",
        "--new_directory=full --overwrite",
        "--new_directory=own",
        "--new_directory=a.json --overwrite",
        "--new_directory=gs://bucket/x",
        "--new_file=a.json",
        "--new_file=empty --overwrite",
        "--new_file=a.json/x",
        "--picture=new.gif",
        "--new_run=a.json",
        "--any_run=a.json",
    )
    def test_rejected_paths(self, arguments):
        with self.assertRaises(UserError):
            self._check(arguments)

    @parameterized.parameters(
        (True, "--new_run=full --any_run=empty", None),
        (False, "--any_run=full", None),
        (False, "--new_run=full", UserError),
        (False, "--new_run=full/other", UserError),
    )
    def test_where_a_run_may_be_written(self, may_write, arguments, error):
        """Only the directory of a run must be writable, not its parent."""
        with mock.patch.object(
            os, "access", lambda path, _: may_write == path.endswith("full")
        ):
            if error is None:
                return self._check(arguments)
            with self.assertRaises(error):
                self._check(arguments)

    @parameterized.parameters(
        # Outputs equal to inputs.
        (
            "--data=a.json --new_file=a.json --overwrite",
            "and --data=a.json are",
        ),
        (
            "--data=?.json --new_file=b.json --overwrite",
            "and --data=?.json are",
        ),
        ("--data=link.json --new_file=a.json --overwrite", "and --data=link"),
        (
            "--files=b.json --files=a.json --new_file=a.json --overwrite",
            "and --",
        ),
        ("--records=own --new_directory=own --overwrite", "and --records=own"),
        (
            "--weights=ckpt-3 --new_file=ckpt-3.index --overwrite",
            "and --weights",
        ),
        (
            "--any_run=own --new_directory=./x/../own --overwrite",
            "and --any_run",
        ),
        ("--records=full --new_run=full", "and --records=full"),
        (
            "--data=gs://b/x --new_directory_or_bucket=gs://b//x/",
            "and --data=gs",
        ),
        (
            "--new_file=new --metrics=new",
            "--metrics=new and --new_file=new are",
        ),
        # Outputs that contain inputs.
        (
            "--file=own/in/x --new_directory=own --overwrite",
            "own contains --fi",
        ),
        ("--data=own/*/x --new_directory=own --overwrite", "own contains --da"),
        ("--data=link/in/x --new_directory=own --overwrite", "own contains --"),
        (
            "--weights=own/in/x --new_directory=link --overwrite",
            "link contains",
        ),
        ("--weights=full/x.png --new_run=full", "full contains --weights"),
        ("--records=gs://b/x/y --new_directory_or_bucket=gs://b/x", "contains"),
        # Outputs inside inputs.
        (
            "--records=own --new_directory=own/new",
            "own/new is in --records=own",
        ),
        ("--records=full/*.png --metrics=full/new", "is in --records=full/*"),
        (
            "--source=own --new_directory=link/new",
            "link/new is in --source=own",
        ),
        ("--weights=own --new_run=own/new", "is in --weights"),
        # Outputs inside a directory that this package wrote.
        ("--new_file=own/in/x --overwrite", "is a part of /"),
        ("--new_directory=own/in --overwrite", "was not written by"),
        (
            "--any_run=run --metrics=run/params.yaml",
            "params.yaml exists and does not hold metrics",
        ),
        ("--any_run=run --new_file=run/tuned.json", "is a part of /"),
        ("--new_directory=run/best_ckpt", "is a part of /"),
        ("--new_run=own", "--new_run=own is not a run: it holds .etcmodel"),
        # Existing files of another format are not replaced.
        ("--metrics=a.json", "a.json exists and does not hold metrics"),
        ("--picture=full/text.png", "text.png exists and is not a picture"),
        ("--new_directory_or_bucket=gs://b/a,b", "a name without a comma"),
    )
    def test_outputs_that_would_destroy_something(self, arguments, message):
        self._make_outputs()
        before = sorted(glob.glob("**", recursive=True))
        with self.assertRaisesRegex(UserError, re.escape(message)):
            self._check(arguments)
        self.assertEqual(before, sorted(glob.glob("**", recursive=True)))

    @parameterized.parameters(
        "--data=full/x.png --new_directory=full/new",
        "--files=run/params.yaml --new_run=run",
        "--any_run=run --new_directory=run/saved_model",
        "--any_run=run --metrics=run/metrics.json",
        "--records=run --new_directory=run/records",
        "--weights=run --new_run=run/second",
        "--any_run=full --metrics=full/metrics.json",
        "--records=with,comma,full --new_directory=new",
        "--data=gs://b/x/y --new_directory_or_bucket=gs://b/x/z",
        "--any_run=run --new_run=run2",
    )
    def test_outputs_beside_inputs(self, arguments):
        self._make_outputs()
        self._check(arguments)

    def _make_outputs(self):
        with atomic.atomic_directory("own", overwrite=True) as folder:
            os.mkdir(os.path.join(folder, "in"))
            open(os.path.join(folder, "in", "x"), "w").close()
        os.makedirs("with,comma")
        os.symlink("a.json", "link.json")
        os.symlink("own", "link")
        os.mkdir("run")
        for name in ("etcmodel.json", "params.yaml"):
            open(os.path.join("run", name), "w").close()
        with open("a.json", "w") as stream:
            stream.write('{"train": ["x"]}')
        with open("run/metrics.json", "w") as stream:
            stream.write('{"accuracy": 0.5, "step": 3}')
        with open("full/text.png", "w") as stream:
            stream.write("x")

    def test_directory_moved_away_by_a_killed_process(self):
        """A directory that a killed process moved away is restored first."""
        os.rename("own", f".own.{swaps._host()}-{os.getpid()}.1.old")
        self._check("--any_run=own --records=own")
        self.assertTrue(os.path.isdir("own"))

    def test_only_lift_advises_to_download(self):
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
