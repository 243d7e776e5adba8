import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import normalization
from etcmodel.ops import compilation

SIZE = 6


def make_layers(rank=3, epsilon=1e-3, **options):
    """Builds this layer and Keras's layer for a rank, with equal weights."""
    layers = [
        make(epsilon=epsilon, **options)
        for make in (
            normalization.LayerNormalization,
            tf.keras.layers.LayerNormalization,
        )
    ]
    rng = np.random.default_rng(0)
    for layer in layers:
        layer.build((None,) * (rank - 1) + (SIZE,))
    weights = [rng.standard_normal(w.shape) for w in layers[0].get_weights()]
    for layer in layers:
        layer.set_weights(weights)
    return layers


def run(layer, x, upstream):
    """Returns the output, and gradients of the input and all weights."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x)
    return [
        output,
        *tape.gradient(
            output,
            [x, *layer.trainable_variables],
            tf.cast(upstream, output.dtype),
        ),
    ]


def reference(x, gamma, beta, epsilon):
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return centred / deviation * gamma + beta


class _Model(tf.keras.Model):
    def __init__(self, make_layer):
        super().__init__()
        self.norm = make_layer(epsilon=1e-3, name="norm")

    def call(self, x):
        return self.norm(x)


class LayerNormalizationTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ("float64", (5, SIZE)),
        ("float32", (2, 3, SIZE)),
        ("float64", (2, 3, 4, SIZE)),
    )
    def test_equals_keras_with_gradients(self, dtype, shape):
        rng = np.random.default_rng(1)
        x = tf.constant(3 + 5 * rng.standard_normal(shape), dtype)
        upstream = rng.standard_normal(shape)
        fused, standard = make_layers(len(shape), dtype=dtype)
        tolerance = 1e-12 if dtype == "float64" else 1e-5
        actual = run(fused, x, upstream)
        self.assertEqual(actual[0].dtype.name, dtype)
        self.assertEqual(actual[0].shape, shape)
        for a, b in zip(actual, run(standard, x, upstream), strict=True):
            self.assertAllClose(a, b, rtol=tolerance, atol=tolerance)
        self.assertAllClose(
            actual[0],
            reference(np.array(x), *fused.get_weights(), 1e-3),
            rtol=tolerance,
            atol=tolerance,
        )

    @parameterized.parameters(
        dict(scale=False), dict(center=False), dict(scale=False, center=False)
    )
    def test_without_scale_or_offset(self, **options):
        rng = np.random.default_rng(3)
        x = tf.constant(rng.standard_normal((2, 4, SIZE)), tf.float32)
        upstream = rng.standard_normal((2, 4, SIZE))
        fused, standard = make_layers(**options)
        self.assertLen(fused.weights, 2 - len(options))
        for a, b in zip(
            run(fused, x, upstream), run(standard, x, upstream), strict=True
        ):
            self.assertAllClose(a, b, rtol=1e-5, atol=1e-5)

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        rng = np.random.default_rng(4)
        # Some squares exceed float16's range.
        x = 400 * rng.standard_normal((2, 5, SIZE))
        upstream = rng.standard_normal(x.shape)
        fused, _ = make_layers(dtype=policy)
        dtype = policy[len("mixed_") :]
        for weight in fused.weights:
            self.assertEqual(tf.as_dtype(weight.dtype), tf.float32)
        half = tf.cast(x, dtype)
        actual = run(fused, half, upstream)
        self.assertEqual(actual[0].dtype.name, dtype)
        exact, _ = make_layers(dtype="float64")
        expected = run(exact, tf.cast(half, tf.float64), upstream)
        # The tolerance allows a few roundings of values of about 5.
        tolerance = 0.1 if dtype == "bfloat16" else 0.02
        for a, b in zip(actual, expected, strict=True):
            self.assertAllClose(
                tf.cast(a, tf.float64), b, rtol=tolerance, atol=tolerance
            )
        # Keras layers accept float32 inputs under any policy.
        self.assertEqual(fused(tf.zeros([1, 2, SIZE])).dtype.name, dtype)

    def test_equal_numbers_are_finite_with_a_tiny_epsilon(self):
        for dtype in ("float32", "mixed_bfloat16", "mixed_float16"):
            fused, _ = make_layers(2, epsilon=1e-12, dtype=dtype)
            x = tf.fill([2, SIZE], tf.constant(7.0))
            output, *gradients = run(fused, x, tf.ones_like(x))
            # Equal values are normalized to 0, so the output is the offset.
            self.assertAllClose(
                tf.cast(output[0], tf.float32),
                fused.get_weights()[1],
                rtol=1e-2,
            )
            # Float16 cannot represent gradients of a million.
            if dtype != "mixed_float16":
                for gradient in gradients:
                    gradient = tf.cast(gradient, tf.float32)
                    self.assertAllInRange(gradient, -1e8, 1e8)

    def test_unknown_shapes(self):
        fused, standard = make_layers()

        @tf.function(input_signature=[tf.TensorSpec([None, None, SIZE])] * 2)
        def step(x, upstream):
            return run(fused, x, upstream)

        self.assertEqual(
            step.get_concrete_function().structured_outputs[0].shape.as_list(),
            [None, None, SIZE],
        )
        rng = np.random.default_rng(5)
        for shape in ((2, 3, SIZE), (1, 1, SIZE), (2, 0, SIZE)):
            x, upstream = tf.constant(
                rng.standard_normal((2, *shape)), tf.float32
            )
            for a, b in zip(
                step(x, upstream), run(standard, x, upstream), strict=True
            ):
                self.assertAllClose(a, b, rtol=1e-5, atol=1e-5)

    @parameterized.parameters("whole", "pieces")
    def test_compiled(self, what):
        rng = np.random.default_rng(6)
        x = tf.constant(rng.standard_normal((2, 3, SIZE)), tf.float32)
        upstream = tf.constant(rng.standard_normal(x.shape), tf.float32)
        fused, standard = make_layers()

        @tf.function(jit_compile=what == "whole")
        def step(x, upstream):
            return run(fused, x, upstream)

        minimum = 0 if what == "pieces" else compilation.MIN_ELEMENTS
        with mock.patch.object(compilation, "MIN_ELEMENTS", minimum):
            actual = step(x, upstream)
        for a, b in zip(actual, run(standard, x, upstream), strict=True):
            self.assertAllClose(a, b, rtol=1e-5, atol=1e-5)

    @parameterized.parameters(True, False)
    @pytest.mark.both_kerases
    def test_weights_of_either_load_into_the_other(self, from_fused):
        classes = [
            normalization.LayerNormalization,
            tf.keras.layers.LayerNormalization,
        ]
        if not from_fused:
            classes.reverse()
        source, target = (_Model(make) for make in classes)
        rng = np.random.default_rng(7)
        x = tf.constant(rng.standard_normal((2, 3, SIZE)), tf.float32)
        source(x)
        target(x)
        source.set_weights(rng.standard_normal((2, SIZE)))

        def check():
            self.assertAllEqual(source.get_weights(), target.get_weights())
            self.assertAllClose(source(x), target(x), rtol=1e-5, atol=1e-5)
            target.set_weights(np.zeros([2, SIZE]))

        target.set_weights(source.get_weights())
        check()
        path = os.path.join(self.get_temp_dir(), "checkpoint")
        tf.train.Checkpoint(model=source).write(path)
        status = tf.train.Checkpoint(model=target).read(path)
        status.assert_existing_objects_matched()
        check()

    def test_only_the_last_axis(self):
        normalization.LayerNormalization(axis=-1)
        for axis in (1, [1, 2], -2):
            with self.assertRaisesRegex(ValueError, "last axis"):
                layer = normalization.LayerNormalization(axis=axis)
                layer.build((None, 4, SIZE, SIZE))


if __name__ == "__main__":
    tf.test.main()
