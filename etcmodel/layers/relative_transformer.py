"""A standard transformer encoder with relative labels."""

import tensorflow as tf

from etcmodel.layers import keras_compat
from etcmodel.layers import relative_attention
from etcmodel.layers import stack
from etcmodel.layers.activations import gelu
from etcmodel.layers.activations import get_layer_activation


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class RelativeTransformerLayers(stack.TransformerStack):
    """Transformer layers in which every token attends to all tokens.

    Attributes:
        attention_layers: the attention `ResidualBlock` of each layer.
        feed_forward_layers: the feed-forward `ResidualBlock` of each layer.

    The arguments are those of `GlobalLocalTransformerLayers`, for one stream.

    Raises:
        ValueError: `num_hidden_layers` is below 1, or `hidden_size` is not a
            multiple of `num_attention_heads`.
    """

    _activations = ("hidden_act",)

    def __init__(
        self,
        hidden_size: int,
        num_hidden_layers: int,
        num_attention_heads: int,
        intermediate_size: int | None = None,
        hidden_act=gelu,
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        initializer_range: float = 0.02,
        relative_vocab_size: int | None = None,
        use_pre_activation_order: bool = False,
        use_one_hot_lookup: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        relative_attention.check_at_least_1(num_hidden_layers=num_hidden_layers)
        relative_attention.check_divisible(
            num_attention_heads, hidden_size=hidden_size
        )
        self.supports_masking = True
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size or 4 * hidden_size
        self.hidden_act = get_layer_activation(hidden_act)
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.relative_vocab_size = relative_vocab_size
        self.use_pre_activation_order = use_pre_activation_order
        self.use_one_hot_lookup = use_one_hot_lookup

        self.attention_layers = []
        self.feed_forward_layers = []
        for i in range(num_hidden_layers):
            self.attention_layers.append(self._make_attention_block(i))
            self.feed_forward_layers.append(
                self._make_block(
                    self._make_dense_layers(
                        self.intermediate_size, hidden_size
                    ),
                    f"feed_forward_layer_{i}",
                )
            )
        keras_compat.track_layers(
            self, "attention_layers", "feed_forward_layers"
        )

    def _make_attention_block(self, i):
        layer = relative_attention.RelativeAttention(
            hidden_size=self.hidden_size,
            num_heads=self.num_attention_heads,
            relative_vocab_size=self.relative_vocab_size,
            att_dropout_prob=self.attention_probs_dropout_prob,
            initializer=self._make_initializer(),
            use_one_hot_lookup=self.use_one_hot_lookup,
            dtype=self.dtype_policy,
            name="relative_attention",
        )
        return self._make_block(layer, f"attention_layer_{i}")

    def build(self, input_shape):
        """Builds all sublayers; the constructor determines their sizes."""
        keras_compat.build_all(
            (None, None, self.hidden_size),
            *self.attention_layers,
            *self.feed_forward_layers,
        )
        super().build(input_shape)

    def call(
        self,
        inputs,
        att_mask=None,
        relative_att_ids=None,
        training=None,
        return_attention_scores=False,
    ):
        """Applies all layers to `<float>[batch, seq, hidden_size]`.

        Masks, labels and `return_attention_scores` are as in
        `RelativeAttention`. The scores form a list with one entry per layer.
        """
        scores = []
        output = inputs
        for attention_layer, feed_forward_layer in zip(
            self.attention_layers, self.feed_forward_layers, strict=True
        ):
            output = attention_layer(
                output,
                training=training,
                att_mask=att_mask,
                relative_att_ids=relative_att_ids,
                return_attention_scores=return_attention_scores,
            )
            if return_attention_scores:
                output, scores_of_layer = output
                scores.append(scores_of_layer)
            output = feed_forward_layer(output, training=training)
        return (output, scores) if return_attention_scores else output

    def compute_output_shape(self, input_shape):
        """Returns the shape of the input."""
        return tuple(input_shape)
