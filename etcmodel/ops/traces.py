"""Functions that graphs call instead of holding copies.

TensorFlow inlines the functions that a graph calls, and optimizes every copy.
Functions of this module are traced once and optimized once.
"""

import weakref
from collections.abc import Callable

import tensorflow as tf

# Object -> name of a method -> the method, traced.
_methods = weakref.WeakKeyDictionary()


def once(function: Callable, is_inlined: bool = False) -> Callable:
    """Makes graphs call a trace of a function.

    The function takes tensors and other hashable arguments, and keeps nothing
    of the calling graph. If it `is_inlined`, TensorFlow copies the trace into
    the caller and optimizes every copy. Tensors that a copy keeps for its
    gradient are freed one by one; those of a call, when its gradient is done.
    """
    return tf.function(
        function,
        autograph=False,
        # A separate trace for each size would defeat the purpose.
        reduce_retracing=True,
        experimental_attributes=None if is_inlined else {"_noinline": True},
    )


def once_method(method: Callable) -> Callable:
    """Makes graphs call a trace of a method, shared by all objects.

    It is not an attribute of the object, since a SavedModel would store it.
    """
    traced = _methods.setdefault(method.__self__, {})
    name = method.__name__
    if name not in traced:
        reference = weakref.WeakMethod(method)
        traced[name] = once(lambda *args: reference()(*args))
    return traced[name]
