"""Builds one graph for all layers with the same configuration and shapes.

Attention, dense layers and normalization contain most operations of a model.
They take their weights as arguments and are traced once for each configuration
and set of shapes, forward and backward. All layers in all graphs call this
trace: a model that is exported after training reuses the traces of its
evaluation.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from etcmodel.ops import compilation
from etcmodel.ops import custom_gradients
from etcmodel.ops import tensorflow_internals
from etcmodel.ops import traces

# Key -> `tf.function`, the most recently used one last. A `tf.function` keeps
# separate traces for different devices and strategies.
_functions = {}
# Training a model uses about ten functions.
_MAX_FUNCTIONS = 128
_lock = threading.Lock()
_is_inlined = False


@contextlib.contextmanager
def inlined():
    """Builds graphs with copies of the operations instead of calls.

    Converters to other formats cannot read function calls. The setting applies
    when a graph is built, in all threads.
    """
    global _is_inlined
    before, _is_inlined = _is_inlined, True
    try:
        yield
    finally:
        _is_inlined = before


def shared(function: Callable, is_inlined: bool = False) -> Callable:
    """Traces a function once for equal configurations and shapes.

    A call runs the function itself, without a trace,

    * in eager mode, in forward mode, inside `plain` functions (see
      `custom_gradients`), and in loops that TensorFlow vectorizes;
    * if several tapes or a persistent tape record: TensorFlow would also trace
      higher derivatives, which keep all attention scores;
    * in a graph that XLA compiles as a whole: function calls would double the
      compile time and need 1.5 times the memory;
    * within `inlined`;
    * if the arguments are not hashable.

    Arguments are tensors or structures of tensors (see
    `custom_gradients.replace_tensors`). All other values in them form the
    configuration and must be hashable. The function must depend on nothing
    else. For `is_inlined`, see `traces.once`.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    @tf.autograph.experimental.do_not_convert
    def call(*args, **kwargs):
        if (
            tf.executing_eagerly()
            or _is_inlined
            or tensorflow_internals.is_compiled_whole()
            or custom_gradients.is_plain()
            or tensorflow_internals.is_vectorized()
        ):
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        args, tensors = bound.args, []
        try:
            configuration = _describe(args, tensors)
            hash(configuration)
        except TypeError:
            return function(*args)
        if not custom_gradients.is_forward_only():
            floats = [x for x in tensors if x.dtype.is_floating]
            if tensorflow_internals.has_several_tapes(
                floats
            ) or tensorflow_internals.is_forward_mode(floats):
                return function(*args)
        key = (
            function,
            configuration,
            # Without the sizes, a `tf.function` would reuse a trace of unknown
            # sizes when sizes are known.
            tuple((x.dtype, _sizes(x)) for x in tensors),
            compilation.state(),
            custom_gradients.is_forward_only(),
        )
        return _traced(key, function, args, is_inlined)(*tensors)

    return call


def is_inlined() -> bool:
    """Tells whether `inlined` is active."""
    return _is_inlined


def _traced(key, function, args, is_inlined):
    with _lock:
        found = _functions.pop(key, None) or _make_function(
            function, args, is_inlined
        )
        # The most recently used function moves to the end.
        _functions[key] = found
        while len(_functions) > _MAX_FUNCTIONS:
            del _functions[next(iter(_functions))]
    return found


def _make_function(function, args, is_inlined):
    # The template holds no tensors, so that the caller's graph can be freed.
    template = custom_gradients.replace_tensors(args, lambda _: _Slot)

    def run(*tensors):
        remaining = iter(tensors)
        inside = custom_gradients.replace_tensors(
            template, lambda _: next(remaining), lambda x: x is _Slot
        )
        return function(*inside)

    return traces.once(run, is_inlined)


def _sizes(tensor):
    shape = tensor.shape
    return None if shape.rank is None else tuple(shape.as_list())


class _Slot:
    """Placeholder for a tensor in a structure."""


def _describe(value, tensors):
    """Returns a hashable description; appends the tensors to `tensors`."""
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
    # 2 and 2.0 are equal, but make different graphs.
    return type(value), value
