"""Base class of layers that switch AutoGraph off."""

import contextlib
import threading
from typing import ClassVar

import tensorflow as tf

from etcmodel.layers import keras_compat

_state = threading.local()


class GraphLayer(tf.keras.layers.Layer):
    """A layer that switches AutoGraph off.

    Keras 2 lets AutoGraph rewrite `call`, and all functions called there, so
    that `if` and `for` may depend on tensors. This takes seconds for a model,
    so this layer switches it off, as Keras 3 does. Subclasses, and functions
    passed to them (such as an activation), must not use `if` or `for` on
    tensors.
    """

    # Former argument name -> current name. Saved layers may have the former.
    _FORMER_NAMES: ClassVar[dict[str, str]] = {}

    @classmethod
    def from_config(cls, config):
        """Creates a layer from a config, even with former argument names."""
        return super().from_config(
            {cls._FORMER_NAMES.get(k, k): v for k, v in config.items()}
        )

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args, **kwargs):
        """Calls the layer without AutoGraph."""
        # Keras 3 calls `compute_output_spec` instead for symbolic inputs.
        is_asked = not keras_compat.is_keras_3() and any(
            map(keras_compat.is_keras_tensor, tf.nest.flatten((args, kwargs)))
        )
        with _only_shapes() if is_asked else contextlib.nullcontext():
            return super().__call__(*args, **kwargs)

    def compute_output_spec(self, *args, **kwargs):
        """Returns shapes and dtypes of a symbolic call, by tracing it.

        `compute_output_shape` alone would leave out dtypes and input checks.
        """
        with _only_shapes():
            return tf.keras.Operation.compute_output_spec(self, *args, **kwargs)


def needs_only_shapes() -> bool:
    """Tells whether Keras asks only for the shapes of a symbolic call."""
    return getattr(_state, "needs_only_shapes", False)


@contextlib.contextmanager
def _only_shapes():
    before = needs_only_shapes()
    _state.needs_only_shapes = True
    try:
        yield
    finally:
        _state.needs_only_shapes = before
