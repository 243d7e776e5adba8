"""Shows progress: as a bar in a terminal or notebook, as lines in a file."""

import os
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TextIO

import tqdm

from etcmodel.errors import UserError
from etcmodel.readers import files

# Maximum number of seconds of training between two lines.
_MAX_SILENCE = 30
STYLES = ("auto", "bar", "lines", "quiet")


class FileProgress:
    """Progress bar over the bytes of files; shows the number of records."""

    def __init__(self, bar: tqdm.tqdm):
        self._bar = bar
        self._records = 0

    def at(self, position: int) -> None:
        """Moves the bar to a position in the files, in bytes."""
        self._bar.update(position - self._bar.n)

    def done(self, count: int = 1) -> None:
        """Adds `count` to the number of finished records."""
        self._records += count
        self._bar.set_postfix_str(f"{self._records} records", refresh=False)


@contextmanager
def file_progress(
    paths: Sequence[str], description: str
) -> Iterator[FileProgress]:
    """Shows a progress bar over the bytes of files."""
    with tqdm.tqdm(
        total=sum(map(files.size, paths)),
        desc=description,
        unit="B",
        unit_scale=True,
        disable=None,
        dynamic_ncols=True,
    ) as bar:
        yield FileProgress(bar)


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def _has_bars(stream: TextIO) -> bool:
    """Returns whether tqdm shows bars: in notebooks and sized terminals."""
    if not stream.isatty():
        return in_notebook()
    try:
        return os.get_terminal_size(stream.fileno()).lines > 0
    except OSError:
        return True


class TrainingProgress:
    """Shows training progress: a bar in a terminal, lines in a file.

    The speed and the time left ignore validations, and the first step, which
    builds the graph.

    Args:
        total: number of steps of the whole run.
        interval: number of steps between lines. A line is also written if the
            last one is 30 s old.
        out: stream for lines.
        clock: returns the time in seconds.
        has_bar: whether to show a bar; by default if stderr supports it.
    """

    def __init__(
        self,
        total: int,
        interval: int,
        out: TextIO,
        clock: Callable[[], float] = time.monotonic,
        has_bar: bool | None = None,
    ):
        self._total, self._interval = total, interval
        self._out, self._clock = out, clock
        self._has_bar = _has_bars(sys.stderr) if has_bar is None else has_bar
        # A bar replaces lines, unless the lines go to a file.
        self._has_lines = not (
            self._has_bar and (out.isatty() or in_notebook())
        )
        self._bar, self._line_time = None, 0.0

    def __enter__(self):
        self.write("Building the graph; the first step takes a while.")
        return self

    def __exit__(self, *error):
        if self._bar is not None:
            self._bar.close()

    def write(self, text: str) -> None:
        """Prints a line without breaking the bar."""
        # `tqdm.write` clears the bar only for sys.stdout and sys.stderr, which
        # `out` is not while `sys.stdout` is replaced.
        if self._bar is not None:
            self._bar.clear()
        print(text, file=self._out, flush=True)
        if self._bar is not None:
            self._bar.refresh()

    def step(self, step: int, loss: float) -> None:
        """Shows a finished step, counted from 1, and its loss."""
        shown, now = f"loss {loss:.4g}", self._clock()
        if self._bar is None:
            self._first, self._start = step, now
            self._bar = tqdm.tqdm(
                total=self._total,
                initial=step,
                desc="Training",
                postfix=shown,
                unit="step",
                disable=not self._has_bar,
                dynamic_ncols=True,
                leave=False,
            )
            is_line = True
        else:
            self._bar.set_postfix_str(shown, refresh=False)
            self._bar.update(step - self._step)
            is_line = (
                step // self._interval > self._step // self._interval
                or step >= self._total
                or now - self._line_time >= _MAX_SILENCE
            )
        self._step, self._time = step, now
        if self._has_lines and is_line:
            self._line_time = now
            self.write(f"Step {step} of {self._total}: {shown}{self._speed()}")

    def _speed(self) -> str:
        """Returns the speed and the time left, or "" after a single step."""
        seconds, steps = self._time - self._start, self._step - self._first
        if not steps or seconds <= 0:
            return ""
        rate = steps / seconds
        speed = f"{rate:.3g} steps/s" if rate >= 1 else f"{1 / rate:.3g} s/step"
        left = tqdm.tqdm.format_interval((self._total - self._step) / rate)
        return f", {speed}, {left} left"

    def validated(self, text: str) -> None:
        """Prints a validation's result; excludes its time from the speed."""
        if self._bar is not None:
            self._bar.unpause()
            now = self._line_time = self._clock()
            self._start += now - self._time
        self.write(text)


class NoProgress:
    """Replaces `FileProgress` and `TrainingProgress`; shows nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def at(self, position: int) -> None:
        """See `FileProgress`."""

    def done(self, count: int = 1) -> None:
        """See `FileProgress`."""

    def write(self, text: str) -> None:
        """See `TrainingProgress`."""

    def step(self, step: int, loss: float) -> None:
        """See `TrainingProgress`."""

    def validated(self, text: str) -> None:
        """See `TrainingProgress`."""


class Reporter:
    """Shows notes and progress of the engine's functions.

    Args:
        style: "auto" for bars in a terminal or notebook and lines elsewhere,
            "bar", "lines" or "quiet".
        out: stream for notes and lines; by default `sys.stdout`.
    """

    def __init__(self, style: str = "auto", out: TextIO | None = None):
        if style not in STYLES:
            raise UserError(
                f"`style` is {style!r}, but must be one of {', '.join(STYLES)}."
            )
        self.style, self._out = style, out

    @property
    def is_quiet(self) -> bool:
        """Whether the reporter shows nothing."""
        return self.style == "quiet"

    def note(self, text: str) -> None:
        """Shows a line."""
        if not self.is_quiet:
            print(text, file=self._out or sys.stdout, flush=True)

    def files(self, paths: Sequence[str], description: str):
        """Returns a context manager that gives a `FileProgress`."""
        if self.is_quiet or self.style == "lines" or not paths:
            return NoProgress()
        return file_progress(paths, description)

    def training(self, total: int, interval: int):
        """Returns a context manager that gives a `TrainingProgress`.

        Args:
            total: number of steps of the whole run.
            interval: number of steps between lines.
        """
        if self.is_quiet:
            return NoProgress()
        has_bar = {"bar": True, "lines": False}.get(self.style)
        out = self._out or sys.stdout
        return TrainingProgress(total, interval, out, has_bar=has_bar)
