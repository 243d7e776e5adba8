"""Base class of losses that score all pairs of vectors in a batch."""

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat


class PairLoss(keras_compat.ConstructorConfig, graph_layer.GraphLayer):
    """A loss on inner products, computed in float32 or float64.

    A dense layer transforms one of the two vectors of each product.

    Args:
        initializer_range: standard deviation of the dense layer's truncated
            normal initializer.
    """

    def __init__(self, initializer_range: float = 0.02, **kwargs):
        # `autocast=False` stops Keras from rounding inputs to the compute
        # dtype.
        super().__init__(autocast=False, **kwargs)
        self.initializer_range = initializer_range
        self._score_dtype = (
            "float64" if self.compute_dtype == "float64" else "float32"
        )

    def _make_dense(self, name, size):
        dense = tf.keras.layers.Dense(
            size,
            use_bias=False,
            kernel_initializer=tf.keras.initializers.TruncatedNormal(
                stddev=self.initializer_range
            ),
            dtype=self._score_dtype,
            name=name,
        )
        keras_compat.build_once(dense, (None, size))
        return dense
