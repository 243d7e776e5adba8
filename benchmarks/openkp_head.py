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
import json
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app
from absl import flags

from benchmarks import measure
from etcmodel.models import EtcConfig
from etcmodel.tasks.openkp import model as openkp_model
from etcmodel.tasks.openkp.task import TASK

_COLUMNS = {
    "long_length": "d",
    "words": "d",
    "encoder_seconds": ".2f",
    "seconds": ".2f",
    "share": ".1%",
}


def make_features(long: int, global_: int, words: int) -> dict[str, tf.Tensor]:
    """A page of random tokens: as many nodes as can be, all of equal length.

    Args:
        long: length of the long input.
        global_: length of the global input.
        words: number of words, as equal as can be.

    Returns:
        Inputs of the model.
    """
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
    """Makes a step of a part of the model.

    Args:
        part: "encoder" or "head".
        preset: name of the configuration.
        long: length of the long input.
        global_: length of the global input.
        words: number of words.

    Returns:
        A function that returns the sum of all gradients.
    """
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

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = call()
            if part == "encoder":
                # Normalized outputs have a sum of zero gradients.
                loss = tf.add_n(
                    [tf.reduce_mean((x - 0.5) ** 4) for x in output.values()]
                )
            else:
                loss = openkp_model.phrase_losses(output, label, label + 1)
        return tf.add_n(
            [
                tf.reduce_sum(tf.convert_to_tensor(x))
                for x in tape.gradient(loss, [*weights, *inputs])
                if x is not None
            ]
        )

    return step


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the program.

    Args:
        flag_values: where to define them.
    """
    for name, value, text in (
        ("long_length", 4096, "Of the long input."),
        ("global_length", 512, "Of the global input."),
        ("words", 3600, "Words in it."),
        ("repeats", 3, "How often each is timed."),
    ):
        flags.DEFINE_integer(name, value, text, flag_values=flag_values)
    flags.DEFINE_string(
        "preset", "base", "Name of the configuration.", flag_values=flag_values
    )


def run(values: flags.FlagValues) -> dict[str, object]:
    """Measures both parts and prints the line.

    Args:
        values: the flags.

    Returns:
        The line.
    """
    sizes = (
        *(values.preset, values.long_length, values.global_length),
        values.words,
    )
    steps = {
        part: measure.StepProcess(make_step, part, *sizes)
        for part in ("encoder", "head")
    }
    times = measure.time_interleaved(steps, values.repeats, untimed=1)
    for step in steps.values():
        step.close()
    encoder, head = (np.median(times[x]) / 1e3 for x in ("encoder", "head"))
    line = {
        "benchmark": "openkp_head",
        "preset": values.preset,
        "long_length": values.long_length,
        "global_length": values.global_length,
        "words": values.words,
        "encoder_seconds": encoder,
        "seconds": head,
        "share": head / (encoder + head),
        **measure.environment(),
    }
    print(json.dumps(line))
    print(measure.format_table([line], _COLUMNS))
    return line


if __name__ == "__main__":
    define_flags(flags.FLAGS)
    app.run(lambda argv: run(flags.FLAGS) and None)
