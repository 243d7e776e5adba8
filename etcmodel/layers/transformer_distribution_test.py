"""Tests training on two replicas (two logical CPU devices)."""

import numpy as np
import pytest
import tensorflow as tf

from etcmodel.layers import transformer
from etcmodel.ops import attention
from testing.helpers import call_in_fresh_process
from testing.helpers import two_device_strategy


class DistributionTest(tf.test.TestCase):
    @pytest.mark.both_kerases
    def test_mirrored_strategy(self):
        call_in_fresh_process(_train_on_two_replicas)


def _train_on_two_replicas():
    strategy = two_device_strategy()
    with strategy.scope():
        layer = transformer.GlobalLocalTransformerLayers(
            8,
            8,
            num_hidden_layers=2,
            num_attention_heads=2,
            local_radius=2,
            relative_vocab_size=3,
            hidden_dropout_prob=0.5,
            grad_checkpointing_period=1,
        )
        layer.build((None, None, 8))
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build(layer.trainable_variables)
    rng = np.random.default_rng(0)
    streams = [
        tf.constant(rng.normal(size=[1, length, 8]), tf.float32)
        for length in (9, 3)
    ]

    def replica_step():
        with tf.GradientTape() as tape:
            outputs = layer(
                *streams,
                l2l_att_mask=attention.SegmentMask([[0] * 4 + [1] * 5]),
                l2l_relative_att_ids=attention.DistanceLabels([1, 1, 0, 2, 2]),
                l2g_relative_att_ids=tf.zeros([1, 9, 3], tf.int32),
                att_implementation="streaming",
                training=True,
            )
            # The mean of the outputs would always be 0, since they are
            # normalized.
            loss = sum(tf.reduce_mean(x * x[..., ::-1]) for x in outputs)
        variables = layer.trainable_variables
        gradients = [
            tf.zeros_like(v) if g is None else g
            for g, v in zip(
                tape.gradient(loss, variables), variables, strict=True
            )
        ]
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    @tf.function
    def step():
        return strategy.experimental_local_results(strategy.run(replica_step))

    before = layer.get_weights()
    for _ in range(2):
        # The inputs are equal, but each replica drops different elements.
        first, second = step()
        assert first != second, first
    kernel = layer.fused_att_layers[0].inner_layer.long_query_projection
    kernel = kernel.linear.kernel
    kernel = kernel if hasattr(kernel, "values") else kernel.value
    first, second = strategy.experimental_local_results(kernel)
    np.testing.assert_array_equal(first, second)
    assert np.any(before[0] != layer.get_weights()[0])


if __name__ == "__main__":
    tf.test.main()
