"""Base class of ReadTwice's encoder and decoder."""

from etcmodel import layers
from etcmodel.layers import keras_compat
from etcmodel.models import input_checks
from etcmodel.models.etc import encoder_layer
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.ops import checks


class ReadTwiceBase(encoder_layer.EncoderLayer):
    """Base class of models that embed tokens and positions.

    The sum of both embeddings is normalized. `use_one_hot_embeddings` looks up
    tokens and positions by products with one-hot vectors, which is faster on
    TPUs for small tables.
    """

    config_class = ReadTwiceConfig

    def __init__(
        self,
        config: ReadTwiceConfig,
        use_one_hot_embeddings: bool = False,
        **kwargs,
    ):
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        self.token_emb_lookup = self._make_token_lookup()
        self.position_emb_lookup_long = self._make_lookup(
            "position_emb_lookup_long", config.max_seq_length
        )
        self.emb_layer_norm = self._make_norm("emb_layer_norm")
        self.emb_dropout = layers.RecomputingDropout(
            config.hidden_dropout_prob,
            dtype=self.dtype_policy,
            name="emb_dropout",
        )

    def _build_embeddings(self):
        keras_compat.build_all(
            (None, None), self.token_emb_lookup, self.position_emb_lookup_long
        )
        keras_compat.build_all(
            (None, None, self.config.hidden_size), self.emb_layer_norm
        )

    def _embed(self, token_ids, position_ids, training):
        token_ids, position_ids = checks.guard(
            input_checks.segment_checks(self.config, token_ids, position_ids),
            input_checks.SEGMENTS_EXAMPLE,
            token_ids,
            position_ids,
        )
        # [1, length]
        first_positions = self._first_positions(
            token_ids, self.config.max_seq_length, "max_seq_length"
        )
        if position_ids is None:
            position_ids = first_positions
        embedded = self.token_emb_lookup(token_ids)
        embedded += self.position_emb_lookup_long(position_ids)
        return self.emb_dropout(
            self.emb_layer_norm(embedded), training=training
        )
