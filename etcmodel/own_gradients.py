"""Functions whose backward pass is written by hand."""

import contextlib
import functools
import threading
from collections.abc import Callable

import tensorflow as tf

_state = threading.local()


@contextlib.contextmanager
def forward_only():
    """Builds graphs without the backward passes written by hand.

    For graphs that are exported to answer only: a stored function with a
    backward pass of its own brings that along, or a warning when it is loaded.
    It counts where a graph is built, in the thread that builds it. What is
    built may not be differentiated, as that would take TensorFlow's own
    gradients, with the memory that they need.

    Yields:
        Nothing.
    """
    before = getattr(_state, "is_forward_only", False)
    _state.is_forward_only = True
    try:
        yield
    finally:
        _state.is_forward_only = before


def custom_gradient(function: Callable) -> Callable:
    """Like `tf.custom_gradient`, but without a gradient in `forward_only`.

    Args:
        function: takes tensors, and returns an output and a function from its
            gradient to those of the inputs.

    Returns:
        The function from tensors to the output.
    """
    with_gradient = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*tensors):
        if getattr(_state, "is_forward_only", False):
            return function(*tensors)[0]
        return with_gradient(*tensors)

    return call
