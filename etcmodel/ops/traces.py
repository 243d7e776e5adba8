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

    Args:
        function: from tensors, and other hashable arguments, to tensors. It
            keeps nothing of the graph that it is called in.
        is_inlined: whether TensorFlow copies the trace to where it is called,
            and optimizes every copy. What the copy keeps for its gradient is
            freed piece by piece; what a call keeps, when its gradient is done.

    Returns:
        A `tf.function`.
    """
    return tf.function(
        function,
        autograph=False,
        # A trace of its own for each size would be none for all.
        reduce_retracing=True,
        experimental_attributes=None if is_inlined else {"_noinline": True},
    )


def once_method(method: Callable) -> Callable:
    """Makes graphs call a trace of a method, one for each object.

    It is no attribute of the object: a SavedModel of a `tf.Module` would store
    it. The object can be freed.

    Args:
        method: of an object; as for `once`.

    Returns:
        As `once` returns it; the same whenever it is asked for.
    """
    traced = _methods.setdefault(method.__self__, {})
    name = method.__name__
    if name not in traced:
        reference = weakref.WeakMethod(method)
        traced[name] = once(lambda *args: reference()(*args))
    return traced[name]
