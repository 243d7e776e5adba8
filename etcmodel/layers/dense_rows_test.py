import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import dense_rows


class Doubled(tf.keras.layers.Dense):
    def call(self, inputs):
        return 2 * super().call(inputs)


def make(layer, size=4):
    layer.build([None, size])
    layer.set_weights(
        [np.arange(float(w.size)).reshape(w.shape) for w in layer.get_weights()]
    )
    return layer


def called_functions(function):
    operations = function.get_concrete_function().graph.get_operations()
    return [x.get_attr("f").name for x in operations if "f" in x.node_def.attr]


class DenseRowsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_last_axes_are_rows(self, use_bias):
        layer = make(tf.keras.layers.Dense(6, use_bias=use_bias))
        kernel = np.arange(24.0).reshape(4, 6)
        bias = np.arange(6.0) if use_bias else 0
        x = np.arange(24.0).reshape(2, 3, 4)
        fn = tf.function(
            lambda x: (
                dense_rows.apply(layer, x),
                dense_rows.apply(layer, x, split=[3, 2]),
                dense_rows.apply(
                    layer, tf.reshape(x, [-1, 3, 2, 2]), row_rank=2
                ),
            ),
            input_signature=[tf.TensorSpec([None, 3, 4])],
        )
        for apply in (fn, fn.python_function):
            plain, split, joined = apply(tf.constant(x, tf.float32))
            self.assertAllClose(x @ kernel + bias, plain)
            self.assertAllClose((x @ kernel + bias).reshape(2, 3, 3, 2), split)
            self.assertAllClose(plain, joined)

    def test_layers_share_a_trace(self):
        first, second = (
            make(tf.keras.layers.Dense(6)),
            make(tf.keras.layers.Dense(6)),
        )
        second.set_weights([w + 1 for w in second.get_weights()])

        def apply(x):
            return dense_rows.apply(first, x), dense_rows.apply(second, x)

        fn = tf.function(apply, input_signature=[tf.TensorSpec([None, 4])])
        x = tf.ones([3, 4])
        self.assertAllClose(apply(x), fn(x))
        called = called_functions(fn)
        self.assertLen(called, 2)
        self.assertLen(set(called), 1)

    @parameterized.named_parameters(
        ("subclass", lambda: Doubled(6), lambda x: 2 * x),
        (
            "activation",
            lambda: tf.keras.layers.Dense(6, activation=lambda x: -x),
            lambda x: -x,
        ),
        (
            "other layer",
            lambda: tf.keras.layers.Rescaling(3.0),
            None,
        ),
    )
    def test_other_layers_are_called(self, make_layer, change):
        layer = make_layer()
        x = np.arange(8.0, dtype=np.float32).reshape(1, 2, 4)
        expected = 3 * x
        if change is not None:
            make(layer)
            product = x @ np.arange(24.0).reshape(4, 6) + np.arange(6.0)
            expected = change(product)
        self.assertAllClose(expected, dense_rows.apply(layer, tf.constant(x)))

    def test_low_rank_adaptation(self):
        layer = make(tf.keras.layers.Dense(6))
        if not hasattr(layer, "enable_lora"):
            self.skipTest("Only Keras 3 has LoRA.")
        layer.enable_lora(2)
        layer.lora_kernel_a.assign(np.ones([4, 2]))
        layer.lora_kernel_b.assign(np.ones([2, 6]))
        kernel = np.arange(24.0).reshape(4, 6) + 2
        fn = tf.function(lambda x: dense_rows.apply(layer, x))
        x = np.ones([1, 3, 4], np.float32)
        self.assertAllClose(x @ kernel + np.arange(6.0), fn(tf.constant(x)))


if __name__ == "__main__":
    tf.test.main()
