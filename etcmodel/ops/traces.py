"""Makes graphs call functions instead of containing copies of them.

By default, TensorFlow inlines each function that a graph calls, and optimizes
every copy. The functions made here are traced once and optimized once.
"""

import functools
import weakref
from collections.abc import Callable

import tensorflow as tf

# Object -> method name -> traced method.
_methods = weakref.WeakKeyDictionary()


def once(function: Callable, is_inlined: bool = False) -> Callable:
    """Makes graphs call a trace of a function; eager calls run the function.

    The function takes tensors and hashable Python values, and must not keep
    anything of the calling graph. With `is_inlined`, TensorFlow copies the
    trace into the caller and optimizes every copy. This can save memory:
    tensors that a copy keeps for its gradient are freed one by one; tensors
    that a call keeps are freed only after its whole gradient is computed.
    """
    traced = tf.function(
        function,
        autograph=False,
        # All sizes share a trace; a trace for each size would defeat the
        # purpose.
        reduce_retracing=True,
        experimental_attributes=None if is_inlined else {"_noinline": True},
    )

    @functools.wraps(function)
    def call(*args):
        # TensorFlow would warn about traces for tensors of different types.
        return (function if tf.executing_eagerly() else traced)(*args)

    return call


def once_method(method: Callable) -> Callable:
    """Makes graphs call a trace of a method, one trace for each object.

    The trace is not an attribute of the object: a SavedModel would store it.
    """
    traced = _methods.setdefault(method.__self__, {})
    name = method.__name__
    if name not in traced:
        reference = weakref.WeakMethod(method)
        traced[name] = once(lambda *args: reference()(*args))
    return traced[name]
