"""The ETC encoder: embeddings and global-local transformer layers."""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from etcmodel import layers
from etcmodel.layers import keras_compat
from etcmodel.layers.activations import get_activation
from etcmodel.models import input_checks
from etcmodel.models.etc import config as config_lib
from etcmodel.models.etc import encoder_layer
from etcmodel.ops import checks

# Options that the transformer layers take under the same names.
_TRANSFORMER_FIELDS = (
    "num_hidden_layers",
    "num_attention_heads",
    "local_radius",
    "att_size_per_head",
    "initializer_range",
    "relative_vocab_size",
    "share_feed_forward_params",
    "share_kv_projections",
    "share_qkv_projections",
    "share_att_output_projection",
    "use_pre_activation_order",
    "grad_checkpointing_period",
)


class EtcOutput(NamedTuple):
    """The result of `EtcModel`.

    Attributes:
        long_output: `<float>[batch, long, hidden_size]`.
        global_output: `<float>[batch, global, hidden_size]`.
    """

    long_output: tf.Tensor
    global_output: tf.Tensor


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class EtcModel(encoder_layer.EncoderLayer):
    """The encoder of the ETC paper (Ainslie et al., 2020), without a head.

    It reads a long input (the text) and a global input of auxiliary tokens.
    Both inputs use the same vocabulary.

    Args:
        config: sizes and sharing; copied and validated.
        is_training: whether calls apply dropout, whatever `training` a
            surrounding model is called with; None to use `training`.
        use_one_hot_embeddings: look up tokens (and absolute positions) by
            products with one-hot vectors, faster on TPUs for small tables.
        use_one_hot_relative_embeddings: look up relative labels by such
            products.
    """

    config_class = config_lib.EtcConfig
    # Names of the two streams' ids in a dict of inputs.
    _IDS = ("token_ids", "global_token_ids")

    def __init__(
        self,
        config: config_lib.EtcConfig,
        is_training: bool | None = None,
        use_one_hot_embeddings: bool = False,
        use_one_hot_relative_embeddings: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(
            config,
            use_one_hot_embeddings,
            name=keras_compat.default_name(name, "etc_document_bert"),
            **kwargs,
        )
        self.is_training = is_training
        self.use_one_hot_relative_embeddings = use_one_hot_relative_embeddings
        dropout_probs = (
            (0.0, 0.0)
            if is_training is False
            else (
                config.hidden_dropout_prob,
                config.attention_probs_dropout_prob,
            )
        )
        self.token_emb_lookup = self._make_token_lookup()
        # There are few token types, so a one-hot product is fast.
        self.segment_emb_lookup = self._make_lookup(
            "segment_emb_lookup",
            config.segment_vocab_size,
            use_one_hot_lookup=True,
        )
        self.position_emb_lookup_long = self._make_position_lookup(
            "position_emb_lookup_long"
        )
        self.position_emb_lookup_global = self._make_position_lookup(
            "position_emb_lookup_global"
        )
        self.long_emb_layer_norm = self._make_norm("long_emb_layer_norm")
        self.long_emb_dropout = layers.RecomputingDropout(
            dropout_probs[0], dtype=self.dtype_policy, name="long_emb_dropout"
        )
        self.global_emb_layer_norm = self._make_norm("global_emb_layer_norm")
        self.global_emb_dropout = layers.RecomputingDropout(
            dropout_probs[0], dtype=self.dtype_policy, name="global_emb_dropout"
        )
        self.global_local_transformer_layers = self._make_transformer(
            *dropout_probs
        )

    def _make_position_lookup(self, name):
        """Creates a table of absolute positions; None for no positions."""
        num_positions = self.config.max_absolute_position_embeddings
        return self._make_lookup(name, num_positions) if num_positions else None

    def _make_transformer(
        self, hidden_dropout_prob, attention_probs_dropout_prob
    ):
        config = self.config
        return layers.GlobalLocalTransformerLayers(
            long_hidden_size=config.hidden_size,
            global_hidden_size=config.hidden_size,
            long_intermediate_size=config.intermediate_size,
            global_intermediate_size=config.intermediate_size,
            hidden_act=get_activation(config.hidden_act),
            hidden_dropout_prob=hidden_dropout_prob,
            attention_probs_dropout_prob=attention_probs_dropout_prob,
            use_one_hot_lookup=self.use_one_hot_relative_embeddings,
            dtype=self.dtype_policy,
            name="global_local_transformer_layers",
            **{name: getattr(config, name) for name in _TRANSFORMER_FIELDS},
        )

    def build(self, input_shape):
        """Builds all layers from the configuration; ignores `input_shape`."""
        keras_compat.build_all(
            (None, None),
            self.token_emb_lookup,
            self.segment_emb_lookup,
            self.position_emb_lookup_long,
            self.position_emb_lookup_global,
        )
        keras_compat.build_all(
            (None, None, self.config.hidden_size),
            self.long_emb_layer_norm,
            self.global_emb_layer_norm,
            self.global_local_transformer_layers,
        )
        super().build(input_shape)

    def __call__(self, *args, **kwargs):
        """Calls the model; raises a ValueError if `training` is set twice."""
        # Inside `call`, `training` may come from Keras rather than the caller.
        if (
            self.is_training is not None
            and kwargs.get("training") is not None
            and not self._is_in_functional_model()
        ):
            raise ValueError(
                f"{self.name}: training={kwargs['training']} was given, but "
                f"the model was made with is_training={self.is_training}. "
                "Give only one of them."
            )
        return super().__call__(*args, **kwargs)

    @encoder_layer.accepts_dict
    def call(
        self,
        token_ids,
        global_token_ids=None,
        token_type_ids=None,
        global_token_type_ids=None,
        position_ids=None,
        global_position_ids=None,
        l2l_att_mask=None,
        g2g_att_mask=None,
        l2g_att_mask=None,
        g2l_att_mask=None,
        l2l_relative_att_ids=None,
        g2g_relative_att_ids=None,
        l2g_relative_att_ids=None,
        g2l_relative_att_ids=None,
        long_embedding_adder=None,
        global_embedding_adder=None,
        att_implementation="auto",
        return_attention_scores=False,
        long_query_positions=None,
        global_query_positions=None,
        training=None,
    ):
        """Encodes a batch.

        Masks are `<int32 or bool>`, 1 where attending is allowed; None allows
        everything. Relative ids are `<int32>` labels or None. Prefixes name the
        direction: "l2g" is the attention from long to global tokens.

            l2l_att_mask, l2l_relative_att_ids  [batch, long, 2*radius + 1]
            g2g_att_mask, g2g_relative_att_ids  [batch, global, global]
            l2g_att_mask, l2g_relative_att_ids  [batch, long, global]
            g2l_att_mask, g2l_relative_att_ids  [batch, global, long]

        Column `k` of the first line is the key at `position + k - radius`.
        `etcmodel.feature_utils` makes all masks and ids. Those that involve
        long tokens may be descriptions instead of tensors (see
        `etcmodel.ops.attention`). Descriptions are smaller, but cannot connect
        the layers of a functional model.

            token_ids               <int32>[batch, long]; or a dict of
                                    arguments by name; more arguments may
                                    be passed separately
            global_token_ids        <int32>[batch, global]
            token_type_ids          <int32>[batch, long], 1 by default
            global_token_type_ids   <int32>[batch, global], 0 by default
            position_ids, global_position_ids
                                    the same shapes; absolute positions, only if
                                    the configuration has any; 0, 1, ... by
                                    default
            long_embedding_adder, global_embedding_adder
                                    <float>[batch, long or global, hidden_size],
                                    added to the embeddings
            att_implementation      see `QkvRelativeLocalAttention`
            return_attention_scores whether to also return the attention
                                    probabilities before dropout; disables
                                    gradient checkpointing
            long_query_positions, global_query_positions
                                    see `FusedGlobalLocalAttention`

        Returns:
            An `EtcOutput`. With `return_attention_scores`, a pair of it and a
            list with one dict per layer (see `FusedGlobalLocalAttention`).

        Raises:
            ValueError: `global_token_ids` is missing; positions are given, but
                the configuration has none; `training` is given, but the
                constructor set `is_training`; an id is out of range (in a
                graph: `tf.errors.InvalidArgumentError`, see `check_inputs`); or
                an input is longer than `max_absolute_position_embeddings`.
        """
        if global_token_ids is None:
            raise ValueError(
                f"{self.name} needs global_token_ids. Pass them, too."
            )
        if self.is_training is not None:
            training = self.is_training
        prefix = self._IDS[0].removesuffix("token_ids")
        ids = {
            f"{prefix}token_ids": token_ids,
            "global_token_ids": global_token_ids,
            f"{prefix}token_type_ids": token_type_ids,
            "global_token_type_ids": global_token_type_ids,
            f"{prefix}position_ids": position_ids,
            "global_position_ids": global_position_ids,
        }
        pairs = {
            "l2l_att_mask": l2l_att_mask,
            "g2g_att_mask": g2g_att_mask,
            "l2g_att_mask": l2g_att_mask,
            "g2l_att_mask": g2l_att_mask,
            "l2l_relative_att_ids": l2l_relative_att_ids,
            "g2g_relative_att_ids": g2g_relative_att_ids,
            "l2g_relative_att_ids": l2g_relative_att_ids,
            "g2l_relative_att_ids": g2l_relative_att_ids,
        }
        (
            token_ids,
            global_token_ids,
            token_type_ids,
            global_token_type_ids,
            position_ids,
            global_position_ids,
        ) = checks.guard(
            input_checks.etc_checks(self.config, ids | pairs),
            input_checks.ETC_EXAMPLE,
            *ids.values(),
        )
        long_input = self._embed(
            "long",
            token_ids,
            token_type_ids,
            1,
            position_ids,
            long_embedding_adder,
            training,
        )
        global_input = self._embed(
            "global",
            global_token_ids,
            global_token_type_ids,
            0,
            global_position_ids,
            global_embedding_adder,
            training,
        )
        result = self.global_local_transformer_layers(
            long_input,
            global_input,
            **pairs,
            att_implementation=att_implementation,
            return_attention_scores=return_attention_scores,
            long_query_positions=long_query_positions,
            global_query_positions=global_query_positions,
            training=training,
        )
        if return_attention_scores:
            outputs, scores = result
            return EtcOutput(*outputs), scores
        return EtcOutput(*result)

    def _compared(self, output):
        return list(output)

    def _is_in_functional_model(self):
        try:
            return self.input is not None
        except AttributeError:
            return False

    def _embed(
        self,
        stream,
        token_ids,
        token_type_ids,
        default_type_id,
        position_ids,
        adder,
        training,
    ):
        if token_type_ids is None:
            token_type_ids = default_type_id * tf.ones_like(token_ids)
        # [batch, length, hidden_size]
        embeddings = self.token_emb_lookup(token_ids)
        embeddings += self.segment_emb_lookup(token_type_ids)
        if stream == "long":
            position_lookup = self.position_emb_lookup_long
            layer_norm = self.long_emb_layer_norm
            dropout = self.long_emb_dropout
        else:
            position_lookup = self.position_emb_lookup_global
            layer_norm = self.global_emb_layer_norm
            dropout = self.global_emb_dropout
        if position_lookup is not None:
            if position_ids is None:
                # [1, length]
                position_ids = self._first_positions(
                    token_ids,
                    self.config.max_absolute_position_embeddings,
                    "max_absolute_position_embeddings",
                )
            embeddings += position_lookup(position_ids)
        elif position_ids is not None:
            raise ValueError(
                f"{self.name}: position ids were given for the {stream} "
                "input, but the configuration's "
                "max_absolute_position_embeddings is 0. Set it, or omit them."
            )
        if adder is not None:
            embeddings += tf.cast(adder, embeddings.dtype)
        return dropout(layer_norm(embeddings), training=training)

    def compute_output_shape(
        self, token_ids_shape, global_token_ids_shape=None
    ):
        """Returns an `EtcOutput` of shapes; also accepts a dict of shapes."""
        shapes = [token_ids_shape, global_token_ids_shape]
        if isinstance(token_ids_shape, Mapping):
            shapes = [token_ids_shape[name] for name in self._IDS]
        return EtcOutput(
            *((*shape, self.config.hidden_size) for shape in shapes)
        )

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "is_training": self.is_training,
            "use_one_hot_relative_embeddings": (
                self.use_one_hot_relative_embeddings
            ),
        }
