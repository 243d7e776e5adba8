"""Graphs that are built once for all layers of one kind.

Most of the operations of a layer are in a few functions that hold no weights:
attention, products with an activation between, normalization. Where a model's
graph is built, each of them is traced once for a configuration and for the
shapes of its arguments, forward and backward, and called by every layer.
"""

import functools
import threading
import weakref
from collections.abc import Callable

import numpy as np
import tensorflow as tf

# TensorFlow tells it nowhere else.
from tensorflow.python.ops import control_flow_util

from etcmodel.attention import custom_gradients
from etcmodel.attention import elementwise_jit

# Graph -> what has been traced for it. Not for all graphs together, as they
# differ in more than can be seen here, such as devices and strategies.
_functions = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def shared(function: Callable) -> Callable:
    """Traces a function once for all calls in a graph that are of one kind.

    It is a `tf.function` where a graph is being built. It runs as it is in
    eager mode, in forward mode, where TensorFlow alone differentiates or
    vectorizes, for arguments that cannot be compared, and where XLA compiles
    all of a graph: functions called in it would take twice as long to compile,
    and half as much memory again.

    Args:
        function: from arguments to tensors. Arguments are tensors, and lists,
            tuples, dicts and objects of `custom_gradients.replace_tensors`
            with tensors in them; all else in them is the configuration. It
            depends on nothing but its arguments.

    Returns:
        The function, which takes positional arguments.
    """

    @functools.wraps(function)
    @tf.autograph.experimental.do_not_convert
    def call(*args):
        if (
            tf.executing_eagerly()
            or is_compiled_whole()
            or custom_gradients.is_plain()
            or custom_gradients.is_vectorized()
        ):
            return function(*args)
        tensors = []
        try:
            configuration = _describe(args, tensors)
            hash(configuration)
        except TypeError:
            return function(*args)
        floats = [x for x in tensors if x.dtype.is_floating]
        if custom_gradients.is_forward_mode(floats):
            return function(*args)
        key = (
            function,
            configuration,
            # Of its own functions, one `tf.function` would take what has been
            # traced for unknown sizes for known ones, too.
            tuple((x.dtype, _sizes(x)) for x in tensors),
            elementwise_jit.state(),
            custom_gradients.is_forward_only(),
        )
        return _traced(key, function, args)(*tensors)

    return call


def is_compiled_whole() -> bool:
    """Returns whether XLA compiles all of the graph that is being built."""
    return control_flow_util.GraphOrParentsInXlaContext(
        tf.compat.v1.get_default_graph()
    )


def _traced(key, function, args):
    """The `tf.function` of a configuration, of tensors alone."""
    graph = tf.compat.v1.get_default_graph()
    with _lock:
        functions = _functions.setdefault(graph, {})
    if key not in functions:
        functions[key] = _make_function(function, args)
    return functions[key]


def _make_function(function, args):
    """A `tf.function` of the tensors in the arguments."""
    # The graph of these arguments is not to be kept alive.
    template = custom_gradients.replace_tensors(args, lambda _: _Slot)

    def run(*tensors):
        remaining = iter(tensors)
        inside = custom_gradients.replace_tensors(
            template, lambda _: next(remaining), lambda x: x is _Slot
        )
        with custom_gradients.no_forward_mode():
            return function(*inside)

    return tf.function(run, autograph=False)


def _sizes(tensor):
    """The static shape, hashable."""
    shape = tensor.shape
    return None if shape.rank is None else tuple(shape.as_list())


class _Slot:
    """Where a tensor belongs."""


def _describe(value, tensors):
    """All of a structure but its tensors, hashable, and these as a list."""
    if tf.is_tensor(value):
        tensors.append(tf.convert_to_tensor(value))
        return _Slot
    if isinstance(value, dict):
        return dict, tuple((k, _describe(v, tensors)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(_describe(v, tensors) for v in value)
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype.str, value.shape, value.tobytes()
    if custom_gradients.is_structure(value):
        return type(value), _describe(vars(value), tensors)
    # Equal numbers of other types make other graphs.
    return type(value), value
