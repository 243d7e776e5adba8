"""The loss that makes memories of the same entity similar."""

import tensorflow as tf

from etcmodel.models import pair_loss
from etcmodel.models.pretraining_heads import static_size
from etcmodel.ops import collectives
from etcmodel.ops import shapes

# Avoids a division by zero for an item without partners.
_WEIGHT_EPSILON = 1e-5


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class BatchCoreferenceResolutionLoss(pair_loss.PairLoss):
    """Trains memories of the same entity to be similar.

    Two memories `m` and `m'` belong to one entity with the probability
    `sigmoid(M_m . M_m' + b0)`; the loss is the logistic loss of this
    probability (ReadTwice paper, Appendix B, "Entity mention specific
    pre-training"). An item's partners are all memories of the batch, over all
    replicas, except itself and those without a known entity:

        loss_i = sum_j w_ij bce_ij / (sum_j w_ij + 1e-5)

    The batch's loss is the sum of the losses of all replicas' items.

    An item's index and its replica determine the item's own row in the global
    table. (The original code instead looks for an equal vector with the same
    id. This also drops other mentions with equal vectors, such as those in the
    overlap of two segments. Here they are partners.)

    For memories of mentions, pass `states` and `labels` of `local_summary` and
    `global_summary`. For memories of segments, labels are documents. All
    documents are known, so set `unknown_id=None`.

    Args:
        apply_linear_layer: whether a dense layer without bias transforms the
            items (not their partners) first.
        padding_id: id of padding.
        unknown_id: id of an item with an unknown entity; None if all are known.
        initializer_range: standard deviation of the dense layer's kernel.
    """

    def __init__(
        self,
        apply_linear_layer: bool = False,
        padding_id: int = 0,
        unknown_id: int | None = 1,
        initializer_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(initializer_range, **kwargs)
        self.apply_linear_layer = apply_linear_layer
        self.padding_id = padding_id
        self.unknown_id = unknown_id
        self.linear = None
        self.batch_coref_loss_bias = None

    def build(self, input_shape):
        """Creates the weights; `item_states` needs a static last axis."""
        size = static_size(self.name, "item_states", input_shape)
        if self.apply_linear_layer and self.linear is None:
            self.linear = self._make_dense("linear", size)
        self.batch_coref_loss_bias = self.add_weight(
            name="batch_coref_loss_bias",
            shape=(1,),
            initializer="zeros",
            trainable=True,
            autocast=False,
        )
        super().build(input_shape)

    def call(
        self,
        item_states,
        item_ids,
        global_item_states,
        global_item_ids,
        labels_mask=None,
        labels_weight=None,
    ):
        """Computes the loss of each item of this replica, `<float32>[items]`.

        The loss is in nats and 0 for an item without partners. It is float64 if
        the layer's dtype is float64. Masks and weights get no gradient.

        Args:
            item_states: `<float>[items, hidden_size]`, the same number on each
                replica.
            item_ids: `<int>[items]` entity of each item.
            global_item_states: `<float>[all, hidden_size]`, from
                `collectives.all_gather`.
            global_item_ids: `<int>[all]`, from `collectives.all_gather`, too.
            labels_mask: `<bool>[items, all]`, which pairs may be of the same
                entity; other pairs count as different, even with equal ids.
            labels_weight: `<float>[items, all]` weight of each pair.

        Raises:
            ValueError: an argument has the wrong rank, the vectors differ in
                size, or the global table has too few rows.
        """
        # [items, hidden_size] and [all, hidden_size]
        local_states = tf.cast(item_states, self._score_dtype)
        all_states = tf.cast(global_item_states, self._score_dtype)
        # [items, 1] and [1, all]
        local_ids = _as_ids(item_ids, "item_ids")[:, tf.newaxis]
        all_ids = _as_ids(global_item_ids, "global_item_ids")[tf.newaxis]
        self._check_states(local_states, all_states)
        labels, weights = self._make_targets(
            local_ids,
            all_ids,
            self._is_item_itself(local_states, all_states),
            labels_mask,
            labels_weight,
        )
        if self.linear is not None:
            local_states = self.linear(local_states)
        # [items, all]
        logits = tf.matmul(local_states, all_states, transpose_b=True)
        logits += tf.cast(
            tf.convert_to_tensor(self.batch_coref_loss_bias), self._score_dtype
        )
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        # [items]
        return tf.reduce_sum(weights * losses, axis=1) / (
            tf.reduce_sum(weights, axis=1) + _WEIGHT_EPSILON
        )

    def _check_states(self, local_states, all_states):
        shapes.assert_rank(local_states, 2, "item_states")
        shapes.assert_rank(all_states, 2, "global_item_states")
        items, size = local_states.shape
        rows, row_size = all_states.shape
        if not local_states.shape[1:].is_compatible_with(all_states.shape[1:]):
            raise ValueError(
                f"{self.name}: item_states have the size {size}, but "
                f"global_item_states {row_size}. Expected the same size."
            )
        replicas = collectives.num_replicas()
        if items is not None and rows is not None and rows < items * replicas:
            raise ValueError(
                f"{self.name}: global_item_states has {rows} rows, fewer than "
                f"{replicas} times {items}, the items of all replicas. Gather "
                "them with collectives.all_gather."
            )

    def _is_item_itself(self, local_states, all_states):
        """Marks each item's own row of the table, `<bool>[items, all]`."""
        items = shapes.get_shape_list(local_states)[0]
        rows = shapes.get_shape_list(all_states)[0]
        # [items]
        own_rows = collectives.replica_id() * items + tf.range(items)
        # [items, all]
        return tf.equal(own_rows[:, tf.newaxis], tf.range(rows)[tf.newaxis])

    def _make_targets(
        self, local_ids, all_ids, is_itself, labels_mask, labels_weight
    ):
        # [items, all]
        labels = tf.equal(local_ids, all_ids)
        if labels_mask is not None:
            shapes.assert_rank(labels_mask, 2, "labels_mask")
            labels = tf.logical_and(labels, tf.cast(labels_mask, tf.bool))
        counts = tf.logical_and(
            self._is_known(local_ids), self._is_known(all_ids)
        )
        counts = tf.logical_and(counts, tf.logical_not(is_itself))
        weights = tf.cast(counts, self._score_dtype)
        if labels_weight is not None:
            shapes.assert_rank(labels_weight, 2, "labels_weight")
            weights *= tf.cast(labels_weight, self._score_dtype)
        labels = tf.cast(labels, self._score_dtype)
        return tf.stop_gradient(labels), tf.stop_gradient(weights)

    def _is_known(self, ids):
        is_known = tf.not_equal(ids, self.padding_id)
        if self.unknown_id is None:
            return is_known
        return tf.logical_and(is_known, tf.not_equal(ids, self.unknown_id))

    def compute_output_shape(self, input_shape):
        """Returns a loss for each item."""
        return tuple(input_shape[:-1])


def _as_ids(ids, name):
    ids = tf.cast(ids, tf.int64)
    shapes.assert_rank(ids, 1, name)
    return ids
