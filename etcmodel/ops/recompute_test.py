import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import dropout
from etcmodel.ops import recompute


def _compiled(fn, mode):
    if mode == "eager":
        return fn
    return tf.function(fn, jit_compile=mode == "jit")


class _Net:
    """Two dense layers, a dropout layer called twice, and another dropout."""

    def __init__(self):
        self.dense = [tf.keras.layers.Dense(6) for _ in range(2)]
        for layer in self.dense:
            layer.build((None, 6))
        self.dropout = dropout.RecomputingDropout(0.4)
        self.last_dropout = dropout.RecomputingDropout(0.3)

    @property
    def variables(self):
        return [v for layer in self.dense for v in layer.trainable_variables]

    def __call__(self, x, factors=None, flip=False):
        hidden = self.dropout(self.dense[0](x), training=True)
        hidden = self.dropout(tf.sin(hidden), training=True)
        output = self.last_dropout(self.dense[1](hidden), training=True)
        if flip:
            output = -output
        return [output * tf.cast(factors, output.dtype), {"hidden": hidden}]


class RecomputeGradTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("eager", "graph")
    def test_second_derivatives_and_forward_mode(self, mode):
        variable = tf.Variable([[0.3, -0.6], [0.9, 0.2]])

        def cubes(x):
            return tf.matmul(x, variable) ** 3

        recomputed = recompute.recompute_grad(cubes)
        x = tf.constant([[0.5, -0.7]])
        sources, tangents = [x, variable], [x + 1.0, variable + 2.0]

        def slopes(function):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = tf.reduce_sum(function(x) ** 2)
            return tape.gradient(value, sources)

        def derivatives(function):
            with tf.GradientTape() as tape:
                tape.watch(x)
                slope = tf.add_n(
                    [tf.reduce_sum(s**2) for s in slopes(function)]
                )
            found = tape.gradient(slope, sources)
            # Tangents of the input and the variable, and of the variable alone.
            for first in (0, 1):
                with tf.autodiff.ForwardAccumulator(
                    sources[first:], tangents[first:]
                ) as accumulator:
                    found.append(accumulator.jvp(function(x)))
                    found += accumulator.jvp(slopes(function))
            return found

        run = derivatives
        if mode == "graph":
            run = tf.function(derivatives, autograph=False)
        for y, z in zip(derivatives(cubes), run(recomputed), strict=True):
            self.assertAllClose(y, z, 1e-5, 1e-5)

    @parameterized.parameters("eager", "jit")
    def test_gradients_with_dropout_equal_those_without_recomputation(
        self, mode
    ):
        net = _Net()
        recomputed = recompute.recompute_grad(net, seed=7)

        def plain(*args, **kwargs):
            with recompute.RecomputeContext(False, tf.constant(7)):
                return net(*args, **kwargs)

        def step(fn, x, factors):
            with tf.GradientTape() as tape:
                tape.watch(x)
                output, extra = fn(x, factors=factors, flip=True)
                loss = tf.reduce_sum(output**2)
                loss += tf.reduce_sum(tf.cos(extra["hidden"]))
            return [loss] + tape.gradient(loss, [x] + net.variables)

        x = tf.constant(
            np.random.default_rng(0).normal(size=[4, 6]), tf.float32
        )
        factors = tf.constant([[1], [0], [2], [1]])
        expected = _compiled(lambda x, f: step(plain, x, f), mode)(x, factors)
        actual = _compiled(lambda x, f: step(recomputed, x, f), mode)(
            x, factors
        )
        for a, b in zip(expected, actual, strict=True):
            self.assertAllClose(a, b, rtol=1e-5, atol=1e-6)
        self.assertGreater(np.abs(actual[1]).max(), 0)

    @parameterized.parameters("graph", "jit")
    @pytest.mark.both_kerases
    def test_both_runs_keep_the_same_elements(self, mode):
        layer = dropout.RecomputingDropout(0.5)

        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = recompute.recompute_grad(lambda x: layer(x, training=True))(
                    x
                )
            return y, tape.gradient(y, x)

        step = _compiled(step, mode)
        x = tf.ones([200])
        y, gradient = step(x)
        self.assertAllEqual(y, gradient)
        self.assertAllInSet(y, [0.0, 2.0])
        # Without a given seed, every step draws a new one.
        self.assertNotAllEqual(y, step(x)[0])

    def test_nested(self):
        layers = [dropout.RecomputingDropout(0.5) for _ in range(2)]

        def inner(x):
            return layers[0](x, training=True)

        def outer(x):
            x = recompute.recompute_grad(inner)(x)
            x = layers[1](x, training=True)
            return recompute.recompute_grad(inner)(x)

        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = recompute.recompute_grad(outer)(x)
            return y, tape.gradient(y, x)

        y, gradient = tf.function(step)(tf.ones([500]))
        self.assertAllEqual(y, gradient)
        # Three independent masks keep half of the elements each.
        self.assertAllInSet(y, [0.0, 8.0])
        self.assertNear(0.125, np.mean(np.array(y) != 0), 0.06)

    def test_runs_and_contexts(self):
        runs = []

        def f(x):
            context = recompute.get_recompute_context()
            runs.append((context.is_recomputing, int(context.seed)))
            return x**2

        x = tf.constant([1.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = recompute.recompute_grad(f, seed=tf.constant(5))(x)
        self.assertEqual([(False, 5)], runs)
        self.assertAllClose([2.0], tape.gradient(y, x))
        self.assertEqual([(False, 5), (True, 5)], runs)
        self.assertIsNone(recompute.get_recompute_context())

    def test_children(self):
        with recompute.RecomputeContext(False, tf.constant(1)) as parent:
            recompute.recompute_grad(lambda x: x, seed=2)(tf.constant(0.0))
            recompute.recompute_grad(lambda x: x)(tf.constant(0.0))
        self.assertLen(parent.children, 2)
        self.assertEqual(2, int(parent.children[0].seed))

    def test_leaving_contexts_out_of_order(self):
        outer = recompute.RecomputeContext(False, tf.constant(1))
        with self.assertRaises(AssertionError):
            with outer:
                recompute.RecomputeContext(False, tf.constant(1)).__enter__()
        # Restores the thread's stack of contexts.
        outer.__exit__(None, None, None)
        self.assertIsNone(recompute.get_recompute_context())


if __name__ == "__main__":
    tf.test.main()
