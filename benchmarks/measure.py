"""Measures times and peak memory.

*   Time and memory of a step are measured in the same process, which does
    nothing else.
*   Times are interleaved: every round runs each step once, in random order, so
    that a slowdown of the machine affects all steps.
*   Memory is the peak of the process minus its memory before the first run. It
    includes activations, gradients, outputs, allocator pools and compilation,
    but not inputs and weights.
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
    """Runs a step for the first time; returns the seconds with compilation."""
    start = time.perf_counter()
    _run(step)
    return time.perf_counter() - start


def time_interleaved(
    steps: Mapping[Hashable, "Step | StepProcess"],
    repeats: int,
    seed: int = 0,
    untimed: int = 2,
) -> dict[Hashable, list[float]]:
    """Times steps in rounds; each round runs all steps in random order.

    Args:
        steps: name -> step, which has been warmed up. A `StepProcess` is timed
            in its own process.
        repeats: number of timed rounds.
        seed: seed of the random orders.
        untimed: number of rounds to run first, without measuring their time.

    Returns:
        Name -> milliseconds in each round.
    """
    milliseconds = {name: [] for name in steps}
    generator = random.Random(seed)
    order = list(steps)
    # A garbage collection during a step would count as its time. If it deletes
    # a function, TensorFlow also prepares all other functions again.
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
    """Runs a step and waits for the GPU, which computes asynchronously."""
    outputs = step()
    tf.test.experimental.sync_devices()
    del outputs


def _time(step: Step) -> float:
    """Returns the milliseconds of one run."""
    start = time.perf_counter()
    _run(step)
    return 1e3 * (time.perf_counter() - start)


class StepProcess:
    """A step in its own process, which measures its time and memory.

    The constructor runs the step once, which compiles it. On a GPU, memory is
    that of TensorFlow's allocator; on a CPU, measuring memory needs Linux. The
    constructor and all methods raise `futures.process.BrokenProcessPool` if the
    system killed the process, which it does when memory runs out.

    Attributes:
        warm_up_seconds: seconds of the first run.

    Args:
        make_step: makes inputs and weights, whose memory does not count, and
            returns the step. Must be picklable.
        *args: arguments of `make_step`, which must be picklable.
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
        """Runs the step once; returns the milliseconds."""
        return self._call(_time_here)

    def peak_megabytes(self) -> float:
        """Returns the peak memory of all runs so far, in 10^6 bytes.

        Excludes the memory before the first run; includes the step's outputs.
        """
        return self._call(_peak_here)

    def close(self) -> None:
        """Ends the process."""
        self._pool.shutdown(cancel_futures=True)


class Timed(NamedTuple):
    """Milliseconds of a step in each round, and its peak memory."""

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
    """Times interleaved steps, each in a new `StepProcess`.

    Args:
        make_step: see `StepProcess`.
        arguments: name -> arguments of `make_step`.
        repeats: number of timed rounds.
        untimed: number of rounds to run first, without measuring their time.
    """
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
    """Returns a layer's trainable weights as variables of TensorFlow.

    Keras 3 wraps TensorFlow's variables in `keras.Variable`.
    """
    return [
        weight if isinstance(weight, tf.Variable) else weight.value
        for weight in layer.trainable_variables
    ]


# State in the process of a `StepProcess`: its step, and the memory before it.
_here: dict[str, Any] = {}


def _start(make_step, args):
    prepare_devices()
    step = make_step(*args)
    if tf.config.list_logical_devices("GPU"):
        before = tf.config.experimental.get_memory_info("GPU:0")["current"]
        tf.config.experimental.reset_memory_stats("GPU:0")
    else:
        # Gives memory that making the inputs has freed back to the system.
        ctypes.CDLL(None).malloc_trim(0)
        before = status_bytes("VmRSS")
        # Resets VmHWM, the peak of the resident size, to the present size.
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    seconds = warm_up(step)
    # A garbage collection can make TensorFlow prepare the step again.
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
    """Sets environment variables for processes started in a with block."""
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
    """Calls a picklable function in a new process; returns its result."""
    with futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        return pool.submit(function, *args).result()


def prepare_devices() -> None:
    """Lets several processes share a GPU. Call it before using the GPU."""
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def status_bytes(name: str, process: int | str = "self") -> int:
    """Returns a size of a process in bytes, from `/proc/self/status`.

    Example: `VmRSS` is the resident size, `VmHWM` its peak.
    """
    path = f"/proc/{process}/status"
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    raise ValueError(f"{path} has no entry {name}")


def environment() -> dict[str, Any]:
    """Returns device, CPU and library versions, as fields of a line."""
    gpus = tf.config.list_physical_devices("GPU")
    device = "CPU"
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        device = details.get("device_name", "GPU")
    # The package is `keras` or `tf_keras`.
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
