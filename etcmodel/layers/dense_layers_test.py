import math

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import activations
from etcmodel.layers.dense_layers import DenseLayers


class DenseLayersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ([2], [[-1.0, -1.0], [1.5, 1.5]]), ([3, 1], [[0.0], [4.5]])
    )
    def test_activation_between_layers_only(self, sizes, expected):
        inputs = tf.constant([[0.5, -1.5], [1.0, 0.5]])
        for use_bias in (True, False):  # All biases are zero.
            layer = DenseLayers(
                sizes, "relu", use_bias, kernel_initializer="ones"
            )
            self.assertAllClose(expected, layer(inputs))

    def test_names_and_weights(self):
        layer = DenseLayers([5, 3], bias_initializer="ones")
        layer.build((None, 2))
        self.assertEqual(["layer_0", "layer_1"], [x.name for x in layer.layers])
        shapes = [w.shape for w in layer.get_weights()]
        self.assertEqual([(2, 5), (5,), (5, 3), (3,)], shapes)
        self.assertAllEqual(np.ones(5), layer.get_weights()[1])
        no_bias = DenseLayers([5, 3], use_bias=False)
        no_bias.build((None, 2))
        self.assertLen(no_bias.get_weights(), 2)

    def test_kernels_differ(self):
        layer = DenseLayers(
            [4, 4],
            kernel_initializer=tf.keras.initializers.TruncatedNormal(),
        )
        layer.build((None, 4))
        first, _, second, _ = layer.get_weights()
        self.assertNotAllClose(first, second)

    @pytest.mark.both_kerases
    def test_which_gelu(self):
        x = np.linspace(-3.0, 3.0, 13)
        tanh = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        erf = np.array([math.erf(value / math.sqrt(2)) for value in x])
        for activation, expected in (
            ("gelu", 0.5 * x * (1 + tanh)),
            (activations.gelu, 0.5 * x * (1 + tanh)),
            (tf.keras.activations.gelu, 0.5 * x * (1 + erf)),
        ):
            layer = DenseLayers([1, 1], activation)
            again = DenseLayers.from_config(layer.get_config())
            self.assertEqual(layer.get_config(), again.get_config())
            for function in (layer.activation, again.activation):
                self.assertAllClose(
                    function(tf.constant(x)), expected, 1e-7, 1e-7
                )

    def test_errors(self):
        for sizes in ([0], [3, -1], []):
            with self.assertRaisesRegex(ValueError, "hidden_sizes"):
                DenseLayers(sizes)


if __name__ == "__main__":
    tf.test.main()
