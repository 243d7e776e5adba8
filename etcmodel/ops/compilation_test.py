from concurrent import futures
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import compilation


@compilation.jit_if_large
def scaled_sum(x, y, *, factor):
    result = factor * x
    return result if y is None else result + y


def is_compiled(concrete_function):
    """Tells whether XLA will compile a function of the graph."""
    return "_XlaMustCompile" in str(concrete_function.graph.as_graph_def())


def trace(*shapes):
    """Traces a call of the function above with tensors of these shapes."""
    return tf.function(
        lambda *tensors: scaled_sum(*tensors, factor=2.0)
    ).get_concrete_function(*map(tf.TensorSpec, shapes))


def any_is_large():
    return mock.patch.object(compilation, "MIN_ELEMENTS", 6)


class ElementwiseJitTest(parameterized.TestCase, tf.test.TestCase):
    def test_large_tensors_are_compiled(self):
        with any_is_large():
            self.assertTrue(is_compiled(trace([2, 3], [2, 3])))
            # One large tensor is enough.
            self.assertTrue(is_compiled(trace([2, 1], [2, 3])))
            self.assertFalse(is_compiled(trace([5], [5])))
            self.assertFalse(is_compiled(trace([5, 1], [1, 5])))
        self.assertFalse(is_compiled(trace([2, 3], [2, 3])))
        large = [compilation.MIN_ELEMENTS]
        self.assertTrue(is_compiled(trace(large, large)))

    def test_unknown_shapes_are_not_compiled(self):
        with any_is_large():
            self.assertFalse(is_compiled(trace([None, 3], [7, 3])))
            self.assertFalse(is_compiled(trace([7, 3], None)))

    def test_switching_off(self):
        self.assertTrue(compilation.is_enabled())
        with any_is_large(), compilation.elementwise_jit(False):
            self.assertFalse(compilation.is_enabled())
            self.assertFalse(is_compiled(trace([2, 3], [2, 3])))
            with compilation.elementwise_jit(True):
                self.assertTrue(is_compiled(trace([2, 3], [2, 3])))
            self.assertFalse(compilation.is_enabled())
        self.assertTrue(compilation.is_enabled())

    def test_an_error_restores_the_setting(self):
        with self.assertRaisesRegex(KeyError, "here"):
            with compilation.elementwise_jit(False):
                raise KeyError("here")
        self.assertTrue(compilation.is_enabled())

    def test_all_threads_are_switched_off(self):
        # A strategy builds its replicas' graphs in separate threads.
        with compilation.elementwise_jit(False):
            with futures.ThreadPoolExecutor() as pool:
                enabled = pool.submit(compilation.is_enabled).result()
        self.assertFalse(enabled)

    @parameterized.parameters(False, True)
    def test_compiled_results_are_the_same(self, is_large):
        rng = np.random.default_rng(0)
        x, y = rng.random((2, 2, 3))
        minimum = 0 if is_large else compilation.MIN_ELEMENTS
        with mock.patch.object(compilation, "MIN_ELEMENTS", minimum):
            self.assertAllClose(
                scaled_sum(tf.constant(x), None, factor=2.0), 2 * x
            )
            # Options and shapes may differ from call to call.
            self.assertAllClose(
                scaled_sum(tf.constant(x), tf.constant(y), factor=3.0),
                3 * x + y,
            )
            self.assertAllClose(
                scaled_sum(tf.constant(x[:1]), tf.constant(y), factor=3.0),
                3 * x[:1] + y,
            )

    def test_keeps_the_name(self):
        self.assertEqual("scaled_sum", scaled_sum.__name__)


if __name__ == "__main__":
    tf.test.main()
