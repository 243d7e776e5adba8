"""Tests of `own_gradients`."""

import tensorflow as tf

from etcmodel import own_gradients


@own_gradients.custom_gradient
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
        with own_gradients.forward_only():
            self.assertAllEqual((6.0, 2.0), _gradient_of(tf.constant(3.0)))
            with own_gradients.forward_only():
                pass
            self.assertAllEqual((6.0, 2.0), _gradient_of(tf.constant(3.0)))
        self.assertAllEqual((6.0, 7.0), _gradient_of(tf.constant(3.0)))

    def test_graphs_of_forward_only_store_no_gradient(self):
        self.assertNotEmpty(_stored_gradients())
        with own_gradients.forward_only():
            self.assertEmpty(_stored_gradients())


if __name__ == "__main__":
    tf.test.main()
