import collections
import weakref
from concurrent import futures

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import custom_gradients


@custom_gradients.custom_gradient
def _double(x):
    """Doubles its input; its custom gradient is 7."""
    return 2.0 * x, lambda upstream: 7.0 * upstream


def _gradient_of(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _double(x)
    return y, tape.gradient(y, x)


def _stored_gradients():
    """Counts the operations with custom gradients in a new graph."""
    function = tf.function(lambda x: _double(x))
    graph = function.get_concrete_function(
        tf.TensorSpec([], tf.float32)
    ).graph.as_graph_def()
    return [
        node.name
        for node in graph.node
        if node.attr["_gradient_op_type"].s.startswith(b"CustomGradient")
    ]


class OwnGradientsTest(tf.test.TestCase):
    def test_uses_the_custom_gradient(self):
        self.assertAllEqual((6.0, 7.0), _gradient_of(tf.constant(3.0)))
        in_graph = tf.function(_gradient_of)
        self.assertAllEqual((6.0, 7.0), in_graph(tf.constant(3.0)))

    def test_forward_only(self):
        with custom_gradients.forward_only():
            self.assertAllEqual((6.0, 2.0), _gradient_of(tf.constant(3.0)))
            with custom_gradients.forward_only():
                pass
            self.assertAllEqual((6.0, 2.0), _gradient_of(tf.constant(3.0)))
        self.assertAllEqual((6.0, 7.0), _gradient_of(tf.constant(3.0)))

    def test_forward_only_applies_to_all_threads(self):
        # A strategy builds its replicas' graphs in separate threads.
        with custom_gradients.forward_only():
            with futures.ThreadPoolExecutor() as pool:
                result = pool.submit(_gradient_of, tf.constant(3.0)).result()
        self.assertAllEqual((6.0, 2.0), result)

    def test_a_tape_keeps_no_intermediate_results(self):
        steps = []

        @custom_gradients.custom_gradient
        def function(x):
            step = 2.0 * x
            steps.append(weakref.ref(step))
            return step + 1.0, lambda upstream: upstream

        with tf.GradientTape() as tape:
            x = tf.constant([3.0])
            tape.watch(x)
            y = function(x)
            self.assertIsNone(steps[0]())
        self.assertAllEqual([1.0], tape.gradient(y, x))

    def test_several_outputs(self):
        @custom_gradients.custom_gradient
        def function(x, y):
            return (x + y, x * y), lambda d_sum, d_product: [d_sum, d_product]

        x, y = tf.constant(3.0), tf.constant(4.0)
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            results = function(x, y)
        self.assertAllEqual((7.0, 12.0), results)
        self.assertAllEqual(
            (5.0, 6.0),
            tape.gradient(
                results, [x, y], [tf.constant(5.0), tf.constant(6.0)]
            ),
        )

    def test_forward_only_graphs_store_no_gradient(self):
        self.assertNotEmpty(_stored_gradients())
        with custom_gradients.forward_only():
            self.assertEmpty(_stored_gradients())


@custom_gradients.custom_gradient
def _scaled_cube(x, captured):
    """Computes `factor * x ** 3`."""
    (factor,) = captured
    square = x * x
    output = factor * x * square
    return output, lambda upstream: 3.0 * upstream * factor * square


def _cube(x):
    """Computes `2 * x ** 3`; the factor is a tensor of the graph."""
    return _scaled_cube(x, captured=[tf.constant(1.0) + tf.constant(1.0)])


def _slope(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x) ** 2)
    return tape.gradient(y, x)


def _reverse_over_reverse(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        slope = _slope(function, x)
    return tape.gradient(slope, x)


def _third(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        second = _reverse_over_reverse(function, x)
    return tape.gradient(second, x)


def _forward(function, x):
    tangents = tf.ones_like(x)
    with tf.autodiff.ForwardAccumulator(x, tangents) as accumulator:
        y = tf.reduce_sum(function(x) ** 2)
    return accumulator.jvp(y)


def _forward_over_reverse(function, x):
    tangents = tf.ones_like(x)
    with tf.autodiff.ForwardAccumulator(x, tangents) as accumulator:
        slope = _slope(function, x)
    return accumulator.jvp(slope)


def _forward_over_backward(function, x):
    """Differentiates the gradients with respect to the incoming gradients."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    tangents = tf.ones_like(y)
    with tf.autodiff.ForwardAccumulator(tangents, tangents) as accumulator:
        slope = tape.gradient(y, x, tangents)
    return accumulator.jvp(slope)


def _reverse_over_forward(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        slope = _forward(function, x)
    return tape.gradient(slope, x)


def _of_jacobian(function, x):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        jacobian = tape.jacobian(y, x)
    return outer.gradient(jacobian, x)


class HigherDerivativesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        case=(
            # Derivatives of 4 x ** 6: 24 x ** 5, 120 x ** 4, 480 x ** 3.
            (_slope, lambda x: 24 * x**5),
            (_reverse_over_reverse, lambda x: 120 * x**4),
            (_third, lambda x: 480 * x**3),
            (_forward, lambda x: sum(24 * x**5)),
            (_forward_over_reverse, lambda x: 120 * x**4),
            (_reverse_over_forward, lambda x: 120 * x**4),
            # Derivatives of 2 x ** 3: 6 x ** 2, 12 x.
            (_forward_over_backward, lambda x: 6 * x**2),
            (_of_jacobian, lambda x: 12 * x),
        ),
        how=("eager", "graph", "of_a_graph", "xla"),
    )
    def test_derivatives_of_a_power(self, case, how):
        derivative, expected = case
        if how == "of_a_graph" and derivative is _reverse_over_forward:
            self.skipTest(
                "TensorFlow is wrong there, even for plain functions."
            )
        x = tf.constant([0.5, -1.5, 2.0])
        function, run = _cube, derivative
        if how == "of_a_graph":
            function = tf.function(_cube)
        elif how != "eager":
            run = tf.function(
                derivative, jit_compile=how == "xla", autograph=False
            )
        self.assertAllClose(expected(x.numpy()), run(function, x))

    def test_one_tensor_as_two_arguments(self):
        @custom_gradients.custom_gradient
        def product(x, y):
            return x * y, lambda upstream: [upstream * y, upstream * x]

        def square(x):
            return product(x, x)

        x = tf.constant(3.0)
        for run in (_reverse_over_reverse, _forward_over_reverse):
            self.assertAllClose(12 * 9.0, run(square, x))
            self.assertAllClose(12 * 9.0, tf.function(run)(square, x))

    def test_gradients_in_and_of_a_vectorized_map(self):
        x = tf.constant([0.5, -1.5, 2.0])

        def inside(x):
            return tf.vectorized_map(lambda row: _slope(_cube, row), x)

        def outside(x):
            # The names of operations differ between the first and the second
            # loop.
            tf.vectorized_map(_cube, x)
            return _slope(lambda x: tf.vectorized_map(_cube, x), x)

        for run in (inside, outside):
            for function in (run, tf.function(run, autograph=False)):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    slope = function(x)
                self.assertAllClose(24 * x**5, slope)
                self.assertAllClose(120 * x**4, tape.gradient(slope, x))

    def test_tensors_inside_captured_objects(self):
        pair = collections.namedtuple("pair", ["first", "second"])
        holder = _Holder(pair(tf.constant(1), "text"))
        replaced = custom_gradients.replace_tensors(
            {"it": [holder, 2]}, lambda x: x + 1
        )
        self.assertAllEqual(2, replaced["it"][0].value.first)
        self.assertEqual("text", replaced["it"][0].value.second)
        self.assertAllEqual(1, holder.value.first)


class _Holder:
    """An object of this package that holds a tensor."""

    def __init__(self, value):
        self.value = value


if __name__ == "__main__":
    tf.test.main()
