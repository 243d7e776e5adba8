r"""What OpenKP's head costs, next to the encoder.

A training step of one page, of the paper's size by default, with random tokens:
in turns the encoder alone, with visual features, and the head alone, which has
a logit for every phrase. On several replicas each has its pages, and nothing is
exchanged but the gradients of the weights.

    python -m benchmarks.openkp_head --words=3600

*   `seconds`: the head's;
*   `share`: of the sum of both.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks import measure
from benchmarks import program
from etcmodel.models import EtcConfig
from etcmodel.tasks.openkp import model as openkp_model
from etcmodel.tasks.openkp.task import TASK


def make_features(long: int, global_: int, words: int) -> dict[str, tf.Tensor]:
    """Makes a page of random tokens, whose nodes and words are equally long."""
    rng = np.random.default_rng(0)
    position = np.arange(long)
    is_last = (position == long - 1).astype(np.int32)
    features = {
        "long_token_ids": rng.integers(100, 1000, long),
        "long_token_type_ids": np.ones(long),
        "long_sentence_ids": position * global_ // long,
        "long_paragraph_ids": np.full(long, -1),
        "long_paragraph_breakpoints": is_last,
        "l2g_linked_ids": np.full(long, -1),
        "global_token_ids": np.ones(global_),
        "global_token_type_ids": np.zeros(global_),
        "global_paragraph_breakpoints": np.arange(global_) == global_ - 1,
        "words": 1 + position * words // long,
    }
    return {
        **{
            x: tf.constant(y[np.newaxis], tf.int32) for x, y in features.items()
        },
        "visual": tf.constant(rng.integers(0, 2, [1, global_, 20]), tf.float32),
    }


def make_step(
    part: str, preset: str, long: int, global_: int, words: int
) -> Callable[[], tf.Tensor]:
    """Makes a step of "encoder" or "head": the sum of all gradients."""
    config = EtcConfig.from_preset(preset, use_hard_g2l_mask=True)
    features = make_features(long, global_, words)
    model = TASK.make_model().build(
        config, long_length=long, global_length=global_
    )
    if part == "encoder":
        encoder = model.get_layer("etc_encoder")
        given = {name: features[name] for name in encoder.input}
        call = functools.partial(encoder, given, training=True)
        weights, inputs = encoder.trainable_variables, []
    else:
        head = model.get_layer("output_layer")
        inputs = [tf.random.normal([1, long, config.hidden_size])]
        call = functools.partial(head, inputs[0], features["words"])
        weights = head.trainable_variables
    label = tf.constant([[0]])

    def compute_loss():
        output = call()
        if part == "head":
            return openkp_model.phrase_losses(output, label, label + 1)
        # Normalized outputs have a sum of zero gradients.
        return tf.add_n(
            [tf.reduce_mean((x - 0.5) ** 4) for x in output.values()]
        )

    return measure.compile_gradients(compute_loss, weights, inputs)


def _measure(values) -> Iterator[program.Line]:
    sizes = {
        name: values[name].value
        for name in ("preset", "long_length", "global_length", "words")
    }
    timed = measure.time_in_processes(
        make_step,
        {part: (part, *sizes.values()) for part in ("encoder", "head")},
        values.repeats,
        untimed=1,
    )
    encoder, head = (timed[x].median / 1e3 for x in ("encoder", "head"))
    yield {
        **sizes,
        "encoder_seconds": encoder,
        "seconds": head,
        "share": head / (encoder + head),
    }


PROGRAM = program.Program(
    "openkp_head",
    {
        "preset": ("base", "Name of the configuration."),
        "long_length": (4096, "Of the long input."),
        "global_length": (512, "Of the global input."),
        "words": (3600, "Words in it."),
        "repeats": (3, "How often each is timed."),
    },
    program.read_columns(
        "long_length:d words:d encoder_seconds:.2f seconds:.2f share:.1%"
    ),
    _measure,
)

if __name__ == "__main__":
    program.main(PROGRAM)
