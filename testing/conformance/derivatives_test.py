import unittest

import tensorflow as tf

from testing.conformance import cases
from testing.conformance import derivatives
from testing.conformance import suite


def _wrong_first(x):
    return x**3, lambda upstream: 3.1 * x * x * upstream


def _wrong_second(x):
    constant = tf.stop_gradient(x)
    return x**3, lambda upstream: 3.0 * constant * constant * upstream


def _wrong_in_forward_mode(x):
    return tf.stop_gradient(x) ** 3, lambda upstream: (
        tf.custom_gradient(lambda x, up: (3.0 * x * x * up, _of_slope(x, up)))
    )(x, upstream)


def _of_slope(x, up):
    return lambda upstream: (6.0 * x * up * upstream, 4.0 * x * x * upstream)


class _Layer(tf.keras.layers.Layer):
    """The cubes of what it multiplies, with some gradient."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def build(self, input_shape):
        self.factor = self.add_weight(
            shape=[input_shape[-1]], initializer="ones", name="factor"
        )

    def call(self, inputs):
        return self.function(inputs * self.factor)


def _check(function):
    case = cases.Case(
        _Layer,
        dict(function=function),
        dict(inputs=cases.floats("batch", 3)),
        (("batch", 3),),
    )
    derivatives.check_derivatives(suite.Suite(__name__, {"it": case})["it"])


class DerivativesTest(unittest.TestCase):
    def test_right_derivatives(self):
        _check(lambda x: x**3)

    def test_wrong_derivatives(self):
        for function, what in (
            (_wrong_first, "first derivatives"),
            (_wrong_second, "second derivatives"),
            (_wrong_in_forward_mode, "forward mode"),
        ):
            with self.assertRaisesRegex(AssertionError, what):
                _check(tf.custom_gradient(function))


if __name__ == "__main__":
    unittest.main()
