"""Checks of layers: gradients, dropout and recomputation."""

from unittest import mock

import numpy as np
import tensorflow as tf

from etcmodel.layers import residual_block
from etcmodel.ops import recompute
from etcmodel.ops.attention import memory_attention
from testing import attention_cases


def randomize(layer, seed=0, scale=1.0):
    """Sets all weights, even zero-initialized ones, to normal random values."""
    rng = np.random.default_rng(seed)
    layer.set_weights(
        [scale * rng.normal(size=w.shape) for w in layer.get_weights()]
    )


def check_gradients(test, layer, inputs, compute, expected):
    """Compares a layer's directional derivative with a reference, in float64.

    `compute` calls the layer on tensors. `expected` computes the output from
    arrays and the layer's current weights.
    """
    rng = np.random.default_rng(5)
    weights = layer.get_weights()
    points = [np.asarray(x, np.float64) for x in inputs]
    steps = [rng.normal(size=x.shape) for x in points]
    weight_steps = [rng.normal(size=w.shape) for w in weights]
    tensors = [tf.constant(x) for x in points]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = compute(*tensors)
        upstream = rng.normal(size=output.shape)
        loss = tf.reduce_sum(output * upstream)
    gradients = tape.gradient(loss, tensors + list(layer.trainable_weights))
    slope = sum(
        np.sum(np.array(tf.convert_to_tensor(g)) * step)
        for g, step in zip(gradients, steps + weight_steps, strict=True)
    )

    def loss_at(size):
        layer.set_weights(
            [w + size * s for w, s in zip(weights, weight_steps, strict=True)]
        )
        moved = [x + size * s for x, s in zip(points, steps, strict=True)]
        return np.sum(expected(*moved) * upstream)

    size = 1e-6
    expected_slope = (loss_at(size) - loss_at(-size)) / (2 * size)
    layer.set_weights(weights)
    test.assertAllClose(slope, expected_slope, rtol=1e-5, atol=1e-5)


def check_dropout(test, attend):
    """Checks dropout of 0.25 on 16 equal probabilities.

    `attend` maps `training` to the probabilities after dropout.
    """
    probs = np.array(attend(True))
    kept = probs != 0
    # The bounds are four standard deviations for 2,000 draws.
    test.assertGreater(kept.size, 2000)
    test.assertBetween(kept.mean(), 0.71, 0.79)
    test.assertAllClose(probs[kept], np.full(kept.sum(), 1 / 16 / 0.75))
    test.assertNotAllEqual(probs, attend(True))
    for training in (None, False):
        test.assertAllClose(attend(training), np.full(probs.shape, 1 / 16))
    # A recomputed function draws the same mask again, from its seed.
    outputs = []
    for is_recomputing in (False, True):
        with recompute.RecomputeContext(is_recomputing, tf.constant(3)):
            outputs.append(attend(True))
    test.assertAllEqual(*outputs)


def check_dropout_in_training_alone(test, call):
    """Checks that outputs differ between calls only in training."""
    for training in (None, False, True):
        first, second = (tf.nest.flatten(call(training)) for _ in range(2))
        for x, y in zip(first, second, strict=True):
            if training:
                test.assertNotAllClose(x, y)
            else:
                test.assertAllEqual(x, y)


def check_recomputed_chains(test, make_stack, call, blocks):
    """Checks how often a stack of two layers runs its blocks."""
    for period, training, num_runs in (
        (0, True, 2),
        (1, True, 3),
        (1, None, 3),
        (1, False, 2),
    ):
        stack = make_stack(grad_checkpointing_period=period)
        call(stack, training)
        with mock.patch.object(
            residual_block.ResidualBlock,
            "_normalize",
            autospec=True,
            side_effect=lambda block, streams, training: streams,
        ) as normalize:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(call(stack, training))
            tape.gradient(loss, stack.trainable_variables)
        test.assertEqual(blocks * num_runs, normalize.call_count)


def check_checkpointing(test, layer, streams, call, in_graph):
    """Compares gradients with and without recomputation, under dropout."""

    def step(*streams):
        with tf.GradientTape() as tape:
            tape.watch(streams)
            # In this context, dropout depends only on the seed.
            with recompute.RecomputeContext(False, tf.constant(5)):
                outputs = tf.nest.flatten(call(*streams))
            loss = sum(tf.reduce_sum(tf.sin(x)) for x in outputs)
        sources = [*streams, *layer.trainable_variables]
        gradients = tape.gradient(loss, sources)
        return [loss] + [
            tf.zeros_like(x) if g is None else g
            for g, x in zip(gradients, sources, strict=True)
        ]

    actual = (tf.function(step) if in_graph else step)(*streams)
    with mock.patch.object(
        recompute, "recompute_grad", side_effect=_without_recomputation
    ) as patched:
        expected = step(*streams)
    test.assertGreater(patched.call_count, 0)
    for a, b in zip(expected, actual, strict=True):
        test.assertAllClose(a, b, rtol=1e-3, atol=1e-4)
    test.assertNotAllEqual(tf.zeros_like(actual[1]), actual[1])


def _without_recomputation(f):
    """Replaces `recompute_grad`: keeps its dropout, but not the second run."""

    def call(*args):
        parent = recompute.get_recompute_context()
        context = recompute.RecomputeContext(False, recompute._make_seed(None))
        parent.children.append(context)
        with context:
            return f(*args)

    return call


def check_chunks(test, layer, call, expected, elements, sizes, number):
    """Checks a layer that attends to memories in chunks of a few examples.

    Args:
        test: the test case.
        layer: the layer.
        call: name -> array for the layer's arguments.
        expected: the layer's output.
        elements: number of attention scores per chunk.
        sizes: maps an array to its static shape in the graph.
        number: number of examples per chunk; None if it is not static.
    """
    specs = {name: tf.TensorSpec(sizes(x), x.dtype) for name, x in call.items()}
    with (
        attention_cases.chunks_of(elements),
        mock.patch.object(
            memory_attention,
            "attend",
            autospec=True,
            side_effect=memory_attention.attend,
        ) as attend,
    ):
        compute = tf.function(lambda x: layer(**x), input_signature=[specs])
        output = compute(call)
    test.assertAllClose(output, expected, 1e-9, 1e-9)
    test.assertEqual(
        specs["main_input"].shape.as_list(),
        compute.get_concrete_function().output_shapes.as_list(),
    )
    queries, *_ = attend.call_args.args
    test.assertEqual(queries.shape[0], number)
