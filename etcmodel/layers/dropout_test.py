import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import dropout
from etcmodel.ops import recompute


class StatelessDropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(tf.float32, tf.bfloat16, tf.float64)
    def test_scale_rate_and_seed(self, dtype):
        x = tf.ones([100, 100], dtype)
        y = dropout.stateless_dropout(x, 0.2, [1, 2])
        self.assertEqual(dtype, y.dtype)
        self.assertAllInSet(y, [0.0, np.array(1.25, dtype.as_numpy_dtype)])
        kept = np.mean(np.array(y) != 0)
        # The tolerance is four standard deviations of 10,000 draws.
        self.assertNear(0.8, kept, 0.016)
        self.assertAllEqual(y, dropout.stateless_dropout(x, 0.2, [1, 2]))
        self.assertNotAllEqual(y, dropout.stateless_dropout(x, 0.2, [2, 2]))
        self.assertNotAllEqual(y, dropout.stateless_dropout(x, 0.2, [1, 1]))

    def test_rate_0_is_the_identity(self):
        x = tf.constant([1.0, 2.0])
        self.assertAllEqual(x, dropout.stateless_dropout(x, 0.0, [1, 2]))
        self.assertAllEqual(
            x, dropout.stateless_dropout(x, tf.constant(0.0), [1, 2])
        )

    def test_rate_tensor_unknown_at_trace_time(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 1000]),
                tf.TensorSpec([]),
                tf.TensorSpec([2], tf.int32),
            ]
        )
        def fn(x, rate, seed):
            y = dropout.stateless_dropout(x, rate, seed, noise_shape=[1, None])
            self.assertEqual([None, 1000], y.shape.as_list())
            return y

        y = fn(tf.ones([3, 1000]), 0.5, [3, 4])
        self.assertAllInSet(y, [0.0, 2.0])
        self.assertAllEqual(y[0], y[1])
        self.assertNear(0.5, np.mean(np.array(y) != 0), 0.07)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "float"):
            dropout.stateless_dropout(tf.constant([1, 2]), 0.1, [1, 2])
        for rate in (-0.1, 1.0, 3):
            with self.assertRaisesRegex(ValueError, "rate"):
                dropout.stateless_dropout([1.0], rate, [1, 2])
            with self.assertRaisesRegex(ValueError, "rate"):
                dropout.RecomputingDropout(rate)
        with self.assertRaises(TypeError):
            dropout.smart_cond(True, lambda: 1, 2)

    def test_warns_of_high_rates(self):
        with self.assertLogs("absl", "WARNING"):
            dropout.stateless_dropout([1.0], 0.9, [1, 2])


class SmartCondTest(tf.test.TestCase):
    def test_static_and_dynamic(self):
        def choose(pred):
            return dropout.smart_cond(
                pred, lambda: tf.constant(1), lambda: tf.constant(2)
            )

        for pred, expected in [
            (True, 1),
            (False, 2),
            (None, 2),
            (tf.constant(True), 1),
        ]:
            self.assertEqual(expected, choose(pred))
        dynamic = tf.function(
            choose, input_signature=[tf.TensorSpec([], tf.bool)]
        )
        self.assertEqual(1, dynamic(True))
        self.assertEqual(2, dynamic(False))


class RecomputingDropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(None, False, True)
    def test_every_step_drops_other_elements(self, jit_compile):
        layer = dropout.RecomputingDropout(0.5)

        def step(x):
            return layer(x, training=True)

        if jit_compile is not None:
            step = tf.function(step, jit_compile=jit_compile)
        outputs = [step(tf.ones([200])) for _ in range(3)]
        for first, second in itertools.combinations(outputs, 2):
            self.assertNotAllEqual(first, second)

    def test_seeds_determine_the_masks_in_a_context(self):
        def make():
            return [dropout.RecomputingDropout(0.5) for _ in range(2)]

        def run(seed, layers):
            x = tf.ones([200])
            with recompute.RecomputeContext(False, tf.constant(seed)):
                return [
                    np.array(layers[i](x, training=True)) for i in (0, 0, 1)
                ]

        layers = make()
        first = run(1, layers)
        self.assertAllEqual(first, run(1, layers))
        # Newly made layers drop the same elements.
        self.assertAllEqual(first, run(1, make()))
        self.assertNotAllEqual(first[0], run(2, layers)[0])
        # Two calls of a layer, and two layers, drop different elements.
        self.assertNotAllEqual(first[0], first[1])
        self.assertNotAllEqual(first[0], first[2])

    def test_layers_with_equal_seeds_drop_the_same_in_a_context(self):
        x = tf.ones([200])
        outputs = []
        for _ in range(2):
            layer = dropout.RecomputingDropout(0.5, seed=7)
            with recompute.RecomputeContext(False, tf.constant(3)):
                outputs.append(layer(x, training=True))
        self.assertAllEqual(*outputs)

    def test_construction_leaves_numpys_generator_alone(self):
        np.random.seed(1)
        expected = np.random.randint(10**6)
        np.random.seed(1)
        dropout.RecomputingDropout(0.5)
        self.assertEqual(expected, np.random.randint(10**6))

    def test_force_recomputation(self):
        layer = dropout.RecomputingDropout(0.5, force_recomputation=True)
        x = tf.ones([3])
        self.assertAllEqual(x, layer(x, training=False))
        with self.assertRaisesRegex(ValueError, "force_recomputation"):
            layer(x, training=True)
        with recompute.RecomputeContext(False, tf.constant(3)):
            layer(x, training=True)

    def test_noise_shape(self):
        layer = dropout.RecomputingDropout(0.5, noise_shape=(None, 1))
        y = layer(tf.ones([50, 3]), training=True)
        self.assertAllEqual(y[:, 0], y[:, 1])
        self.assertAllEqual(y[:, 0], y[:, 2])


if __name__ == "__main__":
    tf.test.main()
