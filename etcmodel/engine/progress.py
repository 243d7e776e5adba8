"""Shows progress: as a bar in a terminal or notebook, as lines in a file."""

import os
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import TextIO

import tqdm

from etcmodel.errors import UserError
from etcmodel.readers import files

# Number of seconds before the first line about a validation or about work other
# than training.
_FIRST_LINE = 5
# Minimum number of seconds between two drawings of a bar.
_MIN_REDRAW = 0.1
# Maximum number of seconds between two lines.
_MAX_SILENCE = 30
STYLES = ("auto", "bar", "lines", "quiet")


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


class NoProgress:
    """Replaces `WorkProgress` and `TrainingProgress`; shows nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def at(self, position: int) -> None:
        """See `WorkProgress`."""

    def done(self, count: int = 1) -> None:
        """See `WorkProgress`."""

    def write(self, text: str) -> None:
        """See `TrainingProgress`."""

    def step(self, step: int, loss: float) -> None:
        """See `TrainingProgress`."""

    def validation_starts(self) -> None:
        """See `TrainingProgress`."""

    def validating(self) -> None:
        """See `TrainingProgress`."""

    def validated(self, text: str) -> None:
        """See `TrainingProgress`."""


class _Progress(NoProgress):
    """Base class: where lines go, and whether there is a bar."""

    def __init__(self, out, clock, has_bar):
        self._out, self._clock = out, clock
        self._has_bar = _has_bars(sys.stderr) if has_bar is None else has_bar


class WorkProgress(_Progress):
    """Shows how much of a task is done: a bar in a terminal, lines in a file.

    The first line comes after 5 s, the others every 30 s.

    Args:
        description: what is being done, such as "Predicting".
        total: the amount of work, in units.
        unit: "B" for bytes of files, or a name such as "batch".
        out: stream for lines.
        clock: returns the time in seconds.
        has_bar: whether to show a bar; by default if stderr supports it.
    """

    def __init__(
        self,
        description: str,
        total: int,
        unit: str,
        out: TextIO,
        clock: Callable[[], float] = time.monotonic,
        has_bar: bool | None = None,
    ):
        super().__init__(out, clock, has_bar)
        self._description, self._total, self._unit = description, total, unit
        self._position = self._records = 0

    def __enter__(self):
        self._next_line = self._clock() + _FIRST_LINE
        self._first = None
        self._bar = tqdm.tqdm(
            desc=self._description,
            total=self._total,
            unit=self._unit,
            unit_scale=self._unit == "B",
            disable=not self._has_bar,
            dynamic_ncols=True,
        )
        return self

    def __exit__(self, *error):
        self._bar.close()

    def at(self, position: int) -> None:
        """Moves to a position, in units."""
        if self._first is None:
            self._first = position, self._clock()
        self._bar.update(position - self._position)
        self._position = position
        self._write_line()

    def done(self, count: int = 1) -> None:
        """Adds `count` to the number of finished records."""
        self._records += count
        self._bar.set_postfix_str(f"{self._records} records", refresh=False)
        self._write_line()

    def validation_starts(self) -> None:
        """Prints a line before the first batch, which builds the graph."""
        if self._first is None and not self._has_bar:
            text = f"{self._description}: the first batch takes a while"
            print(text, file=self._out, flush=True)

    def validating(self) -> None:
        """Called after each validated batch: advances by one."""
        self.at(self._position + 1)

    def _write_line(self) -> None:
        """Writes a line if there is no bar and the last line is old."""
        now = self._clock()
        if self._has_bar or now < self._next_line:
            return
        self._next_line = now + _MAX_SILENCE
        parts = []
        if self._unit != "B":
            parts += [f"{self._unit} {self._position} of {self._total}"]
        if self._records:
            parts += [f"{self._records} records"]
        if 0 < self._position <= self._total:
            parts += [f"{self._position / self._total:.0%}"]
            # The first unit can take longer: it builds the graph.
            position, start = self._first
            if self._position > position:
                rest = (self._total - self._position) * (now - start)
                seconds = round(rest / (self._position - position))
                parts += [f"{tqdm.tqdm.format_interval(seconds)} left"]
        text = ", ".join(parts) or "reading"
        print(f"{self._description}: {text}", file=self._out, flush=True)


class TrainingProgress(_Progress):
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
        super().__init__(out, clock, has_bar)
        self._total, self._interval = total, interval
        # A bar replaces lines, unless the lines go to a file.
        self._has_lines = not (
            self._has_bar and (out.isatty() or in_notebook())
        )
        self._bar, self._drawn, self._batches = None, 0.0, 0
        self._has_validated = False

    def __enter__(self):
        self.write("Building the graph; the first step takes a while.")
        self._line_time = self._clock()
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
        self._shown = shown
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

    def validation_starts(self) -> None:
        """Shows that a validation starts; the first one builds its graph.

        A line about a batch follows if the validation takes 5 s.
        """
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._shown}, validation")
        if not self._has_validated:
            self._has_validated = True
            self.write("Validating; the first batch takes a while.")
        self._line_time = self._clock() + _FIRST_LINE - _MAX_SILENCE

    def validating(self) -> None:
        """Shows that a batch was validated."""
        self._batches += 1
        text, now = f"validation: batch {self._batches}", self._clock()
        if self._bar is not None and now - self._drawn >= _MIN_REDRAW:
            self._drawn = now
            self._bar.set_postfix_str(f"{self._shown}, {text}")
        if self._has_lines and now - self._line_time >= _MAX_SILENCE:
            self._line_time = now
            self.write(text.capitalize())

    def validated(self, text: str) -> None:
        """Prints a validation's result; excludes its time from the speed."""
        self._batches = 0
        if self._bar is not None:
            self._bar.set_postfix_str(self._shown, refresh=False)
            self._bar.unpause()
            now = self._line_time = self._clock()
            self._start += now - self._time
        self.write(text)


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
        """Returns a context manager that shows progress through files."""
        return self.work(description, sum(map(files.size, paths)), "B")

    def work(self, description: str, total: int, unit: str):
        """Returns a context manager; see `WorkProgress`."""
        if self.is_quiet or not total:
            return NoProgress()
        return WorkProgress(
            *(description, total, unit, self._out or sys.stdout),
            has_bar=self._has_bar,
        )

    @property
    def _has_bar(self) -> bool | None:
        return {"bar": True, "lines": False}.get(self.style)

    def training(self, total: int, interval: int):
        """Returns a context manager that gives a `TrainingProgress`.

        Args:
            total: number of steps of the whole run.
            interval: number of steps between lines.
        """
        if self.is_quiet:
            return NoProgress()
        out = self._out or sys.stdout
        return TrainingProgress(total, interval, out, has_bar=self._has_bar)
