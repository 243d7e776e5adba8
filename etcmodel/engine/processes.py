"""Trains and evaluates in a new process if this process has Keras 3.

The Model Garden needs Keras 2, and a process cannot switch the Keras version.
Options, notes, progress, callbacks and the result are sent between the two
processes as pickles, so callers see no difference.
"""

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from etcmodel.engine import train as train_lib
from etcmodel.engine.progress import NoProgress
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError

_LENGTH = struct.Struct("!Q")
_MAX_SHOWN = 2000
# Methods of `NoProgress` that are forwarded to the other process.
_PROGRESS = (
    *("at", "done", "write", "step"),
    *("validation_starts", "validating", "validated"),
)


def has_keras_2() -> bool:
    """Returns whether this process has loaded TensorFlow with Keras 2."""
    if "tensorflow" not in sys.modules:
        return False
    from etcmodel.layers import keras_compat

    return not keras_compat.is_keras_3()


def train(
    options: train_lib.Options,
    reporter: Reporter | None = None,
    on_validation: Callable[[int, dict[str, float]], object] | None = None,
) -> train_lib.Result:
    """Trains in this process if it has Keras 2, otherwise in a new process.

    Has the same arguments and result as `train.train`.
    """
    return run(train_lib.train, options, reporter, on_validation)


def run(
    function: Callable[..., Any],
    options: Any,
    reporter: Reporter | None = None,
    on_validation: Callable[[int, dict[str, float]], object] | None = None,
) -> Any:
    """Calls a function in a process with Keras 2: in this one or a new one.

    Args:
        function: called with the options, a reporter and, if given,
            `on_validation`. The function and its result must be picklable.
        options: the options.
        reporter: shows notes and progress.
        on_validation: see `train.train`.

    Returns:
        The function's result.
    """
    reporter = reporter or Reporter("quiet")
    callbacks = [] if on_validation is None else [on_validation]
    if has_keras_2():
        return function(options, reporter, *callbacks)
    ours, theirs = socket.socketpair()
    environment = {
        **os.environ,
        "TF_USE_LEGACY_KERAS": "1",
        "PYTHONPATH": os.pathsep.join(x or os.getcwd() for x in sys.path),
    }
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with (
        ours,
        tempfile.TemporaryFile() as errors,
        contextlib.closing(_Channel(ours)) as channel,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=None if options.verbose else errors,
            stderr=None if options.verbose else errors,
            # Otherwise Ctrl-C would also interrupt the new process, which
            # `_serve` already does.
            start_new_session=True,
        )
        theirs.close()
        try:
            channel.send((function, options, on_validation is not None))
            return _serve(process, channel, reporter, on_validation)
        except EOFError:
            process.wait()
            errors.seek(0)
            text = errors.read().decode("utf-8", "replace").strip()
            raise UserError(
                "The process with Keras 2 ended unexpectedly with code "
                f"{process.returncode}. "
                f"{text[-_MAX_SHOWN:]}".rstrip()
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _serve(process, channel, reporter, on_validation):
    """Forwards the new process's reports, and returns its result."""
    is_interrupted = False
    with contextlib.ExitStack() as stack:
        progress = NoProgress()
        while True:
            try:
                kind, *values = channel.receive()
                if kind == "note":
                    reporter.note(*values)
                elif kind in ("training", "work"):
                    show = getattr(reporter, kind)(*values)
                    progress = stack.enter_context(show)
                elif kind == "end":
                    stack.close()
                    progress = NoProgress()
                elif kind in _PROGRESS:
                    getattr(progress, kind)(*values)
                elif kind == "on_validation":
                    channel.send(on_validation(*values))
                elif kind == "result":
                    return values[0]
                elif kind == "error":
                    raise UserError(values[0])
                elif kind == "failed":
                    raise RuntimeError(
                        f"The process with Keras 2 failed:\n{values[0]}"
                    )
                else:
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                if is_interrupted or process.poll() is not None:
                    raise
                # The process saves a checkpoint and sends "interrupted".
                is_interrupted = True
                process.send_signal(signal.SIGINT)


class _Channel:
    """Sends and receives pickles over a socket."""

    def __init__(self, stream: socket.socket):
        self._stream = stream
        self._buffer = b""

    def send(self, value: Any) -> None:
        """Sends a value as a pickle with its length before it."""
        content = pickle.dumps(value)
        self._stream.sendall(_LENGTH.pack(len(content)) + content)

    def receive(self) -> Any:
        """Receives a value.

        After a KeyboardInterrupt, the next call resumes where it stopped:
        received bytes are kept.

        Raises:
            EOFError: the other process has ended.
        """
        self._fill(_LENGTH.size)
        (size,) = _LENGTH.unpack(self._buffer[: _LENGTH.size])
        self._fill(_LENGTH.size + size)
        content = self._buffer[_LENGTH.size : _LENGTH.size + size]
        self._buffer = self._buffer[_LENGTH.size + size :]
        return pickle.loads(content)

    def _fill(self, size: int) -> None:
        while len(self._buffer) < size:
            try:
                part = self._stream.recv(1 << 16)
            except ConnectionError:
                part = b""
            if not part:
                raise EOFError
            self._buffer += part

    def close(self) -> None:
        """Closes the socket."""
        self._stream.close()


class _RemoteProgress(NoProgress):
    """Forwards progress to the other process."""

    def __init__(self, channel: _Channel):
        def sender(kind):
            return lambda *values: channel.send((kind, *values))

        vars(self).update({kind: sender(kind) for kind in _PROGRESS})
        self._end = sender("end")

    def __exit__(self, *error):
        self._end()


class _RemoteReporter(Reporter):
    """Forwards notes and progress to the other process."""

    def __init__(self, channel: _Channel):
        super().__init__("lines")
        self._channel = channel

    def note(self, text):
        """See `Reporter`."""
        self._channel.send(("note", text))

    def training(self, total, interval):
        """See `Reporter`."""
        self._channel.send(("training", total, interval))
        return _RemoteProgress(self._channel)

    def work(self, description, total, unit):
        """See `Reporter`."""
        self._channel.send(("work", description, total, unit))
        return _RemoteProgress(self._channel)


def main(descriptor: int) -> None:
    """Calls a function received from the socket with this descriptor."""
    # A process started in the background ignores SIGINT by default.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel = _Channel(socket.socket(fileno=descriptor))
    function, options, has_callback = channel.receive()

    def on_validation(step, metrics):
        channel.send(("on_validation", step, metrics))
        return channel.receive()

    try:
        callbacks = [on_validation] if has_callback else []
        result = function(options, _RemoteReporter(channel), *callbacks)
        channel.send(("result", result))
    except UserError as error:
        channel.send(("error", str(error)))
    except KeyboardInterrupt:
        channel.send(("interrupted",))
    except BrokenPipeError:
        # The other process has ended, so nobody waits for the result.
        sys.exit(1)
    except Exception:
        channel.send(("failed", traceback.format_exc()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
