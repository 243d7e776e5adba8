"""Tests that a seed determines the training of a stack of layers."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import transformer
from etcmodel.ops import attention

SIZE, RADIUS, LABELS = 6, 2, 4


def make_stack(num_hidden_layers, **options):
    return transformer.GlobalLocalTransformerLayers(
        SIZE,
        SIZE,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=2,
        local_radius=RADIUS,
        long_intermediate_size=7,
        global_intermediate_size=7,
        relative_vocab_size=LABELS,
        **options,
    )


class ReproducibilityTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # Whether steps run in a graph, checkpointing period, implementation.
        (False, 0, "streaming"),
        (True, 0, "full"),
        (False, 1, "full"),
    )
    def test_the_same_seed_gives_the_same_training(
        self, in_graph, period, implementation
    ):
        rng = np.random.default_rng(0)
        streams = [
            tf.constant(rng.normal(size=[2, length, SIZE]), tf.float32)
            for length in (7, 3)
        ]
        labels = attention.DistanceLabels([1, 1, 0, 2, 2])
        l2g_labels = tf.ones([2, 7, 3], tf.int32)

        def train(seed):
            tf.keras.utils.set_random_seed(seed)
            # One layer more than the period: the last chain is not recomputed.
            stack = make_stack(
                1 + period,
                hidden_dropout_prob=0.3,
                attention_probs_dropout_prob=0.3,
                grad_checkpointing_period=period,
            )
            stack.build((None, None, SIZE))
            start = stack.get_weights()
            weights = stack.trainable_variables

            def step():
                with tf.GradientTape() as tape:
                    outputs = stack(
                        *streams,
                        l2l_relative_att_ids=labels,
                        l2g_relative_att_ids=l2g_labels,
                        att_implementation=implementation,
                        training=True,
                    )
                    loss = sum(tf.reduce_sum(tf.sin(x)) for x in outputs)
                for weight, gradient in zip(
                    weights, tape.gradient(loss, weights), strict=True
                ):
                    if gradient is not None:
                        weight.assign_sub(0.1 * gradient)
                return loss

            if in_graph:
                step = tf.function(step)
            losses = [float(step()) for _ in range(2)]
            return start, losses, stack.get_weights()

        first, second = train(1), train(1)
        for a, b in zip(
            tf.nest.flatten(first), tf.nest.flatten(second), strict=True
        ):
            self.assertAllEqual(a, b)
        self.assertNotAllClose(first[0][0], first[2][0])
        if not in_graph:
            self.assertNotEqual(first[1], train(2)[1])


if __name__ == "__main__":
    tf.test.main()
