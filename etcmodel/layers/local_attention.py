"""Local attention with relative labels and side keys as a layer."""

import tensorflow as tf

from etcmodel import attention_specs
from etcmodel import tensor_utils
from etcmodel.layers import attention
from etcmodel.layers import attention_core
from etcmodel.layers import building
from etcmodel.layers import graph_layer
from etcmodel.layers import initializers
from etcmodel.layers import streaming_local

# Up to this length, where it is known when the graph is built, `'auto'` takes
# the dense form of local attention.
MAX_AUTO_FULL_LENGTH = 256
ATT_IMPLEMENTATIONS = ("auto", "streaming", "sparse", "full")


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class QkvRelativeLocalAttention(graph_layer.GraphLayer):
    """Local attention with relative labels and optional side keys.

    A query attends to the keys at most `local_radius` positions away, and to
    all side keys, under one softmax (the lower half of the paper's Figure 2c).

    Args:
        local_radius: positions that a query sees to each side, at least 1.
        relative_vocab_size: number of labels; None for none at all.
        att_dropout_prob: dropout on the attention probabilities.
        initializer: initializer of the label vectors; a truncated normal with
            a deviation of 0.5 by default.
        use_one_hot_lookup: see `QkvRelativeAttention`.
        name: name of the layer.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        ValueError: `local_radius` or `relative_vocab_size` is below 1.
    """

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
            name=building.default_name(name, "qkv_relative_local_att"), **kwargs
        )
        attention.check_at_least_1(local_radius=local_radius)
        self.local_radius = local_radius
        self.relative_vocab_size = relative_vocab_size
        self.att_dropout_prob = att_dropout_prob
        self.use_one_hot_lookup = use_one_hot_lookup
        self.qkv_relative_attention = attention.QkvRelativeAttention(
            relative_vocab_size=relative_vocab_size,
            att_dropout_prob=att_dropout_prob,
            initializer=initializer,
            use_one_hot_lookup=use_one_hot_lookup,
            dtype=self.dtype_policy,
            name="qkv_relative_attention",
        )

    def build(self, input_shape):
        """Makes the label tables from the shape of the queries."""
        building.build_once(self.qkv_relative_attention, input_shape)
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
        training=None,
    ):
        """Attends.

        Args:
            queries: `<float>[batch, long, heads, size]`.
            keys: `<float>[batch, long, heads, size]`.
            values: `<float>[batch, long, heads, value_size]`.
            att_mask: `<int32 or bool>[batch, long, 2*local_radius + 1]`;
                column `k` of query `i` is key `i + k - local_radius`. Or a
                `SegmentMask`.
            relative_att_ids: `<int32>[batch, long, 2*local_radius + 1]`. Or
                `DistanceLabels`.
            side_keys: `<float>[batch, side, heads, size]`.
            side_values: `<float>[batch, side, heads, value_size]`.
            side_att_mask: `<int32 or bool>[batch, long, side]`. Or a
                `LongGlobalMask`.
            side_relative_att_ids: `<int32>[batch, long, side]`. Or
                `LongGlobalLabels`.
            att_implementation: `'full'` computes all pairs and masks;
                `'sparse'` computes blocks and keeps their scores for the
                backward pass; `'streaming'` computes a chunk of blocks at a
                time and keeps no scores. `'auto'` takes `'full'` where the
                length is known when the graph is built and at most 256, and
                else `'streaming'`. The numbers are the same.
            training: whether dropout is applied.

        Returns:
            `<float>[batch, long, heads, value_size]`.

        Raises:
            ValueError: side arguments that do not go together, an unknown
                `att_implementation`, or a mask or ids of another width.
        """
        self._check_call(
            att_mask,
            relative_att_ids,
            side_keys,
            side_values,
            side_att_mask,
            side_relative_att_ids,
            att_implementation,
        )
        # Keras 2 casts the first argument only to the dtype of the policy.
        keys = tf.cast(keys, queries.dtype)
        values = tf.cast(values, queries.dtype)
        if side_keys is not None:
            side_keys = tf.cast(side_keys, queries.dtype)
            side_values = tf.cast(side_values, queries.dtype)
        child = self.qkv_relative_attention
        arguments = dict(
            att_mask=att_mask,
            relative_att_ids=relative_att_ids,
            side_keys=side_keys,
            side_values=side_values,
            side_att_mask=side_att_mask,
            side_relative_att_ids=side_relative_att_ids,
            labels=child.labels(
                queries.dtype, relative_att_ids, side_relative_att_ids
            ),
        )
        att_implementation = choose_implementation(
            att_implementation, queries.shape[1]
        )
        if att_implementation == "streaming":
            return streaming_local.streaming_local_attention(
                queries,
                keys,
                values,
                self.local_radius,
                dropout=child.streaming_dropout(training),
                **arguments,
            )
        attend = (
            attention_core.banded_attention
            if att_implementation == "sparse"
            else _squared_attention
        )
        arguments |= self._as_tensors(queries, side_keys, arguments)
        return attend(
            queries,
            keys,
            values,
            self.local_radius,
            dropout_fn=child.dropout_fn(training),
            **arguments,
        )

    def _as_tensors(self, queries, side_keys, arguments):
        """Masks and ids, described or spelled out, as tensors."""
        batch_size, length = tensor_utils.get_shape_list(queries)[:2]
        side_len = None
        if side_keys is not None:
            side_len = tensor_utils.get_shape_list(side_keys)[1]
        return {
            "att_mask": attention_specs.band_mask_tensor(
                arguments["att_mask"], self.local_radius
            ),
            "relative_att_ids": attention_specs.band_label_tensor(
                arguments["relative_att_ids"], batch_size, length
            ),
            "side_att_mask": attention_specs.side_mask_tensor(
                arguments["side_att_mask"]
            ),
            "side_relative_att_ids": attention_specs.side_label_tensor(
                arguments["side_relative_att_ids"], side_len
            ),
        }

    def _check_call(
        self,
        att_mask,
        relative_att_ids,
        side_keys,
        side_values,
        side_att_mask,
        side_relative_att_ids,
        att_implementation,
    ):
        if att_implementation not in ATT_IMPLEMENTATIONS:
            raise ValueError(
                f"{self.name}: att_implementation is {att_implementation!r}, "
                f"but must be one of {ATT_IMPLEMENTATIONS}."
            )
        if (side_keys is None) != (side_values is None):
            raise ValueError(
                f"{self.name}: give both side_keys and side_values, or none."
            )
        if side_keys is None:
            if side_att_mask is not None or side_relative_att_ids is not None:
                raise ValueError(
                    f"{self.name}: side_att_mask and side_relative_att_ids "
                    "need side_keys and side_values."
                )
        elif (relative_att_ids is None) != (side_relative_att_ids is None):
            raise ValueError(
                f"{self.name}: with side keys, give both relative_att_ids and "
                "side_relative_att_ids, or none."
            )
        width = 2 * self.local_radius + 1
        attention_specs.check_types(
            att_mask, relative_att_ids, side_att_mask, side_relative_att_ids
        )
        bands = {"att_mask": att_mask, "relative_att_ids": relative_att_ids}
        for name, band in bands.items():
            if isinstance(band, attention_specs.DistanceLabels):
                if len(band.pattern) != width:
                    raise ValueError(
                        f"{self.name}: {name} needs a label for each of "
                        f"2*local_radius + 1 = {width} distances, but has "
                        f"{len(band.pattern)}."
                    )
            elif isinstance(band, attention_specs.AttentionSpec):
                continue
            elif band is not None and band.shape[-1] != width:
                raise ValueError(
                    f"{self.name}: the last axis of {name} must have a static "
                    f"size of 2*local_radius + 1 = {width}, but its shape is "
                    f"{band.shape}."
                )

    def compute_output_shape(self, queries_shape, keys_shape, values_shape):
        """The shape of the queries, with the size of the values."""
        return (*queries_shape[:-1], values_shape[-1])

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "local_radius": self.local_radius,
            "relative_vocab_size": self.relative_vocab_size,
            "att_dropout_prob": self.att_dropout_prob,
            "initializer": initializers.serialize(
                self.qkv_relative_attention.initializer
            ),
            "use_one_hot_lookup": self.use_one_hot_lookup,
        }


def choose_implementation(att_implementation: str, length: int | None) -> str:
    """What `'auto'` stands for, by what is known when the graph is built."""
    if att_implementation != "auto":
        return att_implementation
    is_short = length is not None and length <= MAX_AUTO_FULL_LENGTH
    return "full" if is_short else "streaming"


def _squared_attention(
    queries,
    keys,
    values,
    local_radius,
    att_mask,
    relative_att_ids,
    side_keys,
    side_values,
    side_att_mask,
    side_relative_att_ids,
    labels,
    dropout_fn,
):
    """`banded_attention` by way of all pairs of positions."""
    batch_size, long_len = tensor_utils.get_shape_list(queries)[:2]
    if att_mask is None:
        # [batch, long, 2*local_radius + 1]
        att_mask = tf.ones(
            [batch_size, long_len, 2 * local_radius + 1], tf.int32
        )
    att_mask = tf.cast(tf.cast(att_mask, tf.bool), tf.int32)
    # [batch, long, long]
    att_mask = attention_core.band_to_square(att_mask, local_radius)
    if relative_att_ids is not None:
        # [batch, long, long]
        relative_att_ids = attention_core.band_to_square(
            relative_att_ids, local_radius
        )
    if side_keys is not None:
        side_len = tensor_utils.get_shape_list(side_keys)[1]
        if side_att_mask is None:
            # [batch, long, side]
            side_att_mask = tf.ones([batch_size, long_len, side_len], tf.int32)
        side_att_mask = tf.cast(tf.cast(side_att_mask, tf.bool), tf.int32)
        # [batch, long, long + side]
        att_mask = tf.concat([att_mask, side_att_mask], axis=-1)
        if relative_att_ids is not None:
            # [batch, long, long + side]
            relative_att_ids = tf.concat(
                [
                    tf.cast(relative_att_ids, tf.int32),
                    tf.cast(side_relative_att_ids, tf.int32),
                ],
                axis=-1,
            )
        # [batch, long + side, heads, size]
        keys = tf.concat([keys, side_keys], axis=1)
        values = tf.concat([values, side_values], axis=1)
    return attention_core.dense_attention(
        queries,
        keys,
        values,
        att_mask=att_mask,
        relative_att_ids=relative_att_ids,
        labels=labels,
        dropout_fn=dropout_fn,
    )
