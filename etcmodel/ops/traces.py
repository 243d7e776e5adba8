"""Functions that graphs call rather than hold copies of.

TensorFlow inlines the functions that a graph calls, and optimizes every copy.
Those made here are traced once, and optimized once.
"""

import weakref
from collections.abc import Callable

import tensorflow as tf

# Object -> name of a method -> the method, traced.
_methods = weakref.WeakKeyDictionary()


def once(function: Callable, is_inlined: bool = False) -> Callable:
    """Makes graphs call a trace of a function.

    The function takes tensors, and other hashable arguments, and keeps nothing
    of the graph that it is called in. If it `is_inlined`, TensorFlow copies the
    trace to where it is called, and optimizes every copy. What the copy keeps
    for its gradient is freed piece by piece; what a call keeps, when its
    gradient is done.
    """
    return tf.function(
        function,
        autograph=False,
        # A trace of its own for each size would be none for all.
        reduce_retracing=True,
        experimental_attributes=None if is_inlined else {"_noinline": True},
    )


def once_method(method: Callable) -> Callable:
    """Makes graphs call a trace of a method, the same one for each object.

    It is no attribute of the object, as a SavedModel would store it.
    """
    traced = _methods.setdefault(method.__self__, {})
    name = method.__name__
    if name not in traced:
        reference = weakref.WeakMethod(method)
        traced[name] = once(lambda *args: reference()(*args))
    return traced[name]
