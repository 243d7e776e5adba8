"""Training on two replicas, which are two logical CPU devices."""

import os
import subprocess
import sys

import numpy as np
import tensorflow as tf

from etcmodel import attention_specs
from etcmodel.layers import transformer


def _have_two_devices():
    """Makes two logical devices, which is too late once TensorFlow runs."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    except RuntimeError:
        pass
    return len(tf.config.list_logical_devices("CPU")) >= 2


class DistributionTest(tf.test.TestCase):
    def test_mirrored_strategy(self):
        if not _have_two_devices():
            environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
            path = os.pathsep.join(sys.path)
            result = subprocess.run(
                [sys.executable, __file__],
                env=dict(environment, PYTHONPATH=path),
                capture_output=True,
                text=True,
            )
            self.assertEqual(0, result.returncode, result.stderr[-4000:])
            return
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        self.assertEqual(2, strategy.num_replicas_in_sync)
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
        # The same example twice, one for each replica.
        streams = [
            tf.constant(
                np.repeat(rng.normal(size=[1, length, 8]), 2, axis=0),
                tf.float32,
            )
            for length in (9, 3)
        ]
        dataset = tf.data.Dataset.from_tensors(tuple(streams)).unbatch()
        dataset = dataset.batch(2, drop_remainder=True).repeat(3)

        def replica_step(inputs):
            long_input, global_input = inputs
            with tf.GradientTape() as tape:
                outputs = layer(
                    long_input,
                    global_input,
                    l2l_att_mask=attention_specs.SegmentMask(
                        [[0, 0, 0, 0, 1, 1, 1, 1, 1]]
                    ),
                    l2l_relative_att_ids=attention_specs.DistanceLabels(
                        [1, 1, 0, 2, 2]
                    ),
                    l2g_relative_att_ids=tf.zeros([1, 9, 3], tf.int32),
                    att_implementation="streaming",
                    training=True,
                )
                # Fixed factors: a mean would be 0, after a normalization.
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
        def step(inputs):
            return strategy.experimental_local_results(
                strategy.run(replica_step, args=(inputs,))
            )

        before = layer.get_weights()
        for inputs in strategy.experimental_distribute_dataset(dataset):
            losses = step(inputs)
            # Equal inputs, but each replica drops elements of its own.
            self.assertLen(losses, 2)
            self.assertNotAllClose(losses[0], losses[1])
        kernel = layer.fused_att_layers[0].inner_layer.long_query_projection
        kernel = kernel.linear.kernel
        kernel = kernel if hasattr(kernel, "values") else kernel.value
        first, second = strategy.experimental_local_results(kernel)
        self.assertAllEqual(first, second)
        self.assertNotAllEqual(before[0], layer.get_weights()[0])


if __name__ == "__main__":
    tf.test.main()
