import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import dense_layers
from etcmodel.layers import dense_rows
from etcmodel.layers import keras_compat
from etcmodel.layers import lora

_GENERATOR = np.random.default_rng(1)


def _normal(*shape):
    return _GENERATOR.normal(size=shape).astype(np.float32)


def _make(units, size, **options):
    layer = tf.keras.layers.Dense(units, **options)
    layer.build([None, size])
    layer.bias.assign(_normal(units))
    return layer


def _set(layer, rank=2):
    """Enables LoRA; returns kernel, bias and new factors as arrays."""
    kernel, bias = layer.kernel.numpy(), layer.bias.numpy()
    lora.enable(layer, rank)
    size, units = kernel.shape
    a, b = _normal(size, rank), _normal(rank, units)
    layer.lora_kernel_a.assign(a)
    layer.lora_kernel_b.assign(b)
    return kernel, bias, a, b


@pytest.mark.both_kerases
class LoraTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_output_and_gradients(self, is_graph):
        layer = _make(3, 4)
        x, upstream = _normal(5, 4), _normal(5, 3)
        kernel, bias, a, b = _set(layer)

        def run(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                output = dense_rows.apply(layer, x)
            factors = layer.lora_kernel_a, layer.lora_kernel_b
            return output, tape.gradient(
                output, [x, *map(_variable, factors)], tf.constant(upstream)
            )

        run = tf.function(run) if is_graph else run
        output, (d_x, d_a, d_b) = run(tf.constant(x))
        self.assertAllClose(x @ (kernel + a @ b) + bias, output)
        # The full kernel's gradient, projected.
        d_kernel = x.T @ upstream
        self.assertAllClose(d_kernel @ b.T, d_a)
        self.assertAllClose(a.T @ d_kernel, d_b)
        self.assertAllClose(upstream @ (kernel + a @ b).T, d_x)

    def test_starts_unchanged_with_two_trained_weights(self):
        layer = _make(3, 4)
        x = _normal(5, 4)
        before = layer(x)
        lora.enable(layer, 2)
        self.assertAllEqual(before, dense_rows.apply(layer, tf.constant(x)))
        self.assertEqual(
            [(4, 2), (2, 3)], [tuple(v.shape) for v in layer.trainable_weights]
        )
        self.assertGreater(np.abs(layer.lora_kernel_a.numpy()).max(), 0)

    @parameterized.named_parameters(
        ("function", "relu", 2),
        ("layer", tf.keras.layers.ReLU(), 2),
        ("first_only", "relu", 1),
    )
    def test_dense_layers(self, activation, number):
        stack = dense_layers.DenseLayers([6, 3], activation=activation)
        stack.build([None, 4])
        updated = [
            _set(layer) if i < number else None
            for i, layer in enumerate(stack.layers)
        ]
        expected = x = _normal(5, 4)
        for i, (layer, values) in enumerate(
            zip(stack.layers, updated, strict=True)
        ):
            kernel, bias, a, b = values or (
                layer.kernel.numpy(),
                layer.bias.numpy(),
                np.zeros([6, 1]),
                np.zeros([1, 3]),
            )
            expected = np.maximum(expected, 0) if i else expected
            expected = expected @ (kernel + a @ b) + bias
        self.assertAllClose(expected, stack(tf.constant(x)))

    def test_bfloat16(self):
        layer = _make(3, 4, dtype="mixed_bfloat16")
        kernel, bias, a, b = _set(layer)
        x = _normal(5, 4)
        output = dense_rows.apply(layer, tf.constant(x))
        self.assertEqual(tf.bfloat16, output.dtype)
        self.assertEqual("float32", _variable(layer.lora_kernel_a).dtype)
        self.assertAllClose(
            x @ (kernel + a @ b) + bias, tf.cast(output, tf.float32), 0.1, 0.1
        )

    def test_errors(self):
        layer = _make(3, 4)
        with self.assertRaisesRegex(ValueError, "is 0, but must be at least 1"):
            lora.enable(layer, 0)
        lora.enable(layer, 1)
        with self.assertRaisesRegex(ValueError, "already has LoRA factors"):
            lora.enable(layer, 1)


def _variable(weight):
    """Returns the `tf.Variable` of a weight of Keras 2 or 3."""
    return weight.value if keras_compat.is_keras_3() else weight


if __name__ == "__main__":
    tf.test.main()
