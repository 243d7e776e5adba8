"""Tests streaming attention in the whole stack, with mask descriptions."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import transformer
from etcmodel.ops import attention
from etcmodel.ops import compilation
from testing import attention_cases as shared
from testing import compiled

BATCH, LONG, GLOBAL, HIDDEN = 2, 19, 4, 8


def make_layer():
    layer = transformer.GlobalLocalTransformerLayers(
        long_hidden_size=HIDDEN,
        global_hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        local_radius=3,
        relative_vocab_size=6,
        initializer_range=0.3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.1,
    )
    layer.build((None, None, HIDDEN))
    return layer


def make_streams():
    rng = np.random.default_rng(0)
    return [
        tf.constant(rng.standard_normal((BATCH, length, HIDDEN)), tf.float32)
        for length in (LONG, GLOBAL)
    ]


def describe():
    """Returns masks and labels; the last long token is padding.

    Every four long tokens form a segment, which has a global token.
    """
    position = tf.tile(tf.range(LONG)[tf.newaxis], [BATCH, 1])
    links = [position // 4]
    mask = attention.LongGlobalMask(
        tf.cast(position < LONG - 1, tf.int32),
        tf.ones([BATCH, GLOBAL], tf.int32),
        links,
        exempt_global=[[True] + [False] * (GLOBAL - 1)] * BATCH,
    )
    labels = attention.LongGlobalLabels([*links, position % 5], [5, 3], 4)
    return dict(
        l2l_att_mask=attention.SegmentMask(
            tf.where(position < LONG - 1, position // 4, -1)
        ),
        l2g_att_mask=mask,
        g2l_att_mask=mask,
        l2l_relative_att_ids=attention.DistanceLabels(
            [1] * 3 + [0] + [2, 3, 3]
        ),
        g2g_relative_att_ids=tf.zeros([BATCH, GLOBAL, GLOBAL], tf.int32),
        l2g_relative_att_ids=labels,
        g2l_relative_att_ids=labels,
        att_implementation="streaming",
    )


class StreamingTransformerTest(parameterized.TestCase, tf.test.TestCase):
    @pytest.mark.both_kerases
    def test_whole_training_step_compiles(self):
        layer = make_layer()
        optimizer = tf.keras.optimizers.SGD(0.05)
        optimizer.build(layer.trainable_variables)

        @tf.function(jit_compile=True)
        def step(*streams):
            with tf.GradientTape() as tape:
                outputs = layer(*streams, training=True, **describe())
                loss = sum(tf.reduce_mean(x[:, :, 0]) for x in outputs)
            gradients = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(
                zip(gradients, layer.trainable_variables, strict=True)
            )
            return loss

        streams = make_streams()
        # A chunk holds one block of long queries, or seven long keys of the
        # global queries.
        with shared.chunks_of(7 * BATCH * 2 * GLOBAL, 8):
            losses = [float(step(*streams)) for _ in range(6)]
        self.assertLess(sum(losses[3:]), sum(losses[:3]))
        self.assertEqual([], compiled.offenders(step, *streams))

    @parameterized.parameters(True, False)
    def test_pieces_are_compiled_unless_switched_off(self, is_on):
        layer = make_layer()

        @tf.function
        def apply(*streams):
            return layer(*streams, **describe())

        with (
            mock.patch.object(compilation, "MIN_ELEMENTS", 0),
            compilation.elementwise_jit(is_on),
        ):
            graph = apply.get_concrete_function(*make_streams()).graph
        is_compiled = "_XlaMustCompile" in str(graph.as_graph_def())
        self.assertEqual(is_on, is_compiled)


if __name__ == "__main__":
    tf.test.main()
