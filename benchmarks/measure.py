"""Times and peak memory.

*   Time and memory of a step are measured in the same process, which has
    nothing else to do, under the same settings.
*   Times are interleaved: every round runs each step once, in another order, so
    that a machine that slows down slows all of them.
*   Memory is the peak of the process minus its memory before the first run:
    activations, gradients, outputs, pools of allocators and compilation, but
    neither inputs nor weights.
"""

import contextlib
import ctypes
import gc
import importlib.metadata
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

import numpy as np
import tensorflow as tf

Step = Callable[[], Any]


def warm_up(step: Step) -> float:
    """Runs a step for the first time; returns seconds, with compilation."""
    start = time.perf_counter()
    _run(step)
    return time.perf_counter() - start


def time_interleaved(
    steps: Mapping[Hashable, "Step | StepProcess"],
    repeats: int,
    seed: int = 0,
    untimed: int = 2,
) -> dict[Hashable, list[float]]:
    """Runs steps in turns, in another order each round.

    Args:
        steps: what is timed, warmed up already; here or in its process.
        repeats: number of rounds.
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
    """Returns the milliseconds of one run."""
    start = time.perf_counter()
    _run(step)
    return 1e3 * (time.perf_counter() - start)


class StepProcess:
    """A step in a process of its own, where it is timed and takes memory.

    It has run once, which compiles it, when this is made. It needs Linux, or a
    GPU, of which memory is what its allocator counts. A process that the system
    killed, for taking too much memory, is a
    `futures.process.BrokenProcessPool`, here and in all methods.

    Attributes:
        warm_up_seconds: what the first run took.

    Args:
        make_step: a function of a module, so that it can be pickled. Makes
            inputs and weights, which do not count, and returns the step.
        *args: its arguments, which can be pickled.
    """

    def __init__(self, make_step: Callable[..., Step], *args: Any):
        self._pool = futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn")
        )
        try:
            self.warm_up_seconds = self._call(_start, make_step, args)
        except BaseException:
            self.close()
            raise

    def _call(self, function, *args):
        return self._pool.submit(function, *args).result()

    def milliseconds(self) -> float:
        """Runs the step once."""
        return self._call(_time_here)

    def peak_megabytes(self) -> float:
        """Returns the peak above what there was before, in 10^6 bytes.

        Of all runs so far, the first included. What the step returns counts.
        """
        return self._call(_peak_here)

    def close(self) -> None:
        """Returns ends the process."""
        self._pool.shutdown(cancel_futures=True)


class Timed(NamedTuple):
    """Milliseconds of each round, and megabytes at the highest point."""

    milliseconds: list[float]
    peak_mb: float

    @property
    def median(self) -> float:
        """Median of the milliseconds."""
        return float(np.median(self.milliseconds))


def time_in_processes(
    make_step: Callable[..., Step],
    arguments: Mapping[Hashable, Sequence[Any]],
    repeats: int,
    untimed: int,
) -> dict[Hashable, Timed]:
    """Times steps in turns, each in a `StepProcess` with its arguments."""
    with contextlib.ExitStack() as stack:
        processes = {}
        for name, given in arguments.items():
            processes[name] = StepProcess(make_step, *given)
            stack.callback(processes[name].close)
        times = time_interleaved(processes, repeats, untimed=untimed)
        return {
            name: Timed(times[name], process.peak_megabytes())
            for name, process in processes.items()
        }


def compile_gradients(
    compute_loss: Callable[[], tf.Tensor],
    variables: Sequence[Any],
    inputs: Sequence[tf.Tensor] = (),
) -> Callable[[], tf.Tensor]:
    """Compiles a function that returns the sum of all gradients of a loss."""

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = compute_loss()
        return tf.add_n(
            [
                tf.reduce_sum(tf.convert_to_tensor(x))
                for x in tape.gradient(loss, [*variables, *inputs])
                if x is not None
            ]
        )

    return step


def trainable_variables(layer: tf.keras.layers.Layer) -> list[tf.Variable]:
    """Returns TensorFlow's variables, which Keras 3 wraps."""
    return [
        weight if isinstance(weight, tf.Variable) else weight.value
        for weight in layer.trainable_variables
    ]


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
    """Sets environment variables for the processes that are started."""
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
    """Calls a function of a module in a process of its own."""
    with futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        return pool.submit(function, *args).result()


def prepare_devices() -> None:
    """Lets several processes share a GPU; before anything runs on it."""
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def status_bytes(name: str) -> int:
    """Returns a size of this process that Linux knows, in bytes.

    Such as `VmRSS`, the resident size, or `VmHWM`, its peak.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    raise ValueError(f"/proc/self/status says nothing of {name}")


def environment() -> dict[str, Any]:
    """Returns what numbers depend on besides the code, as fields of a line."""
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
