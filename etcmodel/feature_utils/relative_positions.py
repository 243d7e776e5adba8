"""Relative position labels: maps each query-key distance to a label."""

import numpy as np
import tensorflow as tf

from etcmodel.ops import attention


class RelativePositionGenerator:
    """Labels pairs of positions with their clipped, directed distance.

    With `m = max_distance` and `d = key position - query position`:

        d >= 0: label = min(d, m)         0 is the token itself, 1..m the right
        d <  0: label = m + min(-d, m)    m+1..2m the left

    With `ignore_direction`, keys on the left have the same labels as keys on
    the right, 0..m. Example:
    `RelativePositionGenerator(2).make_relative_att_ids(4)` has the rows
    `0122 3012 4301 4430`.

    Source: ETC (Ainslie et al., 2020), section 3.1; Shaw et al., 2018.

    Attributes:
        right_pad_value: label of all keys beyond `max_distance` on the right.
        left_pad_value: label of all keys beyond `max_distance` on the left.
        relative_vocab_size: number of labels.

    Raises:
        ValueError: `max_distance` is negative.
    """

    def __init__(self, max_distance: int, ignore_direction: bool = False):
        if max_distance < 0:
            raise ValueError(
                f"`max_distance` must be 0 or more, got {max_distance}."
            )
        self.max_distance = max_distance
        self.ignore_direction = ignore_direction
        self.right_pad_value = max_distance
        self.left_pad_value = (
            max_distance if ignore_direction else 2 * max_distance
        )
        self.relative_vocab_size = self.left_pad_value + 1

    def make_relative_att_ids(
        self,
        seq_len: int | tf.Tensor,
        batch_size: int | tf.Tensor = 1,
        name: str | None = None,
    ) -> tf.Tensor:
        """Makes the labels for full self-attention.

        Returns `<int32>[batch_size, seq_len, seq_len]`; `[:, i, j]` is the
        label of key j for query i. Sizes are non-negative ints or `<int>[]`.
        """
        _check_at_least(0, seq_len=seq_len)
        _check_at_least(0, batch_size=batch_size)
        with tf.name_scope(name or "make_relative_att_ids"):
            batch_size, seq_len = _as_size(batch_size), _as_size(seq_len)
            positions = tf.range(seq_len)
            # [seq_len, seq_len]
            offsets = positions[tf.newaxis, :] - positions[:, tf.newaxis]
            # [batch_size, seq_len, seq_len]
            return tf.broadcast_to(
                self._labels(offsets), tf.stack([batch_size, seq_len, seq_len])
            )

    def make_local_relative_att_ids(
        self,
        seq_len: int | tf.Tensor,
        local_radius: int,
        batch_size: int | tf.Tensor = 1,
        name: str | None = None,
    ) -> tf.Tensor:
        """Makes the labels for local self-attention.

        Returns `<int32>[batch_size, seq_len, 2 * local_radius + 1]`. All
        positions have the same labels (see `make_local_relative_att_spec`).
        Masks must exclude keys outside of the sequence.
        """
        _check_at_least(0, seq_len=seq_len)
        _check_at_least(0, batch_size=batch_size)
        spec = self.make_local_relative_att_spec(local_radius)
        with tf.name_scope(name or "make_local_relative_att_ids"):
            return spec.to_band(_as_size(batch_size), _as_size(seq_len))

    def make_local_relative_att_spec(
        self, local_radius: int
    ) -> attention.DistanceLabels:
        """Describes the labels of local attention, equal for all positions.

        Label `k` belongs to the key at distance `k - local_radius`. Example:
        `max_distance=3` and `local_radius=5` give the labels
        `6 6 6 5 4 0 1 2 3 3 3`.

        Raises:
            ValueError: `local_radius` is below 1.
        """
        _check_at_least(1, local_radius=local_radius)
        offsets = np.arange(-local_radius, local_radius + 1)
        return attention.DistanceLabels(self._labels(offsets, np))

    def _labels(self, offsets, ops=tf):
        """Labels distances, `<int>[...]`; `ops` is TensorFlow or NumPy."""
        labels = ops.minimum(ops.abs(offsets), self.max_distance)
        if self.ignore_direction:
            return labels
        return ops.where(offsets < 0, labels + self.max_distance, labels)


def _check_at_least(min_value, **values):
    for name, value in values.items():
        if isinstance(value, (int, np.integer)) and value < min_value:
            raise ValueError(
                f"`{name}` must be {min_value} or more, got {value}."
            )


def _as_size(size):
    if isinstance(size, (int, np.integer)):
        return int(size)
    return tf.cast(size, tf.int32)
