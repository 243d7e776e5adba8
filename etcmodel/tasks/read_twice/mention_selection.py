"""Selects mentions for segments that have too many of them."""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.entity_masking import UNKNOWN_ENTITY

_LABELS = 2**31


def select_mentions(
    labels: tf.RaggedTensor, max_mentions: int
) -> tf.RaggedTensor:
    """Selects mentions of different entities, spread over each segment.

    First mentions of all entities are selected before second mentions, second
    before third, and so on. If, for example, not all second mentions fit,
    evenly spaced ones are selected. Mentions of unknown entities count as
    second mentions. `labels`, `<int32>[segments, (mentions)]`, are in order.

    Example: with `max_mentions=3`, the labels `[7, 7, 8, 7, 9]` are selected at
    0, 2 and 4; with `max_mentions=2`, `[5, 6, 7, 8]` at 0 and 2.

    Returns:
        Whether each mention is selected, `<bool>[segments, (mentions)]`.
    """
    labels = labels.with_row_splits_dtype(tf.int64)
    segment = ragged_rows.owners_in(labels)
    # [mentions]
    entity = tf.cast(labels.values, tf.int64)
    _, number, _ = _number_equals(segment * _LABELS + entity)
    is_unknown = tf.equal(entity, UNKNOWN_ENTITY)
    number = tf.where(is_unknown, tf.ones_like(number), number)
    size = tf.size(entity, tf.int64)
    before, index, count = _number_equals(segment * size + number)
    before -= tf.gather(labels.row_starts(), segment)
    room = tf.clip_by_value(max_mentions - before, 0, count)

    def passed(index):
        """Counts the selected mentions before an index."""
        return (index * room + count // 2) // count

    return labels.with_values(passed(index + 1) > passed(index))


def _number_equals(keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Counts each key's smaller keys, earlier equal keys, and equal keys."""
    order = tf.argsort(keys, stable=True)
    # [keys], sorted
    keys = tf.gather(keys, order)
    less = tf.searchsorted(keys, keys, out_type=tf.int64)
    end = tf.searchsorted(keys, keys, side="right", out_type=tf.int64)
    number = tf.range(tf.size(keys, tf.int64)) - less
    place = tf.math.invert_permutation(order)
    return tuple(tf.gather(x, place) for x in (less, number, end - less))
