r"""What ReadTwice costs, and how that grows with the length of documents.

One document of 1, 2, 4, ... segments is a batch, with as many random mentions
in each segment. Measured are the whole model and, in turns with it, its first
read alone:

    python -m benchmarks.read_twice --segments=1,8,64 --output=lines.jsonl

*   `us_per_token`: microseconds of the whole model, by token;
*   `overhead`: how much longer it takes than the first read alone;
*   `peak_mb`: what a step of the whole model takes on top of weights and
    inputs, in the process where it is timed.

A training step has gradients of all weights, and gradient checkpointing.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import measure
from benchmarks import program
from etcmodel import models

_PASSES = ("forward", "training")
_COLUMNS = {
    "segments": "d",
    "tokens": "d",
    "us_per_token": ".1f",
    "first_read_us_per_token": ".1f",
    "overhead": ".1%",
    "peak_mb": ".0f",
}


def make_batch(
    config: models.ReadTwiceConfig, segments: int, mentions: int
) -> dict[str, tf.Tensor]:
    """One document of random tokens and mentions of one to three of them.

    Args:
        config: of the model.
        segments: number of segments, each as long as can be.
        mentions: number of mentions in each.

    Returns:
        Arguments of `ReadTwiceModel`.
    """
    rng = np.random.default_rng(0)
    length = config.max_seq_length
    begins = np.sort(rng.integers(1, length - 2, [segments, mentions]), axis=1)
    batch = {
        "token_ids": rng.integers(1, config.vocab_size, [segments, length]),
        "block_ids": np.ones(segments),
        "block_pos": np.arange(1, segments + 1),
        "annotation_begins": begins,
        "annotation_ends": begins + rng.integers(0, 3, begins.shape),
        "annotation_labels": rng.integers(2, 100, begins.shape),
    }
    return {name: tf.constant(x, tf.int32) for name, x in batch.items()}


def make_step(
    preset: str,
    overrides: dict[str, Any],
    segments: int,
    mentions: int,
    pass_name: str,
    reads_twice: bool = True,
    model: models.ReadTwiceModel | None = None,
) -> Callable[[], tf.Tensor]:
    """Makes a model, a document and what is to be measured.

    Args:
        preset: name of the configuration.
        overrides: attributes of it to change.
        segments: number of segments.
        mentions: number of mentions in each.
        pass_name: "forward" or "training".
        reads_twice: whether there are memories and a second read.
        model: the model, if there is one already.

    Returns:
        A function that returns hidden states, or the sum of all gradients.
    """
    config = models.ReadTwiceConfig.from_preset(preset, **overrides)
    if model is None:
        model = models.ReadTwiceModel(config)
        model.build(None)
    batch = make_batch(config, segments, mentions)
    is_training = pass_name == "training"

    def read():
        output = model(**batch, training=is_training)
        # What is not used is not calculated.
        return output.final_hidden_states if reads_twice else output.first_read

    @tf.function
    def step():
        if not is_training:
            return read()
        with tf.GradientTape() as tape:
            # Normalized outputs have a sum of zero gradients.
            loss = tf.reduce_mean(tf.square(read() - 0.5) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        return tf.add_n(
            [
                tf.reduce_sum(tf.convert_to_tensor(x))
                for x in gradients
                if x is not None
            ]
        )

    return step


def measure_segments(
    values: flags.FlagValues, config: models.ReadTwiceConfig, segments: int
) -> dict[str, Any]:
    """Measures one length.

    Args:
        values: the flags.
        config: that of the model.
        segments: number of segments.

    Returns:
        The line.
    """
    overrides = json.loads(values.overrides)
    arguments = (
        values.preset,
        overrides,
        segments,
        values.mentions,
        values["pass"].value,
    )
    steps = {
        reads_twice: measure.StepProcess(make_step, *arguments, reads_twice)
        for reads_twice in (True, False)
    }
    times = measure.time_interleaved(steps, values.repeats, untimed=0)
    peak = steps[True].peak_megabytes()
    for step in steps.values():
        step.close()
    tokens = segments * config.max_seq_length
    first, both = (np.median(times[x]) for x in (False, True))
    line = {
        "benchmark": "read_twice",
        "preset": values.preset,
        **overrides,
        "pass": values["pass"].value,
        "mentions": values.mentions,
        "segments": segments,
        "tokens": tokens,
        "us_per_token": 1e3 * both / tokens,
        "first_read_us_per_token": 1e3 * first / tokens,
        "overhead": both / first - 1,
        "milliseconds": times[True],
        "first_read_milliseconds": times[False],
        "peak_mb": peak,
        **measure.environment(),
    }
    return line


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    flags.DEFINE_list(
        "segments",
        ["1", "2", "4", "8", "16", "32", "64", "128"],
        "Segments of the document.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "preset",
        "base",
        "Name of the configuration.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "overrides",
        "{}",
        "Attributes of the configuration to change, as JSON.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "mentions", 32, "Mentions in a segment.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "repeats", 3, "How often each is timed.", flag_values=flag_values
    )
    flags.DEFINE_enum(
        "pass", "forward", _PASSES, "What is measured.", flag_values=flag_values
    )
    flags.DEFINE_string(
        "output", None, "File for JSON lines.", flag_values=flag_values
    )


def run(values: flags.FlagValues) -> list[dict[str, Any]]:
    """Measures all lengths and prints a table.

    Args:
        values: the flags.

    Returns:
        The lines.
    """
    overrides = json.loads(values.overrides)
    if values["pass"].value == "training":
        overrides.setdefault("grad_checkpointing_period", 1)
        values.overrides = json.dumps(overrides)
    config = models.ReadTwiceConfig.from_preset(values.preset, **overrides)
    lines = []
    for segments in values.segments:
        lines.append(measure_segments(values, config, int(segments)))
        print(json.dumps(lines[-1]), flush=True)
    print(measure.format_table(lines, _COLUMNS))
    if values.output:
        measure.write_lines(values.output, lines)
    return lines


def main(argv):
    """Runs the program."""
    program.check_no_arguments(argv)
    run(flags.FLAGS)


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    app.run(main)
