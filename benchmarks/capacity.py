r"""Measures time and memory of a training step on long texts.

The results show the longest text that fits into memory. The step trains the
whole encoder (embeddings, all layers, gradients of all weights, plain
stochastic gradient descent) with gradient checkpointing:

    python -m benchmarks.capacity --lengths=8192,65536

The loss is a fixed function of the outputs, because the head of a task is
small. Each length runs in a new process. Columns are the seconds of the step,
the peak of the process's resident memory, and its memory before the step
(weights, inputs, libraries).
"""

import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks import program
from etcmodel import models

_SENTENCE_LENGTH = 27


def make_step(
    config: models.EtcConfig, long_length: int, global_length: int
) -> Callable[[], tf.Tensor]:
    """Returns a training step of a new model on a row of text.

    The step updates the weights and returns the loss, `<float32>[]`.
    """
    encoder = models.build_encoder(
        config, long_length=long_length, global_length=global_length
    )
    features = {
        name: tf.constant(value[np.newaxis], tf.int32)
        for name, value in make_features(
            config.vocab_size, long_length, global_length
        ).items()
    }
    weights = measure.trainable_variables(encoder)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outputs = encoder(features, training=True)
            loss = tf.add_n(
                [tf.reduce_mean(tf.square(x - 0.5)) for x in outputs.values()]
            )
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                weight.scatter_sub(
                    tf.IndexedSlices(1e-3 * gradient.values, gradient.indices)
                )
            else:
                weight.assign_sub(1e-3 * gradient)
        return loss

    return step


def make_features(
    vocab_size: int, long_length: int, global_length: int
) -> dict[str, np.ndarray]:
    """Makes random text in sentences, each with a global token."""
    # Sentences are longer if there are too few global tokens.
    size = max(_SENTENCE_LENGTH, -(-long_length // global_length))
    sentence_ids = np.arange(long_length) // size
    num_sentences = sentence_ids[-1] + 1
    last_long = np.zeros(long_length, np.int32)
    last_long[-1] = 1
    last_global = np.zeros(global_length, np.int32)
    last_global[num_sentences - 1] = 1
    tokens = np.random.default_rng(0).integers(1, vocab_size, long_length)
    return {
        "long_token_ids": tokens,
        "long_breakpoints": last_long,
        "sentence_ids": sentence_ids,
        "global_token_ids": (np.arange(global_length) < num_sentences) * 1,
        "global_breakpoints": last_global,
    }


def measure_step(
    preset: str,
    overrides: dict[str, Any],
    long_length: int,
    global_length: int,
) -> program.Line:
    """Measures a step for one length in this process."""
    config = models.EtcConfig.from_preset(preset, **overrides)
    step = make_step(config, long_length, global_length)
    before = measure.status_bytes("VmRSS")
    start = time.perf_counter()
    loss = float(step())
    return {
        "preset": preset,
        **overrides,
        "length": long_length,
        "global_length": global_length,
        "seconds": time.perf_counter() - start,
        "peak_gb": measure.status_bytes("VmHWM") / 1e9,
        "before_gb": before / 1e9,
        "loss": loss,
    }


def _measure(values) -> Iterator[program.Line]:
    overrides = {"grad_checkpointing_period": values.grad_checkpointing_period}
    for length in map(int, values.lengths):
        yield measure.in_fresh_process(
            *(measure_step, values.preset, overrides, length),
            values.global_length,
        )


PROGRAM = program.load("capacity", _measure)

if __name__ == "__main__":
    program.main(PROGRAM)
