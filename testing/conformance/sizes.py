"""Checks layers with unknown sizes under XLA, and with empty inputs."""

import numpy as np
import tensorflow as tf

from testing.conformance.cases import OTHER_SIZES
from testing.conformance.cases import SIZES
from testing.conformance.cases import assert_close
from testing.conformance.cases import flatten
from testing.conformance.cases import shape_of
from testing.conformance.cases import tf_variable
from testing.conformance.cases import unknown_sizes
from testing.conformance.suite import Prepared


def make_step(prepared: Prepared):
    """Returns a function that calls a layer and computes all its gradients.

    The function takes inputs by name. It returns the outputs, and the gradients
    of the sum of their squares for all float inputs and trainable weights.
    """
    case, layer = prepared.case, prepared.layer
    options = {"training": False} if case.takes_training() else {}

    def step(inputs):
        sources = [x for x in inputs.values() if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            sources += map(tf_variable, layer.trainable_variables)
            outputs = case.call(layer, inputs, **options)
            loss = tf.zeros([])
            for output in outputs:
                if output.dtype.is_floating:
                    loss += tf.reduce_sum(tf.square(output))
        gradients = tape.gradient(
            loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return outputs, [tf.convert_to_tensor(x) for x in gradients]

    return step


def check_compiled(prepared: Prepared) -> None:
    """Checks that XLA compiles forward and backward pass for unknown sizes.

    The batch has one example, since XLA treats axes of size 1 specially.
    """
    case = prepared.case
    specs = {
        name: tf.TensorSpec(value.shape(unknown_sizes()), value.dtype)
        for name, value in case.inputs.items()
    }
    step = make_step(prepared)
    compiled = tf.function(
        step, input_signature=[specs], jit_compile=True, autograph=False
    )
    inputs = case.make_inputs(OTHER_SIZES[0])
    assert_close(compiled(inputs), step(inputs), 1e-4, "of XLA")


def check_empty(prepared: Prepared) -> None:
    """Checks the shapes and gradients of empty inputs."""
    case = prepared.case
    axes = {x for value in case.inputs.values() for x in value.axes}
    step = make_step(prepared)
    for axis in sorted(axes & set(SIZES) - set(case.never_empty)):
        sizes = {**SIZES, axis: 0}
        inputs = case.make_inputs(sizes)
        results = {
            "eagerly": step(inputs),
            "in a functional model": (prepared.model(inputs), []),
        }
        if axis == "batch":
            specs = {x: tf.TensorSpec.from_tensor(y) for x, y in inputs.items()}
            in_graph = tf.function(
                step, input_signature=[specs], autograph=False
            )
            results["in a graph"] = in_graph(inputs)
        for how, (outputs, gradients) in results.items():
            for x in flatten([outputs, gradients]):
                assert np.all(np.isfinite(np.array(x))), (axis, how, x)
            shapes = 2 * [shape_of(x, sizes) for x in case.outputs]
            for output, shape in zip(flatten(outputs), shapes, strict=False):
                assert tf.TensorShape(shape).is_compatible_with(output.shape), (
                    f"{how} without {axis}: {output.shape}, expected {shape}"
                )
