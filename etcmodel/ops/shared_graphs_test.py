from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops import custom_gradients
from etcmodel.ops import shared_graphs


class OwnLabels(attention.PairLabels):
    """Labels as a user may define them, outside this package."""

    columns = (1, 0)

    def __init__(self, numbers):
        self.numbers = numbers

    def long_tensors(self):
        return [self.numbers]

    def part(self, long_tensors, global_len):
        (numbers,) = long_tensors
        return numbers[:, :, tf.newaxis] == tf.range(global_len)


class SharedGraphsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.traces = []

        @shared_graphs.shared
        def scaled(x, factor, structure):
            self.traces.append(x.shape.as_list())
            return x**2 * factor * structure["offset"][0]

        self.scaled = scaled

    def in_graph(self, function, *inputs, specs=None):
        """Runs calls in a graph; returns results and the number of traces."""
        self.traces.clear()
        found = tf.function(function, input_signature=specs, autograph=False)(
            *inputs
        )
        return found, len(self.traces)

    def test_equal_configurations_share_a_trace(self):
        def layers(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x
                for offset in (2.0, 3.0, 5.0):
                    y = self.scaled(y, 0.5, {"offset": [tf.constant(offset)]})
            return y, tape.gradient(y, x)

        (output, gradient), traces = self.in_graph(layers, tf.constant([2.0]))
        self.assertEqual(1, traces)
        # 2 becomes 4, 24, 1440. Each of the three squares doubles the relative
        # change.
        self.assertAllClose([1440.0], output)
        self.assertAllClose([1440.0 * 8 / 2], gradient)

    def test_different_configurations_have_separate_traces(self):
        offset = {"offset": [tf.constant(1.0)]}

        def calls(x):
            # 2 and 2.0 are equal but give different operations.
            return [
                self.scaled(x, 2, offset),
                self.scaled(x, 2.0, offset),
                self.scaled(x, 2.0, {**offset, "more": None}),
                self.scaled(x[:1], 2.0, offset),
                self.scaled(x, 2.0, offset),
            ]

        _, traces = self.in_graph(calls, tf.constant([2.0, 3.0]))
        self.assertEqual(4, traces)
        with attention.for_inference():
            _, traces = self.in_graph(calls, tf.constant([2.0, 3.0]))
        self.assertEqual(4, traces)

    def test_known_sizes_stay_known(self):
        def calls(x):
            offset = {"offset": [tf.constant(1.0)]}
            first = self.scaled(x, 1.0, offset)
            return self.scaled(tf.ensure_shape(first, [2]), 1.0, offset)

        self.in_graph(
            calls, tf.constant([2.0, 3.0]), specs=[tf.TensorSpec([None])]
        )
        self.assertEqual([[None], [2]], self.traces)

    def test_unhashable_arguments_are_not_shared(self):
        def calls(x):
            offset = {"offset": [tf.constant(1.0)], "unhashable": {1, 2}}
            return self.scaled(x, 1.0, offset) + self.scaled(x, 1.0, offset)

        found, traces = self.in_graph(calls, tf.constant([3.0]))
        self.assertAllClose([18.0], found)
        self.assertEqual(2, traces)

    def test_graphs_compiled_as_a_whole_share_nothing(self):
        def calls(x):
            offset = {"offset": [tf.constant(1.0)]}
            return self.scaled(self.scaled(x, 1.0, offset), 1.0, offset)

        compiled = tf.function(calls, jit_compile=True, autograph=False)
        self.assertAllClose([81.0], compiled(tf.constant([3.0])))
        self.assertLen(self.traces, 2)

    def test_graphs_share_traces(self):
        def call(x):
            return self.scaled(x, 1.0, {"offset": [tf.constant(1.0)]})

        unknown = [tf.TensorSpec([None])]
        for specs, expected in (
            (None, 1),
            (unknown, 1),
            (None, 0),
            (unknown, 0),
        ):
            found, traces = self.in_graph(call, tf.constant([3.0]), specs=specs)
            self.assertAllClose([9.0], found)
            self.assertEqual(expected, traces)

    def test_recently_used_traces_are_kept(self):
        def call(factor):
            _, traces = self.in_graph(
                lambda x: self.scaled(x, factor, {"offset": [x]}),
                tf.constant([3.0]),
            )
            return traces

        with mock.patch.object(shared_graphs, "_MAX_FUNCTIONS", 2):
            traces = [call(factor) for factor in (1, 2, 1, 3, 1, 2)]
        self.assertEqual([1, 1, 0, 1, 0, 1], traces)

    def test_higher_derivatives_use_no_shared_trace(self):
        # A trace with higher derivatives would keep all scores.
        offset = {"offset": [tf.constant(1.0)]}

        def derivatives(x):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = self.scaled(self.scaled(x, 1.0, offset), 1.0, offset)
            return tape.gradient(y, x)

        found, traces = self.in_graph(derivatives, tf.constant([3.0]))
        self.assertAllClose([4 * 27.0], found)
        self.assertEqual(2, traces)

    def test_keyword_arguments(self):
        def calls(x):
            structure = {"offset": [tf.constant(1.0)]}
            return self.scaled(x, structure=structure, factor=1.0), self.scaled(
                x, 1.0, structure
            )

        _, traces = self.in_graph(calls, tf.constant([3.0]))
        self.assertEqual(1, traces)

    def test_forward_mode_uses_no_shared_trace(self):
        def product(x):
            with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
                y = self.scaled(x, 1.0, {"offset": [tf.constant(1.0)]})
            return forward.jvp(y)

        found, _ = self.in_graph(product, tf.constant([3.0]))
        self.assertAllClose([6.0], found)

    @parameterized.parameters(False, True)
    def test_derivatives_of_a_jacobian(self, is_function):
        @shared_graphs.shared
        @custom_gradients.custom_gradient
        def cube(x):
            return x**3, lambda upstream: 3.0 * x**2 * upstream

        def derivatives(x):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = cube(x)
                total = tf.reduce_sum(tape.jacobian(y, x) ** 2)
            return outer.gradient(total, x)

        if is_function:
            derivatives = tf.function(derivatives, autograph=False)
        # The derivative of (3 x^2)^2.
        x = tf.constant([1.0, 2.0], tf.float64)
        self.assertAllClose(36.0 * x**3, derivatives(x), 1e-12, 1e-12)

    def test_layers_have_their_own_masks_and_labels(self):
        rows = tf.random.stateless_normal([1, 6, 1, 4], [1, 2])
        own = rows[:, :2]
        table = attention.LabelTable(
            tf.random.stateless_normal([2, 1, 4], [3, 4]), tf.zeros([2, 1])
        )

        def attend(rows, number):
            labels = OwnLabels(tf.fill([1, 6], number))
            return attention.global_attention(
                own,
                attention.Keys(own, own, labels=tf.zeros([1, 2, 2], tf.int32)),
                attention.Keys(rows, rows, labels=labels),
                table,
            )

        def both(rows):
            return attend(rows, 0), attend(rows, 1)

        in_graph = tf.function(both, autograph=False)(rows)
        self.assertAllClose(both(rows), in_graph)
        self.assertNotAllClose(*in_graph)


if __name__ == "__main__":
    tf.test.main()
