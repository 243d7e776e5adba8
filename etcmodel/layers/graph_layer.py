"""The base of layers that are plain graph code."""

import contextlib
import threading

import tensorflow as tf

from etcmodel.layers import keras_compat

_state = threading.local()


class GraphLayer(tf.keras.layers.Layer):
    """A layer without Python's control flow over tensors.

    Keras 2 lets AutoGraph rewrite `call`, and all that is called there, so that
    `if` and `for` may depend on tensors. That takes seconds for a model, and is
    left out here, as Keras 3 does: neither a subclass nor a function that is
    given to such a layer, as an activation is, may have such control flow.
    """

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args, **kwargs):
        """Calls the layer; see `call`."""
        # Keras 3 calls `compute_output_spec` for that.
        is_asked = not keras_compat.is_keras_3() and any(
            map(keras_compat.is_keras_tensor, tf.nest.flatten((args, kwargs)))
        )
        with _only_shapes() if is_asked else contextlib.nullcontext():
            return super().__call__(*args, **kwargs)

    def compute_output_spec(self, *args, **kwargs):
        """What Keras 3 knows of a call in a functional model, by tracing it.

        `compute_output_shape` alone would leave out dtypes and input checks.
        """
        with _only_shapes():
            return tf.keras.Operation.compute_output_spec(self, *args, **kwargs)


def needs_only_shapes() -> bool:
    """Whether Keras, making a functional model, only asks for shapes."""
    return getattr(_state, "needs_only_shapes", False)


@contextlib.contextmanager
def _only_shapes():
    before = needs_only_shapes()
    _state.needs_only_shapes = True
    try:
        yield
    finally:
        _state.needs_only_shapes = before
