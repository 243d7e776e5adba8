"""Functions whose backward pass is written by hand."""

import contextlib
import functools
from collections.abc import Callable

import tensorflow as tf

_is_forward_only = False


@contextlib.contextmanager
def forward_only():
    """Builds graphs without the backward passes written by hand.

    For graphs that are exported to answer only: a stored function with a
    backward pass of its own brings that along, or a warning when it is loaded.
    It counts where a graph is built, in all threads, those of a strategy's
    replicas among them. What is built may not be differentiated, as that would
    take TensorFlow's own gradients, with the memory that they need.

    Yields:
        Nothing.
    """
    global _is_forward_only
    before, _is_forward_only = _is_forward_only, True
    try:
        yield
    finally:
        _is_forward_only = before


def custom_gradient(function: Callable) -> Callable:
    """Like `tf.custom_gradient`, but without a gradient in `forward_only`.

    Nor does a tape outside keep what the function computes on the way, as it
    would with `tf.custom_gradient` where functions run eagerly.

    Args:
        function: takes tensors, and returns an output (or several) and a
            function from the outputs' gradients to those of the inputs.

    Returns:
        The function from tensors to the outputs.
    """

    @tf.custom_gradient
    def with_gradient(*tensors):
        # Stopped, they are none that a tape follows.
        return function(*map(tf.stop_gradient, tensors))

    @functools.wraps(function)
    def call(*tensors):
        if _is_forward_only:
            return function(*tensors)[0]
        return with_gradient(*tensors)

    return call
