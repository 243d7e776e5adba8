import itertools
import math
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import activations
from etcmodel.ops import compilation


def gelu_derivative(x):
    """Computes the tanh form's derivative in float64."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    # The derivative of tanh is 1 / cosh^2.
    return 0.5 * (1 + np.tanh(inner)) + 0.5 * x * slope / np.cosh(inner) ** 2


def gelu_gradient(x, upstream, function=activations.gelu):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, upstream)


def exact_derivative(x):
    """Computes the exact form's derivative in float64: cdf + x * density."""
    density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return np.vectorize(_normal_cdf)(x) + x * density


def _normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


class ActivationTest(parameterized.TestCase, tf.test.TestCase):
    def test_gelu_is_the_tanh_form(self):
        x = np.linspace(-6, 6, 49)
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        expected = 0.5 * x * (1 + np.tanh(inner))
        self.assertAllClose(
            expected, activations.gelu(tf.constant(x)), rtol=1e-7, atol=1e-9
        )
        differences = activations.gelu(x + 1e-6) - activations.gelu(x - 1e-6)
        self.assertAllClose(
            gelu_derivative(x), differences / 2e-6, rtol=1e-6, atol=1e-8
        )

    def test_exact_gelu(self):
        x = np.linspace(-6, 6, 49)
        expected = x * np.vectorize(_normal_cdf)(x)
        for dtype, tolerance in ((tf.float64, 1e-14), (tf.float32, 1e-6)):
            found = activations.exact_gelu(tf.constant(x, dtype))
            self.assertAllClose(expected, found, tolerance, tolerance)
        with tf.GradientTape() as tape:
            point = tf.constant(x)
            tape.watch(point)
            gradient = gelu_gradient(
                point, tf.ones(49, tf.float64), activations.exact_gelu
            )
        # The second derivative is (2 - x^2) * density.
        density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
        self.assertAllClose(
            (2 - x**2) * density, tape.gradient(gradient, point), 1e-9, 1e-12
        )

    @parameterized.product(
        form=[
            (activations.gelu, gelu_derivative),
            (activations.exact_gelu, exact_derivative),
        ],
        precision=[
            (tf.float64, 1e-9),
            (tf.float32, 5e-6),
            (tf.float16, 2e-3),
            (tf.bfloat16, 2e-2),
        ],
    )
    def test_gelu_gradient_is_the_derivative(self, form, precision):
        function, derivative = form
        dtype, tolerance = precision
        x = tf.cast(np.linspace(-6, 6, 49), dtype)
        upstream = tf.cast(np.random.default_rng(0).standard_normal(49), dtype)
        gradient = gelu_gradient(x, upstream, function)
        self.assertEqual(dtype, gradient.dtype)
        x, upstream, gradient = (
            tf.cast(value, tf.float64).numpy()
            for value in (x, upstream, gradient)
        )
        self.assertAllClose(
            derivative(x) * upstream,
            gradient,
            rtol=tolerance,
            atol=tolerance,
        )

    def test_gelu_is_finite_in_half_precision(self):
        for dtype, function in itertools.product(
            (tf.float16, tf.bfloat16),
            (activations.gelu, activations.exact_gelu),
        ):
            x = tf.constant([-30000.0, -100.0, 100.0, 30000.0], dtype)
            self.assertAllEqual(tf.nn.relu(x), function(x))
            self.assertEqual(dtype, function(x).dtype)
            gradient = gelu_gradient(x, tf.ones_like(x), function)
            self.assertAllEqual([0, 0, 1, 1], gradient)

    def test_gelu_keeps_nothing_but_its_input(self):
        @tf.function
        def forward(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = activations.gelu(x)
            inside = tf.compat.v1.get_default_graph().get_operations()
            return tape.gradient(y, x), [op.name for op in inside]

        graph = forward.get_concrete_function(tf.TensorSpec([7, 3])).graph
        # One tanh in the forward pass, and one in the backward pass.
        kinds = [operation.type for operation in graph.get_operations()]
        self.assertEqual(2, kinds.count("Tanh"))

    @parameterized.parameters("plain", "graph", "jit", "pieces")
    def test_gelu_with_inputs_of_several_shapes(self, mode):
        function = gelu_gradient
        if mode in ("graph", "jit"):
            function = tf.function(gelu_gradient, jit_compile=mode == "jit")
        rng = np.random.default_rng(1)
        minimum = 0 if mode == "pieces" else compilation.MIN_ELEMENTS
        with mock.patch.object(compilation, "MIN_ELEMENTS", minimum):
            for shape in ((2, 3), (4,), (2, 3), (0, 3), ()):
                x = rng.standard_normal(shape)
                gradient = function(tf.constant(x), tf.ones(shape, tf.float64))
                self.assertAllClose(gelu_derivative(x), gradient, rtol=1e-7)

    def test_gelu_of_unknown_shapes(self):
        function = tf.function(
            activations.gelu, input_signature=[tf.TensorSpec([None, 3])]
        )
        self.assertEqual(
            [None, 3], function.get_concrete_function().output_shapes.as_list()
        )
        self.assertAllEqual(tf.zeros([5, 3]), function(tf.zeros([5, 3])))

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
