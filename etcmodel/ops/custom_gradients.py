"""Functions with a hand-written backward pass.

A hand-written backward pass stores less than TensorFlow's own, and gives first
derivatives. Second and higher derivatives and forward mode use TensorFlow's
gradients of the same function without the hand-written pass. They are correct,
and need the memory of these gradients.
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

    For graphs that are exported for inference: a stored function with its own
    backward pass stores that, too, or warns when it is loaded. It applies when
    a graph is built, in all threads, including those of a strategy's replicas.
    Gradients of such a graph are TensorFlow's own, with the memory that they
    need.
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
    """Works like `tf.custom_gradient`, with correct derivatives of any order.

    The backward pass that `function` returns gives the first derivatives. If
    these are differentiated again, or a `tf.autodiff.ForwardAccumulator`
    watches the inputs, TensorFlow's gradients of `plain` are used. Within
    `forward_only` there is no backward pass. In eager mode, unlike with
    `tf.custom_gradient`, a tape does not store the function's intermediate
    results.

    Args:
        function: takes float tensors, and returns an output (or several) and a
            function from the outputs' gradients to those of the inputs.
        plain: maps the same tensors to the same outputs, by operations that
            TensorFlow can differentiate at any order, without loops. None to
            use the output of `function`.

    Returns:
        The function from tensors to the outputs. Other tensors that both
        functions need are passed as `captured`: an object of this package, or a
        list or dict of such objects. Without it the functions must not capture
        tensors of a graph.
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
    """Tells whether graphs are built without backward passes."""
    return _is_forward_only


def is_plain() -> bool:
    """Tells whether this is inside a `plain` function."""
    return getattr(_state, "is_plain", False)


def _call(function, plain, tensors, captured):
    is_eager = tf.executing_eagerly()

    def forward(*tensors):
        outputs, grad = function(*_stopped(tensors), **captured)

        def backward(*upstream):
            # The gradients may be sparse.
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
    # A graph in which gradients are differentiated again only knows this one.
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
    """Copies a structure, with other tensors in it.

    The structure is a tensor, or a (nested) dict, list, tuple or object of a
    class of this package, or derived from one; anything else is kept.
    `is_tensor` says which values `replace` is called for.
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

    Forward mode would differentiate the operations inside, or the backward
    pass, and fails at loops and tapes in them. `forward` returns outputs and
    their backward pass, `plain` the same outputs by differentiable operations.
    """
    if tensorflow_internals.is_forward_mode(tensors):
        return plain(*tensors)
    return tf.custom_gradient(forward)(*tensors)


def vjp(function: Callable, inputs: Sequence, upstream: Sequence) -> list:
    """Computes gradients of `inputs` that can be differentiated again."""
    if not tf.executing_eagerly():
        # Without a tape: tapes record nothing where TensorFlow builds functions
        # for forward mode. Identities, as inputs may depend on each other.
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
    """Hides tensors from tapes, where that saves memory: eagerly."""
    if not tf.executing_eagerly():
        # In a vectorized loop, as for a Jacobian, operations lose their own
        # gradients, and those of earlier operations are needed.
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
