"""Tests that kill processes while they replace an output."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from absl.testing import parameterized

from etcmodel.pipeline import atomic
from etcmodel.pipeline import own_files
from etcmodel.pipeline import swaps

_TRACED = {atomic.__file__, swaps.__file__, own_files.__file__, shutil.__file__}
_NAMES = ("x", "a/x")
# A file system in memory, which removes directories faster.
_PLACE = "/dev/shm" if os.path.isdir("/dev/shm") else None


def _write(path, content, kill_at=None):
    """Replaces a directory; kills the process `kill_at` lines after writing."""
    with atomic.atomic_directory(path, overwrite=True) as folder:
        os.mkdir(os.path.join(folder, "a"))
        for name in _NAMES:
            with open(os.path.join(folder, name), "w") as stream:
                stream.write(content)
        if kill_at is not None:
            sys.settrace(_killer(kill_at))


def _killer(number):
    """Returns a trace function that kills the process after `number` lines."""
    left = [number]

    def trace(frame, event, argument):
        del argument
        if frame.f_code.co_filename not in _TRACED:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                os._exit(1)
        return trace

    return trace


def _write_and_kill(path, content, number) -> bool:
    """Replaces a directory in a child process; tells whether it was killed."""
    child = os.fork()
    if not child:
        # The child process must never return to the test.
        try:
            _write(path, content, number)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def _read(path):
    """Returns the content of a complete output; None if it is incomplete."""
    if {*own_files._walk(path)} != {*_NAMES, own_files.FILE}:
        return None
    found = set()
    for name in _NAMES:
        with open(os.path.join(path, name)) as stream:
            found.add(stream.read())
    return found.pop() if len(found) == 1 else None


def _recover(path):
    """Runs `recover`; returns its printed text."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        swaps.recover(path)
    return out.getvalue()


def kill_at_every_line(path, can_exchange):
    """Kills a process at each line in turn; prints the recovered outputs."""
    if not can_exchange:
        swaps._exchange = lambda new, path: False
    folder, is_killed, number = os.path.dirname(path), True, 0
    while is_killed:
        shutil.rmtree(path, ignore_errors=True)
        _write(path, "old")
        is_killed = _write_and_kill(path, "new", number)
        left = {*os.listdir(folder)} - {os.path.basename(path)}
        if can_exchange:
            assert _read(path) in ("old", "new"), number
        out = _recover(path)
        for name in left:
            assert name in out or f"Restores {path}" in out, (number, name)
        assert os.listdir(folder) == [os.path.basename(path)], number
        print(_read(path))
        number += 1


class SwapsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=_PLACE)
        self.addCleanup(shutil.rmtree, self.root)
        self.path = os.path.join(self.root, "out.d")

    @parameterized.parameters(True, False)
    def test_killed_at_every_line(self, can_exchange):
        """The old or new output always exists; recovery removes the rest."""
        # A fresh process is small, so it forks faster.
        script = (
            "from etcmodel.pipeline import swaps_test\n"
            f"swaps_test.kill_at_every_line({self.path!r}, {can_exchange})"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True
        )
        found = done.stdout.decode().split()
        # A process killed before the swap leaves the old output, one killed
        # later the new output.
        self.assertEqual(sorted(found, reverse=True), found)
        self.assertEqual({"old", "new"}, {*found})
        self.assertGreater(min(found.count("old"), found.count("new")), 5)

    def test_exchange_is_used_where_possible(self):
        for name in ("a", "b"):
            os.mkdir(os.path.join(self.root, name))
        a, b = (os.path.join(self.root, x) for x in "ab")
        before = os.stat(a).st_ino
        if not swaps._exchange(a, b):
            self.skipTest("this file system cannot exchange names")
        self.assertEqual(before, os.stat(b).st_ino)
        self.assertFalse(swaps._exchange(a, b + "missing"))

    def test_failing_rename_restores_the_old_directory(self):
        _write(self.path, "old")
        rename = os.rename

        def fail(source, target):
            if source.endswith(".partial"):
                raise OSError("no")
            rename(source, target)

        with (
            mock.patch.object(swaps, "_exchange", return_value=False),
            mock.patch.object(os, "rename", fail),
            self.assertRaisesRegex(OSError, "no"),
        ):
            _write(self.path, "new")
        self.assertEqual("old", _read(self.path))
        self.assertEqual(["out.d"], os.listdir(self.root))

    @parameterized.parameters(
        # Leftovers of another machine and of a running process.
        ("other-12.ab", ".partial", "remove .", False),
        ("other-12.ab", ".old", "to out.d", False),
        ("{host}-{parent}.ab", ".partial", "process {parent} on", False),
        # Leftovers of an earlier process with the id of this one.
        ("{host}-{own}.ab", ".partial", "Removes", True),
        ("{host}-{own}.ab", ".old", "Restores", True),
    )
    def test_leftovers(self, unique, ending, message, is_handled):
        values = dict(host=swaps._host(), own=os.getpid(), parent=os.getppid())
        name = f".out.d.{unique.format(**values)}{ending}"
        os.mkdir(os.path.join(self.root, name))
        # Leftovers of other outputs are kept.
        others = [".out.other-1.ab.partial", ".out.d.x.other-1.ab.partial"]
        for other in others:
            os.mkdir(os.path.join(self.root, other))
        out = _recover(self.path)
        self.assertIn(message.format(**values), out)
        self.assertEqual(1, out.count("\n"), out)
        self.assertEqual(
            not is_handled, os.path.exists(os.path.join(self.root, name))
        )
        self.assertEqual("Restores" in out, os.path.exists(self.path))
        for other in others:
            self.assertIn(other, os.listdir(self.root))


if __name__ == "__main__":
    unittest.main()
