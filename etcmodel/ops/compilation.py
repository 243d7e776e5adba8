"""Compilation of the pieces for which it has been measured to help.

On a CPU, TensorFlow runs a chain of elementwise operations one by one, each
through memory; XLA makes one pass of them. Its matrix products, on the other
hand, are slower than TensorFlow's. So the layers compile only their chains of
elementwise operations (gelu, softmax, and their gradients), whatever is done
with the model around them.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Callable

import tensorflow as tf

# Compiling takes a tenth of a second or more and pays off on large tensors.
MIN_ELEMENTS = 2**18

_is_enabled = True
_state = threading.local()


@contextlib.contextmanager
def elementwise_jit(is_on: bool):
    """Switches the compilation of pieces on (the default) or off.

    It counts where a graph is built, in all threads, those of a strategy's
    replicas among them. A graph built with it off holds no compiled function:
    for servers that have XLA switched off on CPUs, as TensorFlow Serving has.
    """
    global _is_enabled
    before, _is_enabled = _is_enabled, is_on
    try:
        yield
    finally:
        _is_enabled = before


def is_enabled() -> bool:
    """Whether pieces may be compiled here."""
    return _is_enabled


def is_tracing_piece() -> bool:
    """Whether the code that asks is becoming part of a compiled piece."""
    return getattr(_state, "is_tracing_piece", False)


def state() -> tuple:
    """Returns the settings that a traced graph depends on."""
    return is_enabled(), is_tracing_piece()


def jit_if_large(function: Callable) -> Callable:
    """Compiles a function of tensors for calls with large tensors.

    It is compiled where compilation is switched on, all shapes are known when
    the graph is built (each other shape would be compiled again) and one
    tensor has at least `MIN_ELEMENTS` elements. Else it runs as it is.

    The function takes tensors (or None) as positional arguments and hashable
    Python values as keyword arguments, and returns tensors. It must capture no
    tensors, and its gradient is not taken. Where the fastest way differs, it
    asks `is_tracing_piece`.
    """

    def trace(*tensors, **options):
        before = is_tracing_piece()
        _state.is_tracing_piece = True
        try:
            return function(*tensors, **options)
        finally:
            _state.is_tracing_piece = before

    compiled = tf.function(
        trace, jit_compile=True, autograph=False, reduce_retracing=False
    )

    @functools.wraps(function)
    def call(*tensors, **options):
        shapes = [x.shape for x in tensors if x is not None]
        if (
            is_enabled()
            and all(shape.is_fully_defined() for shape in shapes)
            and max(math.prod(shape) for shape in shapes) >= MIN_ELEMENTS
        ):
            return compiled(*tensors, **options)
        return function(*tensors, **options)

    return call
