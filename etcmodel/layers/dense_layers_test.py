import math
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import activations
from etcmodel.layers.dense_layers import DenseLayers
from etcmodel.ops import feed_forward
from etcmodel.ops.attention import streaming


class DenseLayersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ([2], [[-1.0, -1.0], [1.5, 1.5]]), ([3, 1], [[0.0], [4.5]])
    )
    def test_activation_between_layers_only(self, sizes, expected):
        inputs = tf.constant([[0.5, -1.5], [1.0, 0.5]])
        for use_bias in (True, False):  # Biases are initialized to zero.
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

    @parameterized.parameters(None, False, True)
    def test_compilers_compute_activations_again(self, training):
        layer = DenseLayers([4, 3], "tanh")
        inputs = tf.ones([8, 2])
        layer(inputs)

        @tf.function(jit_compile=True)
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(tf.sin(layer(x, training=training)))
            return tape.gradient(loss, x)

        compiled = gradient.experimental_get_compiler_ir(inputs)
        text = compiled(stage="optimized_hlo")
        # The backward pass computes tanh again and keeps no tanh.
        self.assertEqual(2, text.count(" tanh("))

    def test_training_decides_what_is_kept(self):
        layer = DenseLayers([4, 3], "tanh")
        for training, keep in ((None, False), (False, False), (True, True)):
            with mock.patch.object(
                feed_forward, "apply", wraps=feed_forward.apply
            ) as apply:
                layer(tf.ones([8, 2]), training=training)
            self.assertEqual(keep, apply.call_args.kwargs["keep"])

    @pytest.mark.both_kerases
    def test_inputs_of_another_dtype(self):
        layer = DenseLayers([4, 3], "relu")
        expected = layer(tf.constant([[1.0, 2.0]]))
        for dtype in (tf.int32, tf.float64):
            output = layer(tf.constant([[1, 2]], dtype))
            self.assertEqual(tf.float32, output.dtype)
            self.assertAllClose(expected, output)

    @parameterized.parameters("float32", "mixed_bfloat16")
    def test_low_rank_weights_through_several_chunks(self, dtype):
        rng = np.random.default_rng(0)
        layer = DenseLayers([6, 3], "relu", dtype=dtype)
        layer.build((None, 4))
        for dense in layer.layers:
            dense.enable_lora(2)
        # Random weights: LoRA initializes its second factor to zeros.
        layer.set_weights(
            [rng.normal(size=x.shape) for x in layer.get_weights()]
        )
        weights = layer.trainable_variables
        inputs = rng.normal(size=[50, 4])

        def plain(x):
            for i, dense in enumerate(layer.layers):
                x = tf.nn.relu(x) if i else x
                bias, a, b = map(tf.convert_to_tensor, dense.trainable_weights)
                x = tf.matmul(x, dense._kernel.value + tf.matmul(a, b)) + bias
            return x

        results = []
        for function in (plain, lambda x: layer(x, training=True)):
            with (
                mock.patch.object(streaming, "CHUNK_ELEMENTS", 100),
                tf.GradientTape() as tape,
            ):
                output = function(tf.constant(inputs, tf.float32))
                loss = tf.reduce_sum(tf.cast(output, tf.float32) ** 2)
            results.append([output, *tape.gradient(loss, weights)])
        self.assertLen(weights, 6)
        for expected, result in zip(*results, strict=True):
            error = tf.norm(expected - tf.cast(result, tf.float32))
            # bfloat16 has 8 significant bits.
            tolerance = 1e-6 if dtype == "float32" else 0.03
            self.assertLess(error / tf.norm(expected), tolerance)

    def test_activation_without_gradient(self):
        layer = DenseLayers(
            [4, 3], lambda x: tf.cast(x > 0, x.dtype), bias_initializer="ones"
        )
        inputs = tf.ones([5, 2])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(inputs, training=True))
        gradients = tape.gradient(loss, layer.trainable_variables)
        self.assertAllEqual(tf.zeros([2, 4]), gradients[0])
        self.assertAllEqual(tf.fill([3], 5.0), gradients[3])

    @pytest.mark.both_kerases
    def test_inputs_of_another_width(self):
        layer = DenseLayers([4, 3], "relu")
        layer(tf.ones([5, 2]))
        for inputs in (tf.ones([5, 3]), tf.ones([2])):
            with self.assertRaisesRegex(ValueError, "dense_layers"):
                layer(inputs)

    def test_errors(self):
        for sizes in ([0], [3, -1], []):
            with self.assertRaisesRegex(ValueError, "hidden_sizes"):
                DenseLayers(sizes)


if __name__ == "__main__":
    tf.test.main()
