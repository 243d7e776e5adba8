"""Times, peak memory and their presentation, for the other benchmarks.

*   Time and memory of a step are measured in the same process, which has
    nothing else to do, under the same settings.
*   Times are taken interleaved: every round runs each step once, in another
    order, so that a machine that slows down slows all of them.
*   Memory is what the process holds at its highest point above what it held
    before the step first ran: activations, gradients and outputs, what
    allocators keep for later and compilation takes, but neither inputs nor
    weights.
"""

import contextlib
import ctypes
import gc
import importlib.metadata
import json
import multiprocessing
import os
import platform
import random
import time
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

import matplotlib
import numpy as np
import tensorflow as tf

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

Step = Callable[[], Any]

# What allocators are told. "default" is TensorFlow as it comes: its oneDNN
# allocator keeps a pool of what tensors took, and the C library one of all that
# is smaller than a threshold, which it raises as it goes. With "system" it goes
# back to the system as soon as the tensor does, which takes time.
ALLOCATORS = {
    "default": {},
    "system": {
        "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
        "MALLOC_MMAP_THRESHOLD_": str(2**18),
    },
}


class Quartiles(NamedTuple):
    """The middle of some numbers, and the range that half of them are in."""

    first: float
    median: float
    third: float


def quartiles(numbers: Sequence[float]) -> Quartiles:
    """The quartiles of at least one number."""
    return Quartiles(*map(float, np.percentile(numbers, [25, 50, 75])))


def warm_up(step: Step) -> float:
    """Runs a step for the first time.

    Args:
        step: what is to be timed.

    Returns:
        Seconds, with tracing and compilation.
    """
    start = time.perf_counter()
    _run(step)
    return time.perf_counter() - start


def time_interleaved(
    steps: Mapping[Hashable, "Step | StepProcess"],
    repeats: int,
    seed: int = 0,
    untimed: int = 2,
) -> dict[Hashable, list[float]]:
    """Runs steps in turns.

    Args:
        steps: what is timed, warmed up already; here or in its process.
        repeats: number of rounds; each runs all steps once, in random order.
        seed: of the orders.
        untimed: number of rounds before those.

    Returns:
        The milliseconds of each step, a number a round.
    """
    milliseconds = {name: [] for name in steps}
    generator = random.Random(seed)
    order = list(steps)
    # A collection in the middle of a step would count as the step's time; and
    # when it removes a function, TensorFlow prepares all others again.
    gc.collect()
    gc.disable()
    try:
        for _ in range(untimed + repeats):
            generator.shuffle(order)
            for name in order:
                step = steps[name]
                milliseconds[name].append(
                    step.milliseconds()
                    if isinstance(step, StepProcess)
                    else _time(step)
                )
    finally:
        gc.enable()
    return {name: times[untimed:] for name, times in milliseconds.items()}


def _run(step: Step) -> None:
    """Runs a step to its end; a GPU works on when the call has returned."""
    outputs = step()
    tf.test.experimental.sync_devices()
    del outputs


def _time(step: Step) -> float:
    """Milliseconds of one run."""
    start = time.perf_counter()
    _run(step)
    return 1e3 * (time.perf_counter() - start)


class StepProcess:
    """A step in a process of its own, where it is timed and takes memory.

    It has run once, which compiles it, when this is made. It needs Linux, or a
    GPU, of which memory is what its allocator counts.

    Attributes:
        warm_up_seconds: what the first run took.

    Args:
        make_step: a function of a module, so that it can be pickled. Makes
            inputs and weights, which do not count, and returns the step.
        *args: its arguments, which can be pickled.
        allocator: a key of `ALLOCATORS`.

    Raises:
        futures.process.BrokenProcessPool: the process was killed, which the
            system does to one that takes too much; likewise in all methods.
    """

    def __init__(
        self,
        make_step: Callable[..., Step],
        *args: Any,
        allocator: str = "default",
    ):
        self._pool = futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn")
        )
        try:
            with environment_variables(ALLOCATORS[allocator]):
                self.warm_up_seconds = self._call(_start, make_step, args)
        except BaseException:
            self.close()
            raise

    def _call(self, function, *args):
        return self._pool.submit(function, *args).result()

    def milliseconds(self) -> float:
        """Runs the step once, and says how long it took there."""
        return self._call(_time_here)

    def peak_megabytes(self) -> float:
        """What the process held at most above what it held before the step.

        Returns:
            Megabytes of 10^6 bytes, of all runs so far, the first included.
            What the step returns counts, too.
        """
        return self._call(_peak_here)

    def close(self) -> None:
        """Ends the process."""
        self._pool.shutdown(cancel_futures=True)


# Of the process of a `StepProcess`.
_here: dict[str, Any] = {}


def _start(make_step, args):
    prepare_devices()
    step = make_step(*args)
    if tf.config.list_logical_devices("GPU"):
        before = tf.config.experimental.get_memory_info("GPU:0")["current"]
        tf.config.experimental.reset_memory_stats("GPU:0")
    else:
        # Gives back what the C library keeps of making the inputs.
        ctypes.CDLL(None).malloc_trim(0)
        before = status_bytes("VmRSS")
        # Sets the highest resident size to the present one.
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    seconds = warm_up(step)
    # A collection can make TensorFlow prepare the step again.
    gc.collect()
    gc.disable()
    _here.update(step=step, before=before)
    return seconds


def _time_here():
    return _time(_here["step"])


def _peak_here():
    if tf.config.list_logical_devices("GPU"):
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    else:
        peak = status_bytes("VmHWM")
    return (peak - _here["before"]) / 1e6


@contextlib.contextmanager
def environment_variables(variables):
    """Sets environment variables for the processes that are started.

    Args:
        variables: name -> value.

    Yields:
        Nothing.
    """
    outside = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in outside.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def in_fresh_process(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function in a process of its own.

    Args:
        function: of a module, so that it can be pickled.
        *args: its arguments, which can be pickled.

    Returns:
        What it returns.

    Raises:
        futures.process.BrokenProcessPool: the process was killed, which the
            system does to one that takes too much.
    """
    with futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        return pool.submit(function, *args).result()


def prepare_devices() -> None:
    """Lets several processes share a GPU; before anything runs on it."""
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def status_bytes(name: str) -> int:
    """A size that the system (Linux) says of this process.

    Args:
        name: such as `VmRSS`, the resident size, or `VmHWM`, its peak.

    Returns:
        Bytes.

    Raises:
        ValueError: the system says nothing of that.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    raise ValueError(f"/proc/self/status says nothing of {name}")


def environment() -> dict[str, Any]:
    """What the numbers depend on besides the code, as fields of a line."""
    gpus = tf.config.list_physical_devices("GPU")
    device = "CPU"
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        device = details.get("device_name", "GPU")
    # `keras` or `tf_keras`.
    keras = tf.keras.layers.Layer.__module__.split(".")[0]
    return {
        "device": device,
        "tensorflow": tf.__version__,
        "keras": importlib.metadata.version(keras),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
    }


def _cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write_lines(path: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Writes JSON lines.

    Args:
        path: the file. It is there only once it is whole.
        lines: what is on each line.
    """
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def write_text(path: str, text: str) -> None:
    """Writes a file that is there only once it is whole."""
    unfinished = f"{path}.unfinished"
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(unfinished, path)


def format_table(
    lines: Sequence[Mapping[str, Any]], columns: Mapping[str, str]
) -> str:
    """Lines as a table for people.

    Args:
        lines: what is on each line of the table.
        columns: fields of the lines, and how each is formatted, such as
            `".1f"`. What is None is shown as "-".

    Returns:
        The table with a head. A line with a field `skipped` ends with it.
    """
    table = [list(columns)]
    for line in lines:
        table.append(
            [
                "-" if line[name] is None else format(line[name], form)
                for name, form in columns.items()
            ]
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    endings = ["", *(line.get("skipped") for line in lines)]
    texts = []
    for cells, ending in zip(table, endings, strict=True):
        padded = [c.rjust(w) for c, w in zip(cells, widths, strict=True)]
        texts.append("  ".join([*padded, ending or ""]).rstrip())
    return "\n".join(texts) + "\n"


def plot(path: str, title: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Draws time and peak memory against length, a column a dtype and pass.

    Args:
        path: PNG file.
        title: what was measured.
        lines: with the fields `implementation`, `inputs`, `mode`, `dtype`,
            `pass`, `length`, `median_ms` and `peak_mb`.
    """
    columns = list(dict.fromkeys((x["dtype"], x["pass"]) for x in lines))
    names = list(dict.fromkeys(_curve(x)[0] for x in lines))
    figure, axes = pyplot.subplots(
        2,
        len(columns),
        figsize=(2 + 4.5 * len(columns), 8),
        sharex=True,
        squeeze=False,
    )
    for column, (dtype, pass_name) in enumerate(columns):
        axes[0, column].set_title(f"{dtype}, {pass_name}")
        axes[1, column].set_xlabel("long tokens")
        chosen = [
            x for x in lines if (x["dtype"], x["pass"]) == (dtype, pass_name)
        ]
        for row, field in enumerate(("median_ms", "peak_mb")):
            _draw(axes[row, column], chosen, field, names)
    axes[0, 0].set_ylabel("milliseconds, median")
    axes[1, 0].set_ylabel("peak memory, MB")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", fontsize="small")
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0, 1 - 2.2 / figure.get_figwidth(), 1))
    unfinished = f"{path}.unfinished"
    figure.savefig(unfinished, format="png", dpi=120)
    pyplot.close(figure)
    os.replace(unfinished, path)


def _curve(line):
    """Which curve of a plot a line belongs to: its name and mode."""
    inputs = "" if line["inputs"] in (None, "tensors") else f" {line['inputs']}"
    return line["implementation"] + inputs, line["mode"]


def _draw(axis, lines, field, names):
    """Draws the curves of one panel; colours go by name, dashes by mode."""
    curves = {}
    for line in lines:
        points = curves.setdefault(_curve(line), [])
        if line[field] is not None:
            points.append((line["length"], line[field]))
    for (name, mode), points in curves.items():
        axis.plot(
            *zip(*sorted(points), strict=True) if points else ([], []),
            color=f"C{names.index(name)}",
            linestyle="--" if mode == "xla" else "-",
            marker=".",
            label=f"{name}, {mode}",
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.grid(alpha=0.3)
