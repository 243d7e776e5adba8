"""Functions with a hand-written backward pass.

A hand-written backward pass stores less than TensorFlow's own. It computes
first derivatives only. Higher derivatives and forward mode use TensorFlow's
gradients of the function, which are correct but save no memory.
"""

import contextlib
import copy
import enum
import functools
import threading
from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.ops import tensorflow_internals

_is_forward_only = False
_state = threading.local()


@contextlib.contextmanager
def forward_only():
    """Builds graphs without the hand-written backward passes.

    Use it to export a graph for inference: a SavedModel would otherwise store
    the backward passes, too, or warn when it is loaded. The setting applies
    when a graph is built, in all threads, including those of a strategy's
    replicas. Gradients of such a graph are TensorFlow's own and need more
    memory.
    """
    global _is_forward_only
    before, _is_forward_only = _is_forward_only, True
    try:
        yield
    finally:
        _is_forward_only = before


def custom_gradient(
    function: Callable, plain: Callable | None = None
) -> Callable:
    """Works like `tf.custom_gradient`, but supports derivatives of any order.

    The backward pass that `function` returns computes the first derivatives. If
    these are differentiated again, or a `tf.autodiff.ForwardAccumulator`
    watches the inputs, TensorFlow's gradients of `plain` are used. Within
    `forward_only`, the backward pass is left out. In eager mode, a tape does
    not store the function's intermediate results (with `tf.custom_gradient`,
    it does).

    Args:
        function: takes float tensors; returns its output (or outputs) and a
            function that maps the outputs' gradients to the inputs' gradients.
        plain: computes the same outputs from the same tensors, without loops,
            with operations that TensorFlow can differentiate at any order. None
            to use the output of `function`.

    Returns:
        A function that maps the tensors to the outputs. If `function` and
        `plain` need further tensors, pass them as `captured`: an object of this
        package, or a list or dict of such objects. The two functions must not
        capture tensors of a graph in any other way.
    """

    def without_gradient(*tensors, **captured):
        before = is_plain()
        _state.is_plain = True
        try:
            if plain is not None:
                return plain(*tensors, **captured)
            return function(*tensors, **captured)[0]
        finally:
            _state.is_plain = before

    @functools.wraps(function)
    def call(*tensors, **captured):
        if _is_forward_only:
            return function(*tensors, **captured)[0]
        if is_plain() or tensorflow_internals.is_vectorized():
            return without_gradient(*tensors, **captured)
        return _call(function, without_gradient, _distinct(tensors), captured)

    return call


def is_forward_only() -> bool:
    """Tells whether `forward_only` is active."""
    return _is_forward_only


def is_plain() -> bool:
    """Tells whether the caller runs inside a `plain` function."""
    return getattr(_state, "is_plain", False)


def _call(function, plain, tensors, captured):
    is_eager = tf.executing_eagerly()

    def forward(*tensors):
        outputs, grad = function(*_stopped(tensors), **captured)

        def backward(*upstream):
            # Incoming gradients may be sparse (`tf.IndexedSlices`).
            upstream = [tf.convert_to_tensor(x) for x in upstream]
            if (
                tensorflow_internals.is_vectorized()
                or is_eager != tf.executing_eagerly()
            ):
                return vjp(
                    lambda *inputs: plain(*inputs, **captured),
                    tensors,
                    upstream,
                )
            return _backward(grad, plain, tensors, upstream, captured)

        return outputs, backward

    return recorded(
        forward, lambda *inputs: plain(*inputs, **captured), tensors
    )


def _backward(grad, plain, tensors, upstream, captured):
    number = len(tensors)
    inputs = _in_this_graph([*tensors, *upstream])
    # Captured here, because a graph that differentiates the gradients again
    # can only reach tensors of this graph.
    others = []
    replace_tensors(captured, others.append)
    others = _in_this_graph(others)

    def gradients(*inputs):
        remaining = iter(others)
        inside = replace_tensors(captured, lambda _: next(remaining))
        return vjp(
            lambda *tensors: plain(*tensors, **inside),
            inputs[:number],
            inputs[number:],
        )

    def forward(*inputs):
        found = grad(*_stopped(inputs[number:]))
        return tf.nest.flatten(found), lambda *upstream: vjp(
            gradients, inputs, upstream
        )

    return recorded(forward, gradients, inputs)


def replace_tensors(
    value, replace: Callable, is_tensor: Callable = tf.is_tensor
):
    """Copies a structure and replaces the tensors in it.

    A structure is a tensor, or a (nested) dict, list, tuple or object whose
    class is defined in this package or derived from such a class. Other values
    are kept. `replace` is called for each value that `is_tensor` accepts.
    """
    if is_tensor(value):
        return replace(value)
    if isinstance(value, dict):
        return {
            k: replace_tensors(v, replace, is_tensor) for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        items = [replace_tensors(v, replace, is_tensor) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    if is_structure(value):
        result = copy.copy(value)
        vars(result).update(replace_tensors(vars(value), replace, is_tensor))
        return result
    return value


def is_structure(value) -> bool:
    """Tells whether `replace_tensors` looks at an object's attributes."""
    # Layers and functions are callable.
    if callable(value) or isinstance(value, tf.Module | enum.Enum):
        return False
    return any(
        c.__module__.startswith("etcmodel.") for c in type(value).__mro__
    )


def recorded(forward: Callable, plain: Callable, tensors: Sequence):
    """Runs a function with a custom gradient; in forward mode, without it.

    Forward mode would differentiate the operations inside or the backward
    pass, which fails if they contain loops or tapes. `forward` returns the
    outputs and their backward pass. `plain` computes the same outputs as
    `forward` with differentiable operations.
    """
    if tensorflow_internals.is_forward_mode(tensors):
        return plain(*tensors)
    return tf.custom_gradient(forward)(*tensors)


def vjp(function: Callable, inputs: Sequence, upstream: Sequence) -> list:
    """Computes gradients for `inputs` that can be differentiated again."""
    if not tf.executing_eagerly():
        # Tapes record nothing while TensorFlow builds functions for forward
        # mode, so use `tf.gradients`. Identities separate inputs that depend on
        # each other.
        inputs = [tf.identity(x) for x in inputs]
        return tf.gradients(
            tf.nest.flatten(function(*inputs)),
            inputs,
            list(upstream),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = tf.nest.flatten(function(*inputs))
    return tape.gradient(
        outputs,
        list(inputs),
        list(upstream),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )


def _distinct(tensors):
    """Copies repeated tensors, so that each occurrence has a gradient."""
    seen = {}
    return [
        tf.identity(x) if seen.setdefault(id(x), i) != i else x
        for i, x in enumerate(tensors)
    ]


def _stopped(tensors):
    """Hides tensors from tapes in eager mode, to save memory."""
    if not tf.executing_eagerly():
        # In a vectorized loop, such as for a Jacobian, operations lose their
        # custom gradients, so the gradients must flow through these tensors.
        return tensors
    return [tf.stop_gradient(x) for x in tensors]


def _in_this_graph(tensors):
    """Captures tensors into the current graph."""
    if tf.executing_eagerly():
        return tensors
    graph = tf.compat.v1.get_default_graph()
    return [
        x if getattr(x, "graph", None) is graph else tf.identity(x)
        for x in tensors
    ]
