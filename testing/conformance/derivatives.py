"""Checks derivatives against finite differences of the layer's outputs.

Covers first and second derivatives and forward mode, in float64.
"""

import contextlib

import numpy as np
import tensorflow as tf

from testing.conformance.cases import flatten
from testing.conformance.cases import randomize
from testing.conformance.cases import tf_variable
from testing.conformance.suite import Prepared

# Dtype of the outputs -> step of the finite difference, and tolerance relative
# to the largest value. Some heads always return float32.
_STEPS = {tf.float64: (1e-5, 1e-6), tf.float32: (1e-3, 1e-2)}


class _Function:
    """A random weighted sum of outputs, as a function of inputs and weights."""

    def __init__(self, case):
        self.case = case
        self.layer = case.make_layer(dtype="float64")
        self.inputs = {
            name: tf.cast(x, tf.float64) if x.dtype.is_floating else x
            for name, x in case.make_inputs().items()
        }
        self.options = {"training": False} if case.takes_training() else {}
        case.call(self.layer, self.inputs, **self.options)
        randomize(self.layer)
        self.names = [k for k, x in self.inputs.items() if x.dtype.is_floating]
        self.variables = [
            tf_variable(x) for x in self.layer.trainable_variables
        ]
        # Some sublayers always compute in float32.
        self.dtype = min(
            [tf.float64, *(x.dtype for x in self.variables)], key=_size
        )
        generator = np.random.RandomState(11)
        self.point = [self.inputs[name] for name in self.names]
        self.direction = [
            tf.constant(generator.standard_normal(x.shape), x.dtype)
            for x in [*self.point, *self.variables]
        ]

    def value(self):
        """Computes `<float64>[]` at `point`."""
        inputs = self.inputs | dict(zip(self.names, self.point, strict=True))
        generator = np.random.RandomState(7)
        total = tf.zeros([], tf.float64)
        for output in flatten(
            self.case.call(self.layer, inputs, **self.options)
        ):
            if not output.dtype.is_floating:
                continue
            self.dtype = min(self.dtype, output.dtype, key=_size)
            factors = generator.standard_normal(output.shape)
            total += tf.reduce_sum(tf.cast(output, tf.float64) * factors)
        return total

    def gradient(self):
        sources = [*self.point, *self.variables]
        with tf.GradientTape() as tape:
            tape.watch(self.point)
            value = self.value()
        return [
            tf.convert_to_tensor(x)
            for x in tape.gradient(value, sources, unconnected_gradients="zero")
        ]

    def second(self):
        """Computes second derivatives along the direction, with two tapes."""
        sources = [*self.point, *self.variables]
        with tf.GradientTape() as tape:
            tape.watch(self.point)
            slope = _dot(self.gradient(), self.direction)
        return [
            tf.convert_to_tensor(x)
            for x in tape.gradient(slope, sources, unconnected_gradients="zero")
        ]

    def forward_mode(self):
        """Returns the derivative along the direction, `<float64>[]`."""
        sources = [*self.point, *self.variables]
        with tf.autodiff.ForwardAccumulator(
            sources, self.direction
        ) as accumulator:
            value = self.value()
        return accumulator.jvp(value, "zero")

    @contextlib.contextmanager
    def moved(self, step):
        """Moves inputs and variables by `step` along the direction."""
        point, variables = self.point, [x.numpy() for x in self.variables]
        moves = [tf.cast(step, x.dtype) * x for x in self.direction]
        number = len(point)
        self.point = [x + y for x, y in zip(point, moves, strict=False)]
        for x, move in zip(self.variables, moves[number:], strict=True):
            x.assign_add(move)
        yield
        self.point = point
        for x, value in zip(self.variables, variables, strict=True):
            x.assign(value)

    def difference(self, function, step) -> list[np.ndarray]:
        """Returns the central difference of a function along the direction."""
        values = []
        for sign in (1, -1):
            with self.moved(sign * step):
                values.append([np.array(x) for x in function()])
        return [(x - y) / (2 * step) for x, y in zip(*values, strict=True)]


def check_derivatives(prepared: Prepared) -> None:
    """Checks derivatives and forward mode against finite differences."""
    function = _Function(prepared.case)
    function.value()
    if not function.direction:
        return
    step, tolerance = _STEPS[function.dtype]
    slope = function.difference(lambda: [function.value()], step)
    _assert_close(
        [_dot(function.gradient(), function.direction)],
        slope,
        tolerance,
        "first derivatives",
    )
    _assert_close(
        function.second(),
        function.difference(function.gradient, step),
        tolerance,
        "second derivatives",
    )
    _assert_close([function.forward_mode()], slope, tolerance, "forward mode")


def _size(dtype):
    return dtype.size


def _dot(left, right):
    return tf.add_n(
        [
            tf.reduce_sum(tf.cast(x * y, tf.float64))
            for x, y in zip(left, right, strict=True)
        ]
    )


def _assert_close(actual, expected, tolerance, what):
    """Compares tensors; the tolerance is relative to the largest value."""
    scale = max(np.max(np.abs(x), initial=0.0) for x in expected)
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(
            np.array(x),
            y,
            rtol=0,
            atol=tolerance * max(scale, 1e-3),
            err_msg=what,
        )
