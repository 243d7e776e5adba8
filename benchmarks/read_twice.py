r"""Measures time and memory of ReadTwice for documents of different lengths.

A batch is one document of 1, 2, 4, ... segments, with the same number of random
mentions in each segment. Runs of the whole model alternate with runs of its
first read:

    python -m benchmarks.read_twice --segments=1,8,64 --output=FOLDER

*   `us_per_token`: microseconds of the whole model per token;
*   `overhead`: additional time of the whole model, relative to its first read;
*   `peak_mb`: peak memory of a step of the whole model, without weights and
    inputs.

A training step computes gradients of all weights, with gradient checkpointing.
"""

import json
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks import program
from etcmodel import models


def make_batch(
    config: models.ReadTwiceConfig, segments: int, mentions: int
) -> dict[str, tf.Tensor]:
    """Makes a document of random tokens, with mentions of 1 to 3 tokens."""
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
    """Returns the step to measure, which runs a model on a document.

    Args:
        preset: preset of the model's configuration.
        overrides: attributes of the configuration to change.
        segments: number of segments.
        mentions: number of mentions per segment.
        pass_name: "forward", or "training" for the sum of all gradients.
        reads_twice: whether to run the memories and the second read.
        model: the model; by default a new one.
    """
    config = models.ReadTwiceConfig.from_preset(preset, **overrides)
    if model is None:
        model = models.ReadTwiceModel(config)
        model.build(None)
    batch = make_batch(config, segments, mentions)
    is_training = pass_name == "training"

    def read():
        output = model(**batch, training=is_training)
        # The graph does not compute the second read if it is not used.
        return output.final_hidden_states if reads_twice else output.first_read

    if not is_training:
        return tf.function(read)
    return measure.compile_gradients(
        # The loss is not the sum of the outputs, whose gradient is 0 because
        # outputs are normalized.
        lambda: tf.reduce_mean(tf.square(read() - 0.5) ** 2),
        model.trainable_variables,
    )


def _measure(values) -> Iterator[program.Line]:
    overrides = json.loads(values.overrides)
    pass_name = values["pass"].value
    if pass_name == "training":
        overrides.setdefault("grad_checkpointing_period", 1)
    config = models.ReadTwiceConfig.from_preset(values.preset, **overrides)
    for segments in map(int, values.segments):
        given = (values.preset, overrides, segments, values.mentions, pass_name)
        timed = measure.time_in_processes(
            make_step,
            {both: (*given, both) for both in (True, False)},
            values.repeats,
            untimed=0,
        )
        tokens = segments * config.max_seq_length
        first, both = timed[False].median, timed[True].median
        yield {
            "preset": values.preset,
            **overrides,
            "pass": pass_name,
            "mentions": values.mentions,
            "segments": segments,
            "tokens": tokens,
            "us_per_token": 1e3 * both / tokens,
            "first_read_us_per_token": 1e3 * first / tokens,
            "overhead": both / first - 1,
            "milliseconds": timed[True].milliseconds,
            "first_read_milliseconds": timed[False].milliseconds,
            "peak_mb": timed[True].peak_mb,
        }


PROGRAM = program.load("read_twice", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
