import pytest
import tensorflow as tf

from etcmodel.layers.tracked_lambda import TrackedLambda


class TrackedLambdaTest(tf.test.TestCase):
    def test_tracks_dependencies(self):
        dense = tf.keras.layers.Dense(3)
        dense.build((None, 2))

        def times_2(x):
            return 2 * dense(x)

        layer = TrackedLambda(times_2, dependencies=[dense])
        inputs = tf.ones([4, 2])
        self.assertAllClose(2 * dense(inputs), layer(inputs))
        self.assertLen(layer.trainable_variables, 2)

    @pytest.mark.both_kerases
    def test_tracks_variables_or_says_that_it_cannot(self):
        variable = tf.Variable(2.0)

        def make():
            return TrackedLambda(
                lambda x: x * variable, dependencies=[variable]
            )

        if hasattr(tf.keras, "__version__"):
            with self.assertRaisesRegex(TypeError, "add_weight"):
                make()
        else:
            self.assertIs(variable, make().trainable_variables[0])
        dense = tf.keras.layers.Dense(3)
        dense.build((None, 2))
        layer = TrackedLambda(
            lambda x: tf.matmul(x, dense.kernel), dependencies=[dense.kernel]
        )
        self.assertLen(layer.trainable_variables, 1)

    def test_forwards_arguments(self):
        def function(x, y=None, training=None):
            return x + y if training else x - y

        layer = TrackedLambda(function)
        x = tf.constant([3.0])
        y = tf.constant([1.0])
        self.assertAllClose([4.0], layer(x, y=y, training=True))
        self.assertAllClose([2.0], layer(x, y=y, training=False))

    def test_errors(self):
        with self.assertRaisesRegex(NotImplementedError, "registered"):
            TrackedLambda(lambda x: x).get_config()
        with self.assertRaisesRegex(TypeError, "callable"):
            TrackedLambda(3)


if __name__ == "__main__":
    tf.test.main()
