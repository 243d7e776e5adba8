"""Tests of `overlaps`; `cli/paths_test.py` tests it in commands."""

import os
import tempfile
import unittest

from etcmodel.errors import UserError
from etcmodel.training import overlaps


class OverlapsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.makedirs(self._path("a", "b"))
        os.symlink(self._path("a"), self._path("link"))

    def _path(self, *names):
        return os.path.join(self.folder, *names)

    def test_lies_in(self):
        for path, other, expected in (
            (self._path("a", "b"), self._path("a"), True),
            (self._path("a", "new", "x"), self._path("link"), True),
            (self._path("link", "new"), self._path("a"), True),
            (self._path("a"), self._path("a"), False),
            (self._path("ab"), self._path("a"), False),
            (self._path("a", "..", "c"), self._path("a"), False),
            ("gs://b/x/y", "gs://b/x", True),
            ("gs://b/xy", "gs://b/x", False),
            ("gs://b/x", self._path("a"), False),
        ):
            found = overlaps.lies_in(path, other)
            self.assertEqual(expected, found, (path, other))

    def test_names_in_messages(self):
        own, read = self._path("a"), self._path("a", "b")
        for name, expected in (
            ("out", f"`out={own}` contains the run {read}, an input."),
            ("the copy", f"the copy {own} contains the run {read}, an"),
        ):
            with self.assertRaisesRegex(UserError, expected):
                overlaps.check(
                    [overlaps.Place(name, own)],
                    [overlaps.Place("the run", read)],
                )

    def test_run(self):
        run = overlaps.Place("model_dir", self._path("a"))
        overlaps.check_run(run)
        open(self._path("a", "lift.json"), "w").close()
        with self.assertRaisesRegex(UserError, "is not a run: it holds lift"):
            overlaps.check_run(run)
        open(self._path("a", "etcmodel.json"), "w").close()
        overlaps.check_run(run)


if __name__ == "__main__":
    unittest.main()
