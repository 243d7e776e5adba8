"""The base of layers that are plain graph code."""

import tensorflow as tf


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
        return super().__call__(*args, **kwargs)

    def compute_output_spec(self, *args, **kwargs):
        """What Keras 3 knows of a call in a functional model, by tracing it.

        `compute_output_shape` alone would leave out dtypes, and what a call
        has to say about its inputs.
        """
        return tf.keras.Operation.compute_output_spec(self, *args, **kwargs)
