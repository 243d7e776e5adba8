"""Graphs that are built once for all layers of one kind.

Most of the operations of a layer are in a few functions that hold no weights:
attention, products with an activation between, normalization. Where a model's
graph is built, each of them is traced once for a configuration and for the
shapes of its arguments, forward and backward, and called by every layer.
"""

import collections
import functools
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from etcmodel.attention import custom_gradients
from etcmodel.attention import elementwise_jit

# Of so many configurations the traced functions are kept, the last used ones.
MAX_CONFIGURATIONS = 256

_lock = threading.Lock()
_functions = collections.OrderedDict()


def clear() -> None:
    """Forgets what has been traced."""
    with _lock:
        _functions.clear()


def shared(
    function: Callable, settings: Callable[[], tuple] = tuple
) -> Callable:
    """Traces a function once for all calls with equal configurations.

    It is a `tf.function` where a graph is being built. It runs as it is in
    eager mode, in forward mode, where TensorFlow alone differentiates or
    vectorizes, and for arguments that cannot be compared.

    Args:
        function: from arguments to tensors. Arguments are tensors, and lists,
            tuples, dicts and objects of `custom_gradients.replace_tensors`
            with tensors in them; all else in them is the configuration. It
            depends on nothing but its arguments and the settings.
        settings: gives the values of the constants that it depends on.

    Returns:
        The function, which takes positional arguments.
    """

    @functools.wraps(function)
    @tf.autograph.experimental.do_not_convert
    def call(*args):
        if (
            tf.executing_eagerly()
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
            settings(),
            elementwise_jit.state(),
            custom_gradients.is_forward_only(),
        )
        return _traced(key, function, args)(*tensors)

    return call


def _traced(key, function, args):
    """The `tf.function` of a configuration, of tensors alone."""
    with _lock:
        if key in _functions:
            _functions.move_to_end(key)
            return _functions[key]
    # The graph of these arguments is not to be kept alive.
    template = custom_gradients.replace_tensors(args, lambda _: _Slot)

    def run(*tensors):
        remaining = iter(tensors)
        inside = custom_gradients.replace_tensors(
            template, lambda _: next(remaining), lambda x: x is _Slot
        )
        with custom_gradients.no_forward_mode():
            return function(*inside)

    traced = tf.function(run, autograph=False, reduce_retracing=False)
    with _lock:
        _functions[key] = traced
        if len(_functions) > MAX_CONFIGURATIONS:
            _functions.popitem(last=False)
    return traced


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
