import unittest

import tensorflow as tf

from testing.conformance import sizes
from testing.conformance import suite
from testing.conformance.cases import Case
from testing.conformance.cases import floats


class FirstRows(tf.keras.layers.Layer):
    """Has a slice that XLA refuses where there are fewer rows."""

    def call(self, inputs):
        return tf.cond(
            tf.shape(inputs)[0] < 4,
            lambda: inputs,
            lambda: tf.slice(inputs, [0, 0], [4, 3]),
        )


class OneMore(tf.keras.layers.Layer):
    """Returns a row for an empty batch."""

    def call(self, inputs):
        missing = tf.maximum(1 - tf.shape(inputs)[0], 0)
        return tf.pad(inputs, [[0, missing], [0, 0]])


class SizesTest(unittest.TestCase):
    def _prepare(self, layer_class):
        case = Case(
            layer_class, {}, {"inputs": floats("batch", 3)}, (("batch", 3),)
        )
        return suite.Suite(__name__, {"it": case})["it"]

    def test_good_layer(self):
        prepared = self._prepare(tf.keras.layers.Flatten)
        sizes.check_compiled(prepared)
        sizes.check_empty(prepared)

    def test_slice_of_more_rows_than_there_are(self):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "size.0."):
            sizes.check_compiled(self._prepare(FirstRows))

    def test_wrong_shape_of_an_empty_output(self):
        with self.assertRaisesRegex(AssertionError, "without batch"):
            sizes.check_empty(self._prepare(OneMore))


if __name__ == "__main__":
    unittest.main()
