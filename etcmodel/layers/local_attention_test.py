import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import local_attention
from etcmodel.ops import recompute
from testing import attention_cases

IMPLEMENTATIONS = ("full", "sparse", "streaming")


def make_call(seed, length, radius):
    """Returns random arguments of a call, as float32 and int32 tensors."""
    rng = np.random.default_rng(seed)
    inputs = attention_cases.make_inputs(rng, 2, length, 3, radius)
    return {
        name: tf.cast(x, tf.float32) if x.dtype == np.float64 else x
        for name, x in inputs.items()
    }


class DropoutTest(parameterized.TestCase, tf.test.TestCase):
    """Tests dropout with outputs that are linear in the values.

    The outputs equal the product of the values and their gradients if, and only
    if, both passes drop the same elements.
    """

    def make_step(self, layer, call, mode, training=True):
        values = ("values", "side_values")

        def step(queries, training=training):
            inputs = {**call, "queries": queries}
            floats = {name: inputs[name] for name in values}
            weights = tf.sin(tf.range(20.0))[:13, tf.newaxis, tf.newaxis]
            with tf.GradientTape() as tape:
                tape.watch(floats)

                def attend(queries, floats):
                    return layer(
                        **{**inputs, **floats, "queries": queries},
                        att_implementation="streaming",
                        training=training,
                    )

                if mode == "recomputed":
                    attend = recompute.recompute_grad(attend)
                output = attend(queries, floats)
                total = tf.reduce_sum(output * weights)
            gradients = tape.gradient(total, floats)
            linear = sum(
                tf.reduce_sum(gradients[name] * floats[name]) for name in values
            )
            return output, total, linear

        if mode == "eager":
            return step
        return tf.function(step, jit_compile=mode == "jit")

    def make_layer(self):
        layer = local_attention.QkvRelativeLocalAttention(
            3, 6, att_dropout_prob=0.5
        )
        layer.build((None, None, 2, attention_cases.SIZE))
        return layer

    @parameterized.parameters("eager", "jit", "recomputed")
    def test_both_passes_drop_the_same(self, mode):
        call = make_call(8, length=13, radius=3)
        layer = self.make_layer()
        with attention_cases.chunks_of(1, 4):
            step = self.make_step(layer, call, mode)
            first, *sums = step(call["queries"])
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
            second, *sums = step(call["queries"])
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
        self.assertNotAllClose(first, second)

    def test_training_as_a_tensor(self):
        call = make_call(9, length=13, radius=3)
        layer = self.make_layer()
        expected = layer(**call, att_implementation="streaming")
        with attention_cases.chunks_of(1, 4):
            step = self.make_step(layer, call, "graph")
            first, *sums = step(call["queries"], tf.constant(True))
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
            second, *_ = step(call["queries"], tf.constant(True))
            kept, *sums = step(call["queries"], tf.constant(False))
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
        self.assertNotAllClose(first, second)
        self.assertNotAllClose(first, expected)
        self.assertAllClose(kept, expected, 1e-5)

    def test_layer_inside_another_that_trains(self):
        call = make_call(10, length=13, radius=3)
        layer = self.make_layer()

        class Outer(tf.keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.inner = layer

            def call(self, queries, training=None):
                return self.inner(
                    **{**call, "queries": queries},
                    att_implementation="streaming",
                )

        outer = Outer()
        queries = call["queries"]
        self.assertAllEqual(outer(queries), outer(queries, training=False))
        first, second = (outer(queries, training=True) for _ in range(2))
        self.assertNotAllClose(first, second)


class QkvRelativeLocalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    def test_without_side_keys(self):
        call = make_call(1, length=9, radius=2)
        call = {k: v for k, v in call.items() if not k.startswith("side")}
        layer = local_attention.QkvRelativeLocalAttention(2, 6)
        full = layer(**call, att_implementation="full")
        for implementation in IMPLEMENTATIONS[1:]:
            self.assertAllClose(
                full, layer(**call, att_implementation=implementation), 1e-5
            )

    def test_the_band_is_kept_without_a_mask(self):
        length, radius = 6, 1
        layer = local_attention.QkvRelativeLocalAttention(radius)
        zeros = tf.zeros([1, length, 1, 2])
        values = tf.reshape(tf.eye(length), [1, length, 1, length])
        for implementation in IMPLEMENTATIONS:
            probs = layer(
                zeros, zeros, values, att_implementation=implementation
            )[0, :, 0]
            position = np.arange(length)
            near = np.abs(position[:, np.newaxis] - position) <= radius
            expected = near / near.sum(axis=-1, keepdims=True)
            self.assertAllClose(probs, expected)

    def test_errors_name_what_is_missing(self):
        call = make_call(3, length=5, radius=2)
        layer = local_attention.QkvRelativeLocalAttention(2, 6)
        for message, change in (
            ("side_values", {"side_values": None}),
            ("side_att_mask", {"side_keys": None, "side_values": None}),
            ("side_relative_att_ids", {"side_relative_att_ids": None}),
            ("dense.*sparse", {"att_implementation": "dense"}),
            (
                "\\[2, 5, 5\\], but.*2\\*local_radius",
                {"att_mask": tf.ones([2, 5, 7], tf.int32)},
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                layer(**call | change)
        with self.assertRaisesRegex(ValueError, "local_radius"):
            local_attention.QkvRelativeLocalAttention(0)


if __name__ == "__main__":
    tf.test.main()
