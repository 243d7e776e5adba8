"""A text decoder that attends to ReadTwice's memory."""

from collections.abc import Mapping

import tensorflow as tf

from etcmodel.layers import keras_compat
from etcmodel.models.etc import encoder_layer
from etcmodel.models.read_twice import base
from etcmodel.models.read_twice import memory_extraction
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.ops import shapes


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class ReadTwiceDecoderModel(base.ReadTwiceBase):
    """Decodes a text from left to right, with access to memories of documents.

    In each layer, a token attends to itself and earlier tokens, and then to the
    memories. The decoder has its own embedding tables and no head; a
    `LanguageModelHead` can predict the next token from a token's output. (The
    ReadTwice paper does not describe the decoder. The original code trains it
    to summarize stories and to answer questions about them.)

    Args:
        config: the encoder's configuration; copied and validated.
        num_layers_override: number of layers; None for
            `config.num_hidden_layers`.
        num_cross_attention_heads: number of heads of the attention to
            memories, 0 for one head without projections.
        enable_default_side_input: whether to add one learned no-op memory,
            which is never masked.
        use_one_hot_embeddings: see `ReadTwiceModel`.
    """

    def __init__(
        self,
        config: ReadTwiceConfig,
        num_layers_override: int | None,
        num_cross_attention_heads: int,
        enable_default_side_input: bool = False,
        use_one_hot_embeddings: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(
            config,
            use_one_hot_embeddings,
            name=keras_compat.default_name(name, "read_twice_decoder"),
            **kwargs,
        )
        self.num_layers_override = num_layers_override
        self.num_cross_attention_heads = num_cross_attention_heads
        self.enable_default_side_input = enable_default_side_input
        if num_layers_override is None:
            num_layers_override = config.num_hidden_layers
        self.transformer_with_side_inputs = memory_extraction.make_transformer(
            config,
            num_layers_override,
            num_cross_attention_heads=num_cross_attention_heads,
            enable_default_side_input=enable_default_side_input,
            dtype=self.dtype_policy,
            name="transformer_layers",
        )

    def build(self, input_shape):
        """Builds all layers from the configuration; ignores `input_shape`."""
        self._build_embeddings()
        keras_compat.build_once(
            self.transformer_with_side_inputs,
            (None, None, self.config.hidden_size),
        )
        super().build(input_shape)

    @encoder_layer.accepts_dict
    def call(
        self,
        token_ids,
        side_input=None,
        token2side_input_att_mask=None,
        position_ids=None,
        training=None,
    ):
        """Computes the output, `<float>[batch, length, hidden_size]`.

        Args:
            token_ids: `<int>[batch, length]`, a text in each row; or a dict of
                arguments, as in `ReadTwiceModel.call`. No token attends to
                padding, `config.summary_padding_token_id`.
            side_input: `<float>[memories, hidden_size]`, one table for all
                texts, such as `states` or `processed_states` of a
                `ReadTwiceOutput`'s `global_summary`; None for no memories.
            token2side_input_att_mask: `<int or bool>[batch, memories]`, 1 where
                a text may attend, such as `block_att_mask` of a
                `ReadTwiceOutput`; or `[batch, length, memories]`; None allows
                all. For a text that may attend to no memory, the attention to
                memories returns zeros.
            position_ids: `<int>[batch, length]`; 0, 1, 2, ... by default.
            training: whether dropout is applied.

        Raises:
            ValueError: texts are longer than `config.max_seq_length`, or a mask
                has the wrong rank or number of columns.
        """
        if side_input is not None and token2side_input_att_mask is None:
            batch = shapes.get_shape_list(token_ids)[0]
            memories = shapes.get_shape_list(side_input)[-2]
            # The mask needs columns for the memories, too.
            token2side_input_att_mask = tf.ones([batch, memories], tf.bool)
        return self.transformer_with_side_inputs(
            self._embed(token_ids, position_ids, training),
            side_input=side_input,
            att_mask=causal_mask(
                tf.not_equal(token_ids, self.config.summary_padding_token_id)
            ),
            side_att_mask=token2side_input_att_mask,
            training=training,
        )

    def compute_output_shape(self, token_ids_shape):
        """Returns the output shape; accepts one shape or a dict of shapes."""
        if isinstance(token_ids_shape, Mapping):
            token_ids_shape = token_ids_shape["token_ids"]
        return (*token_ids_shape, self.config.hidden_size)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_layers_override": self.num_layers_override,
            "num_cross_attention_heads": self.num_cross_attention_heads,
            "enable_default_side_input": self.enable_default_side_input,
        }


def causal_mask(is_token) -> tf.Tensor:
    """Marks the tokens that each token may attend to: itself and those before.

    For two tokens and padding, `[[True, True, False]]`, returns
    `[[[1, 0, 0], [1, 1, 0], [1, 1, 0]]]` as booleans, `[batch, from, to]`.
    """
    length = shapes.get_shape_list(is_token, 2, "is_token")[1]
    positions = tf.range(length)
    # [length, length]
    is_before = positions[tf.newaxis] <= positions[:, tf.newaxis]
    # [batch, length, length]
    return tf.logical_and(is_before[tf.newaxis], is_token[:, tf.newaxis])
