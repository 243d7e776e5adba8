"""Compiles with XLA the functions that benchmarks show to be faster.

On a CPU, TensorFlow runs a chain of elementwise operations one by one, each
through memory; XLA fuses them into one pass. XLA's matrix products, however,
are slower than TensorFlow's. The layers therefore compile only their chains of
elementwise operations (gelu, softmax, and their gradients), independently of
the model around them.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Callable

import tensorflow as tf

# Compiling takes 0.1 s or more, so it pays off only for large tensors.
MIN_ELEMENTS = 2**18

_is_enabled = True
_state = threading.local()


@contextlib.contextmanager
def elementwise_jit(is_on: bool):
    """Switches the compilation of elementwise operations on (default) or off.

    The setting applies when a graph is built, in all threads, including those
    of a strategy's replicas. Switch it off for servers that disable XLA on
    CPUs, such as TensorFlow Serving: the graph then has no compiled functions.
    """
    global _is_enabled
    before, _is_enabled = _is_enabled, is_on
    try:
        yield
    finally:
        _is_enabled = before


def is_enabled() -> bool:
    """Tells whether `elementwise_jit` is on."""
    return _is_enabled


def is_tracing_piece() -> bool:
    """Tells whether the caller is traced as part of a compiled function."""
    return getattr(_state, "is_tracing_piece", False)


def state() -> tuple:
    """Returns the settings that a traced graph depends on."""
    return is_enabled(), is_tracing_piece()


def jit_if_large(function: Callable) -> Callable:
    """Compiles a function of tensors for calls with large tensors.

    A call is compiled if `elementwise_jit` is on, all shapes are static (each
    new shape is compiled again) and at least one tensor has `MIN_ELEMENTS`
    elements or more. Otherwise it runs as plain TensorFlow.

    The function takes tensors (or None) as positional arguments and hashable
    Python values as keyword arguments, and returns tensors. It must not
    capture tensors and is never differentiated. A function whose fastest form
    depends on whether it is compiled checks `is_tracing_piece`.
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
