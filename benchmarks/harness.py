"""What the benchmarks of attention and of a layer have in common.

Cases (an implementation under one set of conditions), their inputs, the flags,
and the program: times in turns, held against the time of the matrix products
alone, and memory.

Each case has a process of its own. One that takes more memory than there is
ends its own process only.

The text fills 90 % of each row with sentences of 27 tokens, or longer ones
where there are too few global tokens for that. Each sentence has a global token
of its own.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import sys
from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

import tensorflow as tf
from absl import flags

from benchmarks import appendix_a
from benchmarks import gemm_floor
from benchmarks import measure
from benchmarks import program
from etcmodel import feature_utils

DTYPES = ("float32", "mixed_bfloat16")
PASSES = ("forward", "train")
INPUTS = ("specs", "tensors")
# Those that are not the package's; their masks and labels are always tensors.
RECIPES = {
    "appendix_a": appendix_a.blocked_attention,
    "dense": appendix_a.full_attention,
}

_SENTENCE_LENGTH = 27
# How many arrays of the size of the scores are alive at once, about: scores,
# those of the labels as gathered and as transposed, probabilities; and in a
# training step their gradients.
_SCORE_ARRAYS = {"forward": 4, "train": 8}

# How many processes there are at a time.
_MOST_PROCESSES = 6

_COLUMNS = {
    "implementation": "",
    "inputs": "",
    "mode": "",
    "allocator": "",
    "dtype": "",
    "pass": "",
    "length": "d",
    "median_ms": ".2f",
    "q1_ms": ".2f",
    "q3_ms": ".2f",
    "warm_up_s": ".2f",
    "peak_mb": ".0f",
    "ratio_to_floor": ".2f",
    "ratio_to_best_floor": ".2f",
    "gflop_per_s": ".1f",
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One implementation under one set of conditions.

    Attributes:
        implementation: a key of `RECIPES` or an `att_implementation`.
        inputs: one of `INPUTS`.
        mode: "graph" or "xla".
        dtype: one of `DTYPES`.
        pass_name: one of `PASSES`.
        sizes: sizes of the attention.
        dropout: rate of dropout in training steps.
        preset: of which `EtcConfig` a layer shares its weights.
        allocator: a key of `measure.ALLOCATORS`.
    """

    implementation: str
    inputs: str
    mode: str
    dtype: str
    pass_name: str
    sizes: gemm_floor.Sizes
    dropout: float = 0.0
    preset: str = "base"
    allocator: str = "default"

    @property
    def compute_dtype(self) -> str:
        """The dtype of activations."""
        return self.dtype.removeprefix("mixed_")

    @property
    def group(self) -> tuple[int, str, str]:
        """What cases must have in common to be timed in turns."""
        return self.sizes.long_length, self.dtype, self.pass_name


class Benchmark(NamedTuple):
    """What is measured.

    Attributes:
        name: of the benchmark.
        make_step: makes the step of a case; a function of a module.
        make_products: the matrix products of a case's forward pass.
    """

    name: str
    make_step: Callable[[Case], measure.Step]
    make_products: Callable[[Case], list[gemm_floor.Product]]


@functools.lru_cache(maxsize=len(INPUTS))
def make_side_inputs(kind: str, sizes: gemm_floor.Sizes) -> dict[str, Any]:
    """Masks and labels of text in sentences, with padding at the end.

    Args:
        kind: "tensors" for int32 tensors, "specs" for what describes them,
            where long tokens take part (see `etcmodel.ops.attention`). The
            ids in a description are inputs of the graph that uses it, no
            constants from which masks could be made in advance.
        sizes: sizes of the attention.

    Returns:
        Masks and labels by the names of the layer's arguments.
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
        """The same for the whole batch, `[batch, length]`."""
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


@functools.lru_cache(maxsize=1)
def make_inputs(
    shapes: tuple[tuple[int, ...], ...], dtype: str
) -> list[tf.Tensor]:
    """Random numbers, the same ones for all that are timed in turns."""
    return [tf.cast(tf.random.normal(shape), dtype) for shape in shapes]


def compile_step(
    case: Case,
    function: Callable[..., Sequence[tf.Tensor]],
    inputs: Sequence[tf.Tensor],
    layer: tf.keras.layers.Layer,
) -> measure.Step:
    """Makes a step.

    Args:
        case: what the step is for.
        function: takes the inputs; its outputs have the shapes of the first of
            them.
        inputs: arguments of the function.
        layer: holds the weights that the function uses.

    Returns:
        The step. It returns the outputs, or in training the sum of all outputs
        times constants, and the gradients for all inputs and weights.
    """
    if case.pass_name == "forward":
        step = function
    else:
        weights = [
            # Keras 3 wraps variables, Keras 2 does not.
            weight if isinstance(weight, tf.Variable) else weight.value
            for weight in layer.trainable_variables
        ]

        def step(*inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = function(*inputs)
                # The inputs are as random as any constants.
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
    return lambda: compiled(*inputs)


def stored_gigabytes(case: Case) -> float:
    """An estimate of what a case keeps of the long queries' scores.

    Args:
        case: the case.

    Returns:
        Gigabytes of 10^9 bytes; 0 for an implementation that stores none.
    """
    sizes = case.sizes
    block = sizes.radius + 1
    blocked = sizes.num_blocks * block * (3 * block + sizes.global_length)
    full = sizes.long_length * (sizes.long_length + sizes.global_length)
    scores = {"streaming": 0, "full": full, "dense": full}.get(
        case.implementation, blocked
    )
    arrays = _SCORE_ARRAYS[case.pass_name]
    return 4e-9 * arrays * sizes.batch * sizes.heads * scores


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    integers = {
        "global_length": (230, "Global tokens."),
        "heads": (12, "Attention heads."),
        "head_size": (64, "Size of each head."),
        "radius": (84, "Long tokens that a long token sees to each side."),
        "relative_vocab_size": (32, "Labels."),
        "relative_pos_max_distance": (12, "Distance that labels end at."),
        "batch": (1, "Rows."),
        "repeats": (7, "How often each step is timed."),
    }
    lists = {
        "lengths": ([str(512 << i) for i in range(8)], "Long tokens."),
        "implementations": (
            ["sparse", "streaming", "auto", *RECIPES],
            f"What to measure: {', '.join(RECIPES)}, or any of the package's.",
        ),
        "modes": (list(gemm_floor.MODES), "Without and with XLA."),
        "allocators": (
            ["default"],
            f"What allocators are told: {', '.join(measure.ALLOCATORS)}.",
        ),
        "dtypes": (list(DTYPES), "Dtype policies."),
        "passes": (list(PASSES), "Forward pass, or all gradients as well."),
        "inputs": (list(INPUTS), "Masks and labels described, or as tensors."),
    }
    floats = {
        "dropout": (0.0, "Rate of dropout in training steps."),
        "memory_limit_gb": (
            16.0,
            "Skip what is expected to store more scores than this.",
        ),
    }
    for define, definitions in (
        (flags.DEFINE_integer, integers),
        (flags.DEFINE_list, lists),
        (flags.DEFINE_float, floats),
    ):
        for name, (default, text) in definitions.items():
            define(name, default, text, flag_values=flag_values)
    flags.DEFINE_string(
        "output",
        None,
        "Folder for results.jsonl, table.txt and plot.png.",
        flag_values=flag_values,
    )


def make_cases(values: flags.FlagValues, **attributes: Any) -> list[Case]:
    """All cases that the flags ask for, those timed in turns together.

    Args:
        values: the parsed flags.
        **attributes: further ones of the cases.

    Returns:
        The cases.

    Raises:
        app.UsageError: a flag names what is not there.
    """
    program.check_choices(
        values,
        {
            "modes": gemm_floor.MODES,
            "dtypes": DTYPES,
            "passes": PASSES,
            "inputs": INPUTS,
            "allocators": measure.ALLOCATORS,
        },
    )
    names = {field.name for field in dataclasses.fields(gemm_floor.Sizes)}
    sizes = {name: values[name].value for name in names - {"long_length"}}
    cases = {}
    for (
        length,
        dtype,
        pass_name,
        implementation,
        inputs,
        mode,
        allocator,
    ) in itertools.product(
        map(int, values.lengths),
        values.dtypes,
        values.passes,
        values.implementations,
        values.inputs,
        values.modes,
        values.allocators,
    ):
        case = Case(
            implementation,
            "tensors" if implementation in RECIPES else inputs,
            mode,
            dtype,
            pass_name,
            gemm_floor.Sizes(long_length=length, **sizes),
            dropout=values.dropout,
            allocator=allocator,
            **attributes,
        )
        cases[case] = None
    return list(cases)


def main(argv: list[str], benchmark: Benchmark, **attributes: Any) -> None:
    """Runs a program whose flags are parsed.

    Args:
        argv: what the flags leave of the arguments.
        benchmark: what to measure.
        **attributes: further ones of the cases.

    Raises:
        app.UsageError: there are other arguments than flags.
    """
    program.check_no_arguments(argv)
    # Not a word about how many functions are traced.
    tf.get_logger().setLevel("ERROR")
    run(flags.FLAGS, benchmark, **attributes)


def run(
    values: flags.FlagValues, benchmark: Benchmark, **attributes: Any
) -> list[dict[str, Any]]:
    """Measures everything, prints it and writes the files.

    Args:
        values: the parsed flags.
        benchmark: what to measure.
        **attributes: further ones of the cases.

    Returns:
        The lines.
    """
    measure.prepare_devices()
    cases = make_cases(values, **attributes)
    skipped = {}
    for case in cases:
        size = stored_gigabytes(case)
        if size > values.memory_limit_gb:
            skipped[case] = f"its scores take about {size:.0f} GB"
    lines = []
    environment = measure.environment()
    for _, members in itertools.groupby(cases, lambda case: case.group):
        for line in _measure_group(
            benchmark, list(members), values.repeats, skipped
        ):
            lines.append({"benchmark": benchmark.name, **line, **environment})
            print(json.dumps(lines[-1]), flush=True)
    table = measure.format_table(lines, _COLUMNS)
    print(f"\n{table}", end="")
    if values.output:
        os.makedirs(values.output, exist_ok=True)
        path = functools.partial(os.path.join, values.output)
        measure.write_lines(path("results.jsonl"), lines)
        measure.write_text(path("table.txt"), table)
        title = (
            f"{benchmark.name}: {lines[0]['device']}, {lines[0]['cpu']}, "
            f"{lines[0]['cores']} cores"
        )
        measure.plot(path("plot.png"), title, lines)
    return lines


def _report(*what):
    """Says how far the program is."""
    print(*what, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _skipping(case, skipped):
    """Notes in `skipped` if a case turns out to be impossible."""
    try:
        yield
    except ValueError as error:
        # Only what the layer says of an implementation that it does not have.
        name = f"att_implementation is {case.implementation!r}"
        if name not in str(error):
            raise
        skipped[case] = f"there is no att_implementation {case.implementation}"
    except (tf.errors.ResourceExhaustedError, futures.BrokenExecutor):
        skipped[case] = "out of memory"


def _measure_group(benchmark, cases, repeats, skipped):
    """The lines of cases that are timed in turns, and of their floor."""
    products = benchmark.make_products(cases[0])
    if cases[0].pass_name == "train":
        products = gemm_floor.with_gradients(products)
    floor = gemm_floor.Floor(products, cases[0].compute_dtype)
    for step in floor.steps.values():
        measure.warm_up(step)
    milliseconds = collections.defaultdict(list)
    results = {}
    for start in range(0, len(cases), _MOST_PROCESSES):
        members = cases[start : start + _MOST_PROCESSES]
        times = _measure_in_turns(
            benchmark, members, repeats, floor.steps, results, skipped
        )
        for name in floor.steps:
            milliseconds[name] += times[name]
    floors = floor.evaluate(milliseconds)
    lines = [
        _line(
            cases[0],
            implementation="floor",
            inputs=None,
            allocator=None,
            mode=mode,
            **result,
        )
        for mode, result in floors.items()
    ]
    lowest = min(result["median_ms"] for result in floors.values())
    for case in cases:
        if case in skipped:
            lines.append(_line(case, skipped=skipped[case]))
            continue
        median = results[case]["median_ms"]
        lines.append(
            _line(
                case,
                repeats=repeats,
                ratio_to_floor=median / floors[case.mode]["median_ms"],
                ratio_to_best_floor=median / lowest,
                **results[case],
            )
        )
    return lines


def _measure_in_turns(benchmark, cases, repeats, steps, results, skipped):
    """Adds the cases' results, and returns all times, of `steps` as well."""
    processes = {}
    try:
        for case in cases:
            if case in skipped:
                continue
            _report(case.implementation, case.mode, *case.group)
            with _skipping(case, skipped):
                processes[case] = measure.StepProcess(
                    benchmark.make_step, case, allocator=case.allocator
                )
        milliseconds = measure.time_interleaved({**steps, **processes}, repeats)
        for case, process in processes.items():
            first, median, third = measure.quartiles(milliseconds[case])
            results[case] = {
                "median_ms": median,
                "q1_ms": first,
                "q3_ms": third,
                "warm_up_s": process.warm_up_seconds,
                "peak_mb": process.peak_megabytes(),
            }
        return milliseconds
    finally:
        for process in processes.values():
            process.close()


def _line(case, **fields):
    """One line; fields that are not given are None."""
    conditions = {
        "implementation": case.implementation,
        "inputs": case.inputs,
        "mode": case.mode,
        "allocator": case.allocator,
        "dtype": case.dtype,
        "pass": case.pass_name,
        "length": case.sizes.long_length,
        "global_length": case.sizes.global_length,
        "batch": case.sizes.batch,
        "heads": case.sizes.heads,
        "head_size": case.sizes.head_size,
        "radius": case.sizes.radius,
        "dropout": case.dropout,
        "preset": case.preset,
    }
    results = dict.fromkeys(
        [
            "median_ms",
            "q1_ms",
            "q3_ms",
            "repeats",
            "warm_up_s",
            "peak_mb",
            "ratio_to_floor",
            "ratio_to_best_floor",
            "gflop",
            "gflop_per_s",
            "products",
            "skipped",
        ]
    )
    return conditions | results | fields
