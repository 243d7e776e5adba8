"""Tests of `custom_gradients`."""

import weakref
from concurrent import futures

import tensorflow as tf

from etcmodel.attention import custom_gradients


@custom_gradients.custom_gradient
def _double(x):
    """Doubles, and claims that its derivative is 7."""
    return 2.0 * x, lambda upstream: 7.0 * upstream


def _gradient_of(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _double(x)
    return y, tape.gradient(y, x)


def _stored_gradients():
    """Operations of a new graph that have a gradient of their own."""
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
    def test_the_gradient_is_the_functions_own(self):
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

    def test_forward_only_counts_in_all_threads(self):
        # A strategy builds its replicas' graphs in threads of its own.
        with custom_gradients.forward_only():
            with futures.ThreadPoolExecutor() as pool:
                result = pool.submit(_gradient_of, tf.constant(3.0)).result()
        self.assertAllEqual((6.0, 2.0), result)

    def test_a_tape_keeps_nothing_that_is_computed_on_the_way(self):
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

    def test_graphs_of_forward_only_store_no_gradient(self):
        self.assertNotEmpty(_stored_gradients())
        with custom_gradients.forward_only():
            self.assertEmpty(_stored_gradients())


if __name__ == "__main__":
    tf.test.main()
