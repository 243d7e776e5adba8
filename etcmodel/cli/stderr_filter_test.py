import contextlib
import io
import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from etcmodel.cli import stderr_filter

# Writes lines as TensorFlow, Python and its logging do.
_SCRIPT = r"""
import atexit, logging, os, sys
from etcmodel.cli import stderr_filter
with stderr_filter.filtered():
    logging.basicConfig(format="%(message)s")
    atexit.register(logging.warning, "at the end")
    os.write(2, b"not UTF-8: \xff\x00\n")
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is")
    os.write(2, b" called are written to STDERR\n")
    os.write(2, b"I0000 00:00:1796.8  4366 compiler.h:196] Compiled cluster")
    os.write(2, b" using XLA!\n")
    os.write(2, b"E0000 00:00:1796.8  4366 cuda_executor.cc:1] failed call")
    os.write(2, b" to cuInit: UNKNOWN ERROR\n")
    os.write(2, b"E0000 00:00:1796.8  4366 kernel.cc:1] out of memory\n")
    print("from Python \udc80", file=sys.stderr)
    {end}
print("afterwards", file=sys.stderr)
"""


class StderrFilterTest(absltest.TestCase):
    def _run(self, end="", **environment):
        kept = {
            x: y for x, y in os.environ.items() if x != "TF_CPP_MIN_LOG_LEVEL"
        }
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT.replace("{end}", end)],
            env={
                **kept,
                **environment,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        return done.returncode, done.stderr.splitlines()

    def test_only_lines_for_users_remain(self):
        code, lines = self._run()
        self.assertEqual(0, code)
        self.assertLen(lines, 5)
        self.assertEqual(["afterwards", "at the end"], lines[-2:])
        self.assertIn(r"from Python \udc80", lines)
        for text in ("out of memory", "not UTF-8"):
            self.assertIn(text, " ".join(lines))

    def test_a_crash_keeps_its_message(self):
        code, lines = self._run("os.write(2, b'last words\\n'); os.abort()")
        self.assertNotEqual(0, code)
        self.assertIn("last words", lines)
        self.assertNotIn("afterwards", lines)

    def test_the_log_that_a_user_asks_for(self):
        _, lines = self._run(TF_CPP_MIN_LOG_LEVEL="0")
        self.assertLen(lines, 8)

    def test_a_redirected_stream_stays(self):
        with (
            mock.patch.dict(os.environ),
            contextlib.redirect_stderr(io.StringIO()) as stream,
        ):
            os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
            with stderr_filter.filtered():
                self.assertIs(stream, sys.stderr)

    def test_without_grep(self):
        _, lines = self._run(PATH="")
        self.assertLen(lines, 8)


if __name__ == "__main__":
    absltest.main()
