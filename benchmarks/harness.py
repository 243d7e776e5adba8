"""Measures cases for the benchmarks of attention and of a layer.

A case is an implementation under one set of conditions. Each case runs in a new
process, so a case that runs out of memory does not affect the others. Times are
interleaved and compared with the time of the matrix products alone.

Text fills 90 % of each row. Sentences have 27 tokens, or more if there are too
few global tokens, because each sentence has its own global token.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

from benchmarks import appendix_a
from benchmarks import gemm_floor
from benchmarks import measure
from benchmarks import program
from etcmodel import feature_utils

# Implementation outside the package. It needs masks and labels as tensors.
_RECIPE = "appendix_a"

_SENTENCE_LENGTH = 27
# Estimated number of arrays of the size of the scores that are alive at once:
# scores, gathered label scores, transposed label scores and probabilities, and
# in a training step their gradients.
_SCORE_ARRAYS = {"forward": 4, "train": 8}
_MAX_PROCESSES = 6


@dataclasses.dataclass(frozen=True)
class Case:
    """One implementation under one set of conditions.

    The attributes are values of the benchmark's flags.
    """

    implementation: str
    inputs: str
    mode: str
    dtype: str
    pass_name: str
    sizes: gemm_floor.Sizes
    dropout: float = 0.0
    preset: str = "base"

    @property
    def att_implementation(self) -> str:
        """`att_implementation` of the layers; `_RECIPE` replaces "sparse"."""
        is_recipe = self.implementation == _RECIPE
        return "sparse" if is_recipe else self.implementation

    @property
    def compute_dtype(self) -> str:
        """Dtype of activations."""
        return self.dtype.removeprefix("mixed_")

    @property
    def group(self) -> tuple[int, str, str]:
        """Conditions shared by the cases that are timed in turns."""
        return self.sizes.long_length, self.dtype, self.pass_name


@functools.lru_cache(maxsize=2)
def make_side_inputs(kind: str, sizes: gemm_floor.Sizes) -> dict[str, Any]:
    """Makes masks and labels of text in sentences, with padding at the end.

    Args:
        kind: "tensors" for int32 tensors, or "specs" for compact descriptions
            of the masks and labels of long tokens (see
            `etcmodel.ops.attention`). The ids in a description are inputs of
            the graph, so that masks are not folded into constants.
        sizes: sizes of the attention.

    Returns:
        Masks and labels, keyed by the layer's argument names.
    """
    num_tokens = max(1, sizes.long_length * 9 // 10)
    sentence_length = max(
        _SENTENCE_LENGTH, math.ceil(num_tokens / sizes.global_length)
    )
    num_sentences = math.ceil(num_tokens / sentence_length)
    # [long]
    position = tf.range(sizes.long_length)
    sentence_ids = tf.where(
        position < num_tokens, position // sentence_length, -1
    )

    def repeat(row):
        """Repeats a row for the whole batch, `[batch, length]`."""
        return tf.tile(row[tf.newaxis], [sizes.batch, 1])

    side_inputs = feature_utils.make_global_local_transformer_side_inputs(
        long_breakpoints=repeat(
            tf.one_hot(num_tokens - 1, sizes.long_length, dtype=tf.int32)
        ),
        global_breakpoints=repeat(
            tf.one_hot(num_sentences - 1, sizes.global_length, dtype=tf.int32)
        ),
        sentence_ids=repeat(sentence_ids),
        local_radius=sizes.radius,
        relative_pos_max_distance=sizes.relative_pos_max_distance,
        materialize=kind != "specs",
    )
    return side_inputs.to_dict()


def compile_step(
    case: Case,
    function: Callable[..., Sequence[tf.Tensor]],
    shapes: Sequence[tuple[int, ...]],
    layer: tf.keras.layers.Layer,
) -> measure.Step:
    """Compiles a step of a function of random inputs.

    Args:
        case: the case.
        function: function whose outputs have the shapes of its first inputs.
        shapes: shapes of the inputs.
        layer: layer whose weights get gradients.

    Returns:
        The step. In a forward pass, it returns the outputs. In training, it
        returns the weighted sum of all outputs, and the gradients of this sum
        for all inputs and weights.
    """
    inputs = [tf.cast(tf.random.normal(x), case.compute_dtype) for x in shapes]
    if case.pass_name == "forward":
        step = function
    else:
        weights = measure.trainable_variables(layer)

        def step(*inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = function(*inputs)
                # The random inputs also serve as weights of the sum.
                loss = tf.add_n(
                    [
                        tf.reduce_sum(output * tf.stop_gradient(constant))
                        for output, constant in zip(
                            outputs, inputs, strict=False
                        )
                    ]
                )
            return loss, tape.gradient(loss, [*inputs, *weights])

    compiled = tf.function(step, jit_compile=case.mode == "xla")
    if case.implementation != _RECIPE:
        return lambda: compiled(*inputs)

    def run():
        with appendix_a.replaces_sparse():
            return compiled(*inputs)

    return run


def stored_gigabytes(case: Case) -> float:
    """Estimates the memory of the long queries' scores, in 10^9 bytes."""
    sizes = case.sizes
    block = sizes.radius + 1
    blocked = sizes.num_blocks * block * (3 * block + sizes.global_length)
    full = sizes.long_length * (sizes.long_length + sizes.global_length)
    scores = {"streaming": 0, "full": full}.get(case.implementation, blocked)
    arrays = _SCORE_ARRAYS[case.pass_name]
    return 4e-9 * arrays * sizes.batch * sizes.heads * scores


def make_cases(
    benchmark: program.Program, values: flags.FlagValues
) -> list[Case]:
    """Makes a case for each combination of flags; groups are contiguous."""
    names = {field.name for field in dataclasses.fields(gemm_floor.Sizes)}
    sizes = {name: values[name].value for name in names - {"long_length"}}
    cases = {}
    for chosen in program.combinations(benchmark, values):
        recipe = chosen["implementations"] == _RECIPE
        case = Case(
            chosen["implementations"],
            "tensors" if recipe else chosen["inputs"],
            chosen["modes"],
            chosen["dtypes"],
            chosen["passes"],
            gemm_floor.Sizes(long_length=int(chosen["lengths"]), **sizes),
            dropout=values.dropout,
            preset=values.preset,
        )
        cases[case] = None
    return list(cases)


def make_program(
    name: str,
    make_step: Callable[[Case], measure.Step],
    make_products: Callable[[Case], list[gemm_floor.Product]],
) -> program.Program:
    """Creates a benchmark that measures cases.

    Args:
        name: name of the benchmark.
        make_step: returns the step of a case; must be picklable.
        make_products: returns the matrix products of a case's forward pass.
    """
    made = program.load(
        name, lambda values: _measure(make_step, make_products, made, values)
    )
    return made


def _measure(
    make_step, make_products, benchmark, values
) -> Iterator[program.Line]:
    # Hides TensorFlow's warnings about repeated tracing.
    tf.get_logger().setLevel("ERROR")
    measure.prepare_devices()
    cases = make_cases(benchmark, values)
    skipped = {}
    for case in cases:
        size = stored_gigabytes(case)
        if size > values.memory_limit_gb:
            skipped[case] = f"its scores take about {size:.0f} GB"
    for _, members in itertools.groupby(cases, lambda case: case.group):
        members = list(members)
        products = make_products(members[0])
        yield from _measure_group(
            make_step, products, members, values.repeats, skipped
        )


@contextlib.contextmanager
def _skipping(case, skipped):
    """Adds a case that cannot run to `skipped`, and suppresses its error."""
    try:
        yield
    except ValueError as error:
        # Skips only the error for an implementation that the layer lacks.
        name = f"att_implementation is {case.implementation!r}"
        if name not in str(error):
            raise
        skipped[case] = f"there is no att_implementation {case.implementation}"
    except (tf.errors.ResourceExhaustedError, futures.BrokenExecutor):
        skipped[case] = "out of memory"


def _measure_group(make_step, products, cases, repeats, skipped):
    """Measures a group of cases in turns; yields its floor and its cases."""
    floor = gemm_floor.Floor(
        products, cases[0].compute_dtype, cases[0].pass_name == "train"
    )
    for step in floor.steps.values():
        measure.warm_up(step)
    milliseconds = collections.defaultdict(list)
    results = {}
    for start in range(0, len(cases), _MAX_PROCESSES):
        members = cases[start : start + _MAX_PROCESSES]
        times = _measure_in_turns(
            make_step, members, repeats, floor.steps, results, skipped
        )
        for name in floor.steps:
            milliseconds[name] += times[name]
    floors = floor.evaluate(milliseconds)
    for mode, result in floors.items():
        changes = dict(implementation="floor", inputs=None)
        yield _line(cases[0]) | changes | {"mode": mode} | result
    lowest = min(result["median_ms"] for result in floors.values())
    for case in cases:
        if case in skipped:
            yield _line(case) | {"skipped": skipped[case]}
            continue
        median = results[case]["median_ms"]
        yield _line(case) | {
            "repeats": repeats,
            "ratio_to_floor": median / floors[case.mode]["median_ms"],
            "ratio_to_best_floor": median / lowest,
            **results[case],
        }


def _measure_in_turns(make_step, cases, repeats, steps, results, skipped):
    """Adds the cases' results to `results`; returns times of all steps."""
    processes = {}
    with contextlib.ExitStack() as stack:
        for case in cases:
            if case in skipped:
                continue
            told = (case.implementation, case.mode, *case.group)
            print(*told, file=sys.stderr, flush=True)
            with _skipping(case, skipped):
                processes[case] = measure.StepProcess(make_step, case)
                stack.callback(processes[case].close)
        milliseconds = measure.time_interleaved({**steps, **processes}, repeats)
        for case, process in processes.items():
            quartiles = np.percentile(milliseconds[case], [25, 50, 75])
            results[case] = {
                **dict(
                    zip(("q1_ms", "median_ms", "q3_ms"), quartiles, strict=True)
                ),
                "warm_up_s": process.warm_up_seconds,
                "peak_mb": process.peak_megabytes(),
            }
        return milliseconds


def _line(case):
    """Returns the conditions of a case as fields of an output line."""
    line = dataclasses.asdict(case)
    sizes = line.pop("sizes")
    line["pass"] = line.pop("pass_name")
    return {**line, "length": sizes.pop("long_length"), **sizes}
