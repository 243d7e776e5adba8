import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import helpers


class DenseLayersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ([2], [[-1.0, -1.0], [1.5, 1.5]]), ([3, 1], [[0.0], [4.5]])
    )
    def test_activation_between_layers_only(self, sizes, expected):
        inputs = tf.constant([[0.5, -1.5], [1.0, 0.5]])
        for use_bias in (True, False):  # All biases are zero.
            layer = helpers.DenseLayers(
                sizes, "relu", use_bias, kernel_initializer="ones"
            )
            self.assertAllClose(expected, layer(inputs))

    def test_names_and_weights(self):
        layer = helpers.DenseLayers([5, 3], bias_initializer="ones")
        layer.build((None, 2))
        self.assertEqual(["layer_0", "layer_1"], [x.name for x in layer.layers])
        shapes = [w.shape for w in layer.get_weights()]
        self.assertEqual([(2, 5), (5,), (5, 3), (3,)], shapes)
        self.assertAllEqual(np.ones(5), layer.get_weights()[1])
        no_bias = helpers.DenseLayers([5, 3], use_bias=False)
        no_bias.build((None, 2))
        self.assertLen(no_bias.get_weights(), 2)

    def test_kernels_differ(self):
        layer = helpers.DenseLayers(
            [4, 4],
            kernel_initializer=tf.keras.initializers.TruncatedNormal(),
        )
        layer.build((None, 4))
        first, _, second, _ = layer.get_weights()
        self.assertNotAllClose(first, second)

    def test_errors(self):
        for sizes in ([0], [3, -1], []):
            with self.assertRaisesRegex(ValueError, "hidden_sizes"):
                helpers.DenseLayers(sizes)


class TrackedLambdaTest(tf.test.TestCase):
    def test_tracks_dependencies(self):
        dense = tf.keras.layers.Dense(3)
        dense.build((None, 2))

        def times_2(x):
            return 2 * dense(x)

        layer = helpers.TrackedLambda(times_2, dependencies=[dense])
        inputs = tf.ones([4, 2])
        self.assertAllClose(2 * dense(inputs), layer(inputs))
        self.assertLen(layer.trainable_variables, 2)

    @pytest.mark.both_kerases
    def test_tracks_variables_or_says_that_it_cannot(self):
        variable = tf.Variable(2.0)

        def make():
            return helpers.TrackedLambda(
                lambda x: x * variable, dependencies=[variable]
            )

        if hasattr(tf.keras, "__version__"):
            with self.assertRaisesRegex(TypeError, "add_weight"):
                make()
        else:
            self.assertIs(variable, make().trainable_variables[0])
        dense = tf.keras.layers.Dense(3)
        dense.build((None, 2))
        layer = helpers.TrackedLambda(
            lambda x: tf.matmul(x, dense.kernel), dependencies=[dense.kernel]
        )
        self.assertLen(layer.trainable_variables, 1)

    def test_forwards_arguments(self):
        def function(x, y=None, training=None):
            return x + y if training else x - y

        layer = helpers.TrackedLambda(function)
        x = tf.constant([3.0])
        y = tf.constant([1.0])
        self.assertAllClose([4.0], layer(x, y=y, training=True))
        self.assertAllClose([2.0], layer(x, y=y, training=False))

    def test_errors(self):
        with self.assertRaisesRegex(NotImplementedError, "registered"):
            helpers.TrackedLambda(lambda x: x).get_config()
        with self.assertRaisesRegex(TypeError, "callable"):
            helpers.TrackedLambda(3)


if __name__ == "__main__":
    tf.test.main()
