"""Relative position labels: which label each query-key distance gets."""

import numpy as np
import tensorflow as tf

from etcmodel.ops import attention


class RelativePositionGenerator:
    """Labels pairs of positions with their clipped, directed distance.

    With `m = max_distance` and `d = key position - query position`:

    ```
    d >= 0: label = min(d, m)         0 is the token itself, 1..m the right
    d <  0: label = m + min(-d, m)    m+1..2m the left
    ```

    so there are `2 m + 1` labels, and every key further than `m` away shares
    the label of distance `m` on its side. With `ignore_direction` a key on
    the left gets the label of the same distance on the right, and there are
    `m + 1` labels.

    Source: ETC (Ainslie et al., 2020), section 3.1; Shaw et al., 2018.

    Args:
        max_distance: int. `m`, the distance at which labels are clipped; zero
            or more. With 0 every pair has label 0.
        ignore_direction: bool. Whether left and right share their labels.

    Attributes:
        max_distance: int. As given.
        ignore_direction: bool. As given.
        right_pad_value: int. Label of everything far on the right.
        left_pad_value: int. Label of everything far on the left.
        relative_vocab_size: int. Number of labels.

    Raises:
        ValueError: if `max_distance` is negative.

    Example:
        `RelativePositionGenerator(max_distance=2).make_relative_att_ids(4)`:

        ```
        0 1 2 2
        3 0 1 2
        4 3 0 1
        4 4 3 0
        ```
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
        """Makes the labels of full attention of a sequence to itself.

        Args:
            seq_len: int or <int>[]. Length of the sequence; a scalar tensor
                may be dynamic.
            batch_size: int or <int>[]. How often the labels are repeated.
            name: string. Name scope of the operations.

        Returns:
            <int32>[batch_size, seq_len, seq_len]: the label of key j for query
            i at `[:, i, j]`, the same for every example.

        Raises:
            ValueError: if `seq_len` or `batch_size` is an int below 0.

        Example:
            `max_distance=2`, `seq_len=4`, `ignore_direction=True`:

            ```
            0 1 2 2
            1 0 1 2
            2 1 0 1
            2 2 1 0
            ```
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
        """Makes the labels of local attention of a sequence to itself.

        Column `k` is the key at distance `k - local_radius`. Rows near the
        ends are no exception: masks take care of what lies outside.

        Args:
            seq_len: int or <int>[]. Length of the sequence; a scalar tensor
                may be dynamic.
            local_radius: int. How many tokens on each side are in reach.
            batch_size: int or <int>[]. How often the labels are repeated.
            name: string. Name scope of the operations.

        Returns:
            <int32>[batch_size, seq_len, 2 * local_radius + 1]: the same row
            everywhere.

        Raises:
            ValueError: if `local_radius` is below 1, or `seq_len` or
                `batch_size` is an int below 0.

        Example:
            `max_distance=3`, `local_radius=5`: every row is

            ```
            6 6 6 5 4 0 1 2 3 3 3
            ```
        """
        _check_at_least(0, seq_len=seq_len)
        _check_at_least(0, batch_size=batch_size)
        spec = self.make_local_relative_att_spec(local_radius)
        with tf.name_scope(name or "make_local_relative_att_ids"):
            return spec.to_band(_as_size(batch_size), _as_size(seq_len))

    def make_local_relative_att_spec(
        self, local_radius: int
    ) -> attention.DistanceLabels:
        """Describes the labels of local attention of a sequence to itself.

        Args:
            local_radius: int. How many tokens on each side are in reach.

        Returns:
            `DistanceLabels`, which stands for the tensor that
            `make_local_relative_att_ids` makes.

        Raises:
            ValueError: if `local_radius` is below 1.

        Example:
            `max_distance=3`, `local_radius=5`: the pattern is

            ```
            6 6 6 5 4 0 1 2 3 3 3
            ```
        """
        _check_at_least(1, local_radius=local_radius)
        offsets = np.arange(-local_radius, local_radius + 1)
        return attention.DistanceLabels(self._labels(offsets, np))

    def _labels(self, offsets, ops=tf):
        """The labels of distances.

        Args:
            offsets: <int>[...].
            ops: whose functions are used, TensorFlow's or NumPy's.

        Returns:
            <int>[...].
        """
        labels = ops.minimum(ops.abs(offsets), self.max_distance)
        if self.ignore_direction:
            return labels
        return ops.where(offsets < 0, labels + self.max_distance, labels)


def _check_at_least(min_value, **values):
    """Raises a ValueError if an int is below `min_value`."""
    for name, value in values.items():
        if isinstance(value, (int, np.integer)) and value < min_value:
            raise ValueError(
                f"`{name}` must be {min_value} or more, got {value}."
            )


def _as_size(size):
    """A size as an int if it is a number, or else as <int32>[]."""
    if isinstance(size, (int, np.integer)):
        return int(size)
    return tf.cast(size, tf.int32)
