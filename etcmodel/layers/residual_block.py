"""A residual block: a layer with dropout, addition and normalization."""

import inspect

import tensorflow as tf

from etcmodel.layers import dense_layers
from etcmodel.layers import dropout
from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.layers.activations import get_layer_activation


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class ResidualBlock(keras_compat.ConstructorConfig):
    """A layer with dropout, residual connection and layer normalization.

    Computes `norm(x + dropout(inner(x)))`. With `use_pre_activation_order`,
    computes `x + dropout(inner(norm(x)))`, which is not normalized.

    The block handles several streams if the inner layer takes them as
    positional arguments and returns one output for each.

    Args:
        inner_layer: the layer to wrap; by default `DenseLayers` with one hidden
            layer and an output as wide as the input.
        normalization_layer: a normalization layer, or a list with one for each
            stream; one `LayerNormalization` by default.
        dropout_probability: dropout on the output of the inner layer.
        inner_intermediate_size: hidden size of the default inner layer; None
            for the width of the input.
        inner_activation: activation of the default inner layer.
        inner_kernel_initializer: initializer of the default inner layer.
    """

    _initializers = ("inner_kernel_initializer",)
    _activations = ("inner_activation",)

    _added_to_config = ("inner_layer", "normalization_layer")

    def __init__(
        self,
        inner_layer=None,
        normalization_layer=None,
        dropout_probability: float = 0.0,
        use_pre_activation_order: bool = False,
        inner_intermediate_size: int | None = None,
        inner_activation="relu",
        inner_kernel_initializer=None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.supports_masking = True
        self.dropout_probability = dropout_probability
        self.use_pre_activation_order = use_pre_activation_order
        self.inner_intermediate_size = inner_intermediate_size
        self.inner_activation = get_layer_activation(inner_activation)
        self.inner_kernel_initializer = tf.keras.initializers.get(
            inner_kernel_initializer
        )
        self._has_default_inner_layer = inner_layer is None
        self.inner_layer = inner_layer
        if normalization_layer is None:
            normalization_layer = normalization.LayerNormalization(
                axis=-1,
                dtype=self.dtype_policy,
                name="layer_norm",
            )
        if not isinstance(normalization_layer, list | tuple):
            normalization_layer = [normalization_layer]
        self.normalization_layers = list(normalization_layer)
        self.dropout_layers = [
            dropout.RecomputingDropout(
                dropout_probability,
                dtype=self.dtype_policy,
                name=f"dropout_{i}",
            )
            for i in range(len(self.normalization_layers))
        ]
        keras_compat.track_layers(
            self, "normalization_layers", "dropout_layers"
        )

    def build(self, input_shape):
        """Builds the sublayers from the input's shape, or a list of shapes."""
        shapes = _as_shapes(input_shape)
        if self.inner_layer is None:
            width = shapes[0][-1]
            if width is None:
                raise ValueError(
                    f"{self.name}: the last axis of the input must have a "
                    "known size for the default inner layer, but the shape is "
                    f"{shapes[0]}."
                )
            self.inner_layer = dense_layers.DenseLayers(
                [self.inner_intermediate_size or width, width],
                activation=self.inner_activation,
                kernel_initializer=self.inner_kernel_initializer,
                dtype=self.dtype_policy,
                name="dense_layers",
            )
        self._inner_takes_training = keras_compat.takes_argument(
            self.inner_layer, "training"
        )
        self._inner_takes_mask = keras_compat.takes_argument(
            self.inner_layer, "mask", or_any=False
        )
        self._norms_take_training = [
            keras_compat.takes_argument(layer, "training")
            for layer in self.normalization_layers
        ]
        # A `build` with one argument gets only the first stream's shape.
        keras_compat.build_once(self.inner_layer, shapes[0])
        for layer, shape in zip(
            self.normalization_layers, shapes, strict=False
        ):
            keras_compat.build_once(layer, shape)
        super().build(input_shape)

    def __call__(self, *args, **kwargs):
        """Calls the block; moves tensor-free arguments to `inner_options`."""
        # Keras looks for tensors only in arguments that `call` names.
        named = inspect.signature(self.call).parameters
        options = keras_compat.options_in(
            {k: v for k, v in kwargs.items() if k not in named}
        )
        for name in options:
            del kwargs[name]
        if options:
            kwargs["inner_options"] = options
        return super().__call__(*args, **kwargs)

    def call(
        self,
        inputs,
        training=None,
        return_attention_scores=False,
        inner_options=None,
        mask=None,
        **kwargs,
    ):
        """Applies the block to `<float>[..., size]`, or a sequence of streams.

        Args:
            inputs: one stream or several.
            training: whether dropout is applied; passed on to the inner layer
                if it has such an argument.
            return_attention_scores: if true, the inner layer gets this argument
                and returns a pair of its outputs and scores. The block then
                returns such a pair, too.
            inner_options: further arguments of the inner layer that contain no
                tensors; `__call__` takes them out of `kwargs`.
            mask: Keras's mask of the inputs, for an inner layer that takes it.
            **kwargs: further arguments of the inner layer, such as
                `att_mask=mask, att_implementation="sparse"`.

        Raises:
            ValueError: the number of inputs or outputs differs from the number
                of normalization layers.
        """
        has_streams = isinstance(inputs, list | tuple)
        streams = list(inputs) if has_streams else [inputs]
        self._check_number("inputs", streams)
        inner_inputs = streams
        if self.use_pre_activation_order:
            inner_inputs = self._normalize(streams, training)
        kwargs.update(inner_options or {})
        if return_attention_scores:
            kwargs["return_attention_scores"] = True
        if self._inner_takes_training:
            kwargs["training"] = training
        if mask is not None and self._inner_takes_mask:
            kwargs["mask"] = mask
        outputs = self.inner_layer(*inner_inputs, **kwargs)
        scores = None
        if return_attention_scores:
            outputs, scores = outputs
        outputs = list(outputs) if has_streams else [outputs]
        self._check_number("outputs of the inner layer", outputs)
        outputs = [
            # Unlike `+`, `tf.add_n` has a gradient without broadcasting.
            tf.add_n([stream, layer(output, training=training)])
            for stream, layer, output in zip(
                streams, self.dropout_layers, outputs, strict=True
            )
        ]
        if not self.use_pre_activation_order:
            outputs = self._normalize(outputs, training)
        outputs = outputs if has_streams else outputs[0]
        return (outputs, scores) if return_attention_scores else outputs

    def _normalize(self, streams, training):
        outputs = []
        for layer, stream, takes_training in zip(
            self.normalization_layers,
            streams,
            self._norms_take_training,
            strict=True,
        ):
            options = {"training": training} if takes_training else {}
            outputs.append(layer(stream, **options))
        return outputs

    def _check_number(self, what, streams):
        if len(streams) != len(self.normalization_layers):
            raise ValueError(
                f"{self.name}: the number of {what} ({len(streams)}) differs "
                "from the number of normalization layers "
                f"({len(self.normalization_layers)}). Give one for each stream."
            )

    def compute_output_shape(self, input_shape):
        """Returns the shape of the input, or a list of the streams' shapes."""
        shapes = _as_shapes(input_shape)
        return shapes[0] if len(shapes) == 1 else shapes

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "inner_layer": (
                None
                if self._has_default_inner_layer
                else tf.keras.layers.serialize(self.inner_layer)
            ),
            "normalization_layer": [
                tf.keras.layers.serialize(layer)
                for layer in self.normalization_layers
            ],
        }

    @classmethod
    def from_config(cls, config):
        """Creates the layer and its sublayers from a config."""
        config = dict(config)
        if config["inner_layer"] is not None:
            config["inner_layer"] = tf.keras.layers.deserialize(
                config["inner_layer"]
            )
        config["normalization_layer"] = [
            tf.keras.layers.deserialize(layer)
            for layer in config["normalization_layer"]
        ]
        return cls(**config)


def _as_shapes(input_shape) -> list[tuple[int | None, ...]]:
    """Returns the shapes of all streams, from one shape or several."""
    if not isinstance(input_shape, tf.TensorShape):
        first = input_shape[0]
        if first is not None and not isinstance(first, int):
            return [
                tuple(tf.TensorShape(shape).as_list()) for shape in input_shape
            ]
    return [tuple(tf.TensorShape(input_shape).as_list())]
