"""Queries graphs and gradients through TensorFlow's private modules.

No other module of the package imports private modules. If a TensorFlow version
lacks a private function, a query returns the answer that keeps results correct,
and warns once about the cost.
"""

import functools
import importlib
import warnings
from collections.abc import Sequence

import tensorflow as tf

_PRIVATE = "tensorflow.python"


def is_forward_mode(tensors: Sequence) -> bool:
    """Returns whether a `tf.autodiff.ForwardAccumulator` watches a tensor.

    Args:
        tensors: float tensors.
    """
    # No public function tells which tensors an accumulator watches.
    pack_tangents = _find(
        "eager.forwardprop_util",
        "pack_tangents",
        "derivatives are TensorFlow's own and need more memory",
    )
    if pack_tangents is None:
        return True
    return bool(pack_tangents(list(tensors)).tangents)


def has_several_tapes(tensors: Sequence) -> bool:
    """Returns whether gradients of these tensors may be differentiated again.

    Args:
        tensors: float tensors.
    """
    # No public function tells how many tapes record.
    consequence = "layers share no graphs, so building a model takes longer"
    kinds = _find(
        "ops.gradients_util", "PossibleTapeGradientTypes", consequence
    )
    higher_order = _find(
        "ops.gradients_util",
        "POSSIBLE_GRADIENT_TYPES_HIGHER_ORDER",
        consequence,
    )
    if kinds is None or higher_order is None:
        return True
    return kinds(tensors) == higher_order


def is_compiled_whole() -> bool:
    """Returns whether XLA compiles the whole graph that is being built."""
    # No public function tells which graphs XLA will compile.
    is_in_xla = _find(
        "ops.control_flow_util",
        "GraphOrParentsInXlaContext",
        "layers share no graphs, and graphs do not check their inputs",
    )
    if is_in_xla is None:
        return not tf.executing_eagerly()
    return is_in_xla(tf.compat.v1.get_default_graph())


def is_vectorized() -> bool:
    """Returns whether TensorFlow vectorizes the current function over a loop.

    `tf.vectorized_map` and a tape's `jacobian` do this. Operations inside lose
    their custom gradients, and higher derivatives of loops would be wrong.
    """
    # TensorFlow has no function for this, public or private. It builds the loop
    # body in the name scope `loop_body` (`loop_body_1` for the next loop of a
    # graph), whose first operation is the loop counter. A user's scope of the
    # same name lacks the counter.
    if tf.executing_eagerly():
        return False
    scopes = tf.get_current_name_scope().split("/")
    return any(
        scope.startswith("loop_body")
        and _has_counter("/".join(scopes[: i + 1]))
        for i, scope in enumerate(scopes)
    )


def _has_counter(scope):
    """Tells whether a scope starts with the counter of a vectorized loop."""
    graph = tf.compat.v1.get_default_graph()
    # A `tf.while_loop` or `tf.cond` in the body has its own graph, with the
    # scope of the outer graph.
    while graph is not None and _is_within(graph.get_name_scope(), scope):
        try:
            counter = graph.get_operation_by_name(
                f"{scope}/PlaceholderWithDefault"
            )
        except KeyError:
            graph = getattr(graph, "outer_graph", None)
            continue
        (output,) = counter.outputs
        return (
            counter.type == "PlaceholderWithDefault"
            and output.dtype == tf.int32
            and output.shape == ()
            and tf.get_static_value(counter.inputs[0]) == 0
        )
    return False


def _is_within(inner, outer):
    return f"{inner}/".startswith(f"{outer}/")


@functools.cache
def _find(module, name, consequence):
    """Returns a private attribute; if it is missing, warns and returns None."""
    try:
        return getattr(importlib.import_module(f"{_PRIVATE}.{module}"), name)
    except (ImportError, AttributeError):
        warnings.warn(
            f"TensorFlow {tf.__version__} has no {_PRIVATE}.{module}.{name}: "
            f"{consequence}.",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
