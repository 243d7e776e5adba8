"""Base class of layers without Python's control flow over tensors."""

import contextlib
import threading
from typing import ClassVar

import tensorflow as tf

from etcmodel.layers import keras_compat

_state = threading.local()


class GraphLayer(tf.keras.layers.Layer):
    """A layer without Python's control flow over tensors.

    Keras 2 lets AutoGraph rewrite `call`, and all functions called there, so
    that `if` and `for` may depend on tensors. This takes seconds for a model,
    so this layer switches it off, as Keras 3 does: neither a subclass nor a
    function that is passed to it, such as an activation, may depend on it.
    """

    # Former names of arguments, which saved layers may contain, to new ones.
    _FORMER_NAMES: ClassVar[dict[str, str]] = {}

    @classmethod
    def from_config(cls, config):
        """Makes a layer from its config, which may have former names."""
        return super().from_config(
            {cls._FORMER_NAMES.get(k, k): v for k, v in config.items()}
        )

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args, **kwargs):
        """Calls the layer without AutoGraph."""
        # Keras 3 calls `compute_output_spec` for symbolic inputs.
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
    """Tells whether Keras only asks for shapes, for a functional model."""
    return getattr(_state, "needs_only_shapes", False)


@contextlib.contextmanager
def _only_shapes():
    before = needs_only_shapes()
    _state.needs_only_shapes = True
    try:
        yield
    finally:
        _state.needs_only_shapes = before
