"""Layer normalization as one compiled function."""

import tensorflow as tf

from etcmodel.layers import keras_compat
from etcmodel.ops import compilation
from etcmodel.ops import custom_gradients
from etcmodel.ops import shared_graphs

# As in BERT; Keras's default is 1e-3.
EPSILON = 1e-12


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class LayerNormalization(tf.keras.layers.LayerNormalization):
    """Keras's layer normalization of the last axis, as one compiled function.

    Weights, class name and results are those of Keras's `LayerNormalization`.
    Keras derives the names in a weights file from the class name, so either
    class can load the other's weights. The forward and the backward pass are
    one compiled function each (see `compilation.elementwise_jit`). Only the
    input and each position's mean and deviation are kept between them.

    Raises:
        ValueError: `axis` is not the last axis, or `rms_scaling` is set.
    """

    def __init__(
        self, epsilon: float = EPSILON, name: str | None = None, **kwargs
    ):
        super().__init__(
            epsilon=epsilon,
            name=keras_compat.default_name(name, "layer_norm"),
            **kwargs,
        )
        # In Keras 2 the axis becomes a list once the layer is built.
        if self.axis not in (-1, [-1]):
            raise ValueError(
                f"{self.name}: only the last axis can be normalized, but axis "
                f"is {self.axis}. Use axis=-1."
            )
        if getattr(self, "rms_scaling", False):
            raise ValueError(
                f"{self.name}: rms_scaling is not supported. Use Keras's "
                "LayerNormalization."
            )

    def call(self, inputs):
        """Normalizes `<float>[..., size]`; returns the policy's dtype."""
        dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
        scale, offset = (
            fill([inputs.shape[-1]], dtype)
            if weight is None
            else tf.cast(tf.convert_to_tensor(weight), dtype)
            for weight, fill in ((self.gamma, tf.ones), (self.beta, tf.zeros))
        )
        output = _normalized(inputs, scale, offset, float(self.epsilon))
        # Keras 3 does not cast the output itself.
        return tf.cast(output, self.compute_dtype)

    def get_config(self):
        """Returns the constructor's arguments."""
        # Keras 2 replaces the axis when it builds the layer.
        return {**super().get_config(), "axis": -1}


@shared_graphs.shared
def _normalized(inputs, scale, offset, epsilon):
    """Returns the normalized inputs, in their shape and dtype."""

    @custom_gradients.custom_gradient
    def normalize(x, scale, offset):
        output, mean, inverse_deviation = _normalize(
            x, scale, offset, epsilon=epsilon
        )

        def grad(upstream):
            return _gradients(x, scale, mean, inverse_deviation, upstream)

        return output, grad

    # [rows, size]
    rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
    output = tf.reshape(normalize(rows, scale, offset), tf.shape(inputs))
    output.set_shape(inputs.shape)
    return output


@compilation.jit_if_large
def _normalize(x, scale, offset, *, epsilon):
    wide = tf.cast(x, scale.dtype)
    # [rows, 1]
    mean = tf.reduce_mean(wide, axis=-1, keepdims=True)
    centred = wide - mean
    variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
    inverse_deviation = tf.math.rsqrt(variance + epsilon)
    output = centred * inverse_deviation * scale + offset
    return tf.cast(output, x.dtype), mean, inverse_deviation


@compilation.jit_if_large
def _gradients(x, scale, mean, inverse_deviation, upstream):
    wide = tf.cast(upstream, scale.dtype)
    normalized = (tf.cast(x, scale.dtype) - mean) * inverse_deviation
    d_normalized = wide * scale
    d_x = inverse_deviation * (
        d_normalized
        - tf.reduce_mean(d_normalized, axis=-1, keepdims=True)
        - normalized
        * tf.reduce_mean(d_normalized * normalized, axis=-1, keepdims=True)
    )
    return (
        tf.cast(d_x, x.dtype),
        tf.reduce_sum(wide * normalized, axis=0),
        tf.reduce_sum(wide, axis=0),
    )
