"""Removes lines of TensorFlow's C++ log that do not concern users.

TensorFlow logs some lines with Abseil before Abseil is set up, so that neither
`TF_CPP_MIN_LOG_LEVEL` nor Python's logging can hide them.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

# Matches information, such as "Compiled cluster using XLA!", and the error of a
# machine without a GPU.
_PATTERN = (
    "^(WARNING: All log messages before absl::InitializeLog"
    "|I[0-9]{4} [0-9:.]+ +[0-9]+ "
    "|E[0-9]{4} [0-9:.]+ +[0-9]+ .*failed call to cuInit)"
)
# Seconds to wait at the end for lines of other processes.
_WAIT = 2


@contextlib.contextmanager
def filtered() -> Iterator[None]:
    """Filters what other code than Python's writes to standard error.

    The lines go through `grep`, in a process of its own, so that the last words
    of a crash are not lost. `sys.stderr` is not filtered and is still a
    terminal if it was one. Nothing is filtered if there is no `grep`, if
    `sys.stderr` is redirected already, or if the user sets
    `TF_CPP_MIN_LOG_LEVEL`.
    """
    grep = shutil.which("grep")
    is_own = sys.stderr is not None and sys.stderr is sys.__stderr__
    if grep is None or not is_own or "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        yield
        return
    before, target = sys.stderr, os.dup(2)
    # Not in a with block, which would wait for it without a limit.
    process = subprocess.Popen(
        [grep, "-a", "-v", "--line-buffered", "-E", _PATTERN],
        stdin=subprocess.PIPE,
        stdout=target,
        # Ctrl-C must not end it before this process has written its errors.
        start_new_session=True,
    )
    os.dup2(process.stdin.fileno(), 2)
    process.stdin.close()
    # Stays open: handlers of logs keep it, and write when the program ends.
    sys.stderr = open(
        target,
        "w",
        buffering=1,
        encoding=before.encoding,
        errors=before.errors,
        closefd=False,
    )
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = before
        os.dup2(target, 2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_WAIT)
