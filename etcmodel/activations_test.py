import math

import numpy as np
import tensorflow as tf

from etcmodel import activations


class ActivationTest(tf.test.TestCase):
    def test_gelu_is_the_tanh_form(self):
        values = [-3.0, -1.0, -0.1, 0.0, 0.5, 2.0]
        expected = [
            0.5
            * x
            * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
            for x in values
        ]
        self.assertAllClose(
            expected, activations.gelu(tf.constant(values)), rtol=1e-6
        )

    def test_gelu_is_finite_in_half_precision(self):
        for dtype in (tf.float16, tf.bfloat16):
            x = tf.constant([-30000.0, -100.0, 100.0, 30000.0], dtype)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = activations.gelu(x)
            self.assertEqual(dtype, y.dtype)
            self.assertAllEqual(tf.nn.relu(x), y)
            self.assertAllEqual([0, 0, 1, 1], tape.gradient(y, x))

    def test_get_activation(self):
        get = activations.get_activation
        self.assertIs(activations.gelu, get("GELU"))
        self.assertIsNone(get(""))
        self.assertIsNone(get("Linear"))
        self.assertIsNone(get(None))
        self.assertIs(math.sin, get(math.sin))
        self.assertAllEqual([0, 2], get("relu")(tf.constant([-1.0, 2.0])))
        self.assertAllClose([np.tanh(2)], get("tanh")(tf.constant([2.0])))
        with self.assertRaisesRegex(ValueError, "'swishy'"):
            get("swishy")


if __name__ == "__main__":
    tf.test.main()
