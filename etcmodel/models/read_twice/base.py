"""Base class of ReadTwice's encoder and decoder."""

import tensorflow as tf

from etcmodel import layers
from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.models.etc import encoder_layer
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.ops import shapes


class ReadTwiceBase(encoder_layer.EncoderLayer):
    """A model that adds token and position embeddings and normalizes them.

    Args:
        config: sizes and dropout; copied.
        use_one_hot_embeddings: look tokens and positions up by products with
            one-hot vectors, faster on TPUs for small tables.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        ValueError: `config.validate` raises.
    """

    config_class = ReadTwiceConfig

    def __init__(
        self,
        config: ReadTwiceConfig,
        use_one_hot_embeddings: bool = False,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        self.use_one_hot_embeddings = use_one_hot_embeddings

        def make_lookup(vocab_size, name, **options):
            return layers.EmbeddingLookup(
                vocab_size=vocab_size,
                initializer_range=config.initializer_range,
                use_one_hot_lookup=use_one_hot_embeddings,
                dtype=self.dtype_policy,
                name=name,
                **options,
            )

        self.token_emb_lookup = make_lookup(
            config.vocab_size,
            "token_emb_lookup",
            embedding_size=config.embedding_size or config.hidden_size,
            projection_size=config.hidden_size,
        )
        self.position_emb_lookup_long = make_lookup(
            config.max_seq_length,
            "position_emb_lookup_long",
            embedding_size=config.hidden_size,
        )
        self.emb_layer_norm = normalization.LayerNormalization(
            epsilon=1e-12, dtype=self.dtype_policy, name="emb_layer_norm"
        )
        self.emb_dropout = layers.RecomputingDropout(
            config.hidden_dropout_prob,
            dtype=self.dtype_policy,
            name="emb_dropout",
        )

    def _build_embeddings(self):
        ids_shape = (None, None)
        keras_compat.build_once(self.token_emb_lookup, ids_shape)
        keras_compat.build_once(self.position_emb_lookup_long, ids_shape)
        keras_compat.build_once(
            self.emb_layer_norm, (None, None, self.config.hidden_size)
        )

    def _embed(self, token_ids, position_ids, training):
        """Embeds tokens, `<float>[batch, length, hidden_size]`."""
        length = shapes.get_shape_list(token_ids)[1]
        if isinstance(length, int) and length > self.config.max_seq_length:
            raise ValueError(
                f"{self.name}: segments of {length} tokens are longer than "
                f"max_seq_length, {self.config.max_seq_length}. Cut them, or "
                "change the configuration."
            )
        if position_ids is None:
            # [1, length]
            position_ids = tf.range(length)[tf.newaxis]
        embedded = self.token_emb_lookup(token_ids)
        embedded += self.position_emb_lookup_long(position_ids)
        return self.emb_dropout(
            self.emb_layer_norm(embedded), training=training
        )

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
        }
