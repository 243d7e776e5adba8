"""A stack of dense layers."""

from collections.abc import Sequence

import tensorflow as tf

from etcmodel.layers import dense_rows
from etcmodel.layers import initializers
from etcmodel.layers import keras_compat
from etcmodel.layers import lora
from etcmodel.layers.activations import get_layer_activation
from etcmodel.ops import feed_forward
from etcmodel.ops import shapes


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class DenseLayers(keras_compat.ConstructorConfig):
    """A stack of dense layers, without an activation after the last one.

    The activation is a layer, a function without variables that treats each row
    separately, or one of Keras's names. The name "gelu" means the tanh form, as
    in BERT and ETC. Without a `kernel_initializer`, Keras's default is used.

    Raises:
        ValueError: `hidden_sizes` is empty or contains a size below 1.
    """

    _initializers = ("kernel_initializer", "bias_initializer")
    _activations = ("activation",)

    def __init__(
        self,
        hidden_sizes: Sequence[int],
        activation=None,
        use_bias: bool = True,
        kernel_initializer=None,
        bias_initializer="zeros",
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        hidden_sizes = list(hidden_sizes)
        if not hidden_sizes or min(hidden_sizes) < 1:
            raise ValueError(
                f"{self.name}: hidden_sizes needs at least one size, and all "
                f"must be at least 1, but it is {hidden_sizes}."
            )
        self.supports_masking = True
        self.hidden_sizes = hidden_sizes
        self.activation = get_layer_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = tf.keras.initializers.get(kernel_initializer)
        self.bias_initializer = tf.keras.initializers.get(bias_initializer)
        self.layers = [
            tf.keras.layers.Dense(
                size,
                use_bias=use_bias,
                kernel_initializer=initializers.clone_kernel(
                    self.kernel_initializer
                ),
                bias_initializer=initializers.clone(self.bias_initializer),
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i, size in enumerate(hidden_sizes)
        ]
        keras_compat.track_layers(self, "layers")

    def build(self, input_shape):
        """Builds all layers from the last axis of `input_shape`."""
        size = input_shape[-1]
        self.input_spec = tf.keras.layers.InputSpec(min_ndim=2, axes={-1: size})
        for layer, hidden_size in zip(
            self.layers, self.hidden_sizes, strict=True
        ):
            keras_compat.build_once(layer, (None, None, size))
            size = hidden_size
        super().build(input_shape)

    def call(self, inputs, training=None):
        """Applies the layers to `<float>[..., size]`.

        Outside of training, the inputs of activations are not kept. A backward
        pass computes them again, with the same results.
        """
        if self._is_chain():
            inputs = tf.cast(inputs, self.compute_dtype)
            *shape, size = shapes.get_shape_list(inputs)
            weights = [
                [
                    tf.cast(tf.convert_to_tensor(weight), inputs.dtype)
                    for weight in all_layers
                ]
                for all_layers in (
                    [layer.kernel for layer in self.layers],
                    [layer.bias for layer in self.layers if self.use_bias],
                    [x for y in self.layers for x in lora.factors_of(y)],
                )
            ]
            # [rows, units]
            output = feed_forward.apply(
                tf.reshape(inputs, [-1, size]),
                *weights[:2],
                self.activation,
                factors=weights[2],
                keep=keras_compat.is_training(training),
            )
            return tf.reshape(output, [*shape, self.hidden_sizes[-1]])
        output = _apply(self.layers[0], inputs)
        for layer in self.layers[1:]:
            output = _apply(layer, self.activation(output))
        return output

    def _is_chain(self):
        return len(self.layers) > 1 and not (
            isinstance(self.activation, tf.keras.layers.Layer)
            or any(map(dense_rows.is_quantized, self.layers))
            or len({bool(lora.factors_of(x)) for x in self.layers}) > 1
        )

    def compute_output_shape(self, input_shape):
        """Returns the shape of the inputs, with the last hidden size."""
        return (*input_shape[:-1], self.hidden_sizes[-1])


def _apply(layer, inputs):
    """Calls a layer, or adds LoRA's update, which a call would leave out."""
    return (
        dense_rows.apply(layer, inputs)
        if lora.factors_of(layer)
        else layer(inputs)
    )
