"""Local attention with relative labels and side keys, as a layer."""

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.layers import relative_attention
from etcmodel.ops import attention


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class QkvRelativeLocalAttention(
    keras_compat.ConstructorConfig, graph_layer.GraphLayer
):
    """Local attention with relative labels and optional side keys.

    A query attends to the keys at most `local_radius` (at least 1) positions
    away, and to all side keys, under one softmax (the lower half of the paper's
    Figure 2c). The other arguments are those of `QkvRelativeAttention`.
    """

    _initializers = ("initializer",)

    def __init__(
        self,
        local_radius: int,
        relative_vocab_size: int | None = None,
        att_dropout_prob: float = 0.0,
        initializer=None,
        use_one_hot_lookup: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(
            name=keras_compat.default_name(name, "qkv_relative_local_att"),
            **kwargs,
        )
        relative_attention.check_at_least_1(local_radius=local_radius)
        self.local_radius = local_radius
        self.relative_vocab_size = relative_vocab_size
        self.att_dropout_prob = att_dropout_prob
        self.use_one_hot_lookup = use_one_hot_lookup
        self.qkv_relative_attention = relative_attention.QkvRelativeAttention(
            relative_vocab_size=relative_vocab_size,
            att_dropout_prob=att_dropout_prob,
            initializer=initializer,
            use_one_hot_lookup=use_one_hot_lookup,
            dtype=self.dtype_policy,
            name="qkv_relative_attention",
        )
        self.initializer = self.qkv_relative_attention.initializer

    def build(self, input_shape):
        """Creates the label tables from the shape of the queries."""
        keras_compat.build_once(self.qkv_relative_attention, input_shape)
        super().build(input_shape)

    def call(
        self,
        queries,
        keys,
        values,
        att_mask=None,
        relative_att_ids=None,
        side_keys=None,
        side_values=None,
        side_att_mask=None,
        side_relative_att_ids=None,
        att_implementation="auto",
        return_attention_scores=False,
        query_positions=None,
        training=None,
    ):
        """Attends to nearby keys and to the side keys.

        Queries, keys and values are `<float>[batch, long, heads, size]`. For
        masks and labels, see `attention.long_attention`.

        `att_implementation`: `'full'` computes all pairs and masks; `'sparse'`
        computes blocks and keeps their scores for the backward pass;
        `'streaming'` computes a chunk of blocks at a time and keeps no scores.
        `'auto'` is `'full'` for a static length of at most 256, else
        `'streaming'`. All implementations give the same results.

        Returns:
            `<float>[batch, long, heads, value_size]`. With
            `return_attention_scores`, a pair of it and the two tensors of
            `attention.long_scores` at the `query_positions`; the second has no
            columns if there are no side keys.

        Raises:
            ValueError: side arguments are incomplete, `att_implementation` is
                unknown, or a mask or ids have the wrong width.
        """
        if (side_keys is None) != (side_values is None):
            raise ValueError(
                f"{self.name}: pass both side_keys and side_values, or neither."
            )
        others = None
        if side_keys is not None:
            others = attention.Keys(
                side_keys,
                side_values,
                side_att_mask,
                side_relative_att_ids,
                "side_",
            )
        elif side_att_mask is not None or side_relative_att_ids is not None:
            raise ValueError(
                f"{self.name}: side_att_mask and side_relative_att_ids need "
                "side_keys and side_values. Pass these, too."
            )
        child = self.qkv_relative_attention
        call = (
            queries,
            attention.Keys(keys, values, att_mask, relative_att_ids),
            others,
            self.local_radius,
            child.label_table(
                queries.dtype, relative_att_ids, side_relative_att_ids
            ),
        )
        output = attention.long_attention(
            *call,
            child.att_dropout.of_probabilities(training),
            att_implementation,
        )
        if return_attention_scores:
            near, side = attention.long_scores(*call, query_positions)
            # [batch, heads, n, 0] for no side keys: Keras 3 rejects None.
            return output, (near, near[..., :0] if side is None else side)
        return output

    def compute_output_shape(
        self,
        queries_shape=None,
        keys_shape=None,
        values_shape=None,
        input_shape=None,
    ):
        """Returns the shape of the queries, with the size of the values."""
        return self.qkv_relative_attention.compute_output_shape(
            queries_shape, keys_shape, values_shape, input_shape
        )
