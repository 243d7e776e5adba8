"""Gathers rows by position, and positions by mask."""

import tensorflow as tf

from etcmodel.ops import shapes


def gather_positions(sequence, positions) -> tf.Tensor:
    """Gathers vectors at each row's positions, `<float>[batch, n, size]`."""
    shapes.assert_rank(sequence, 3, "sequence")
    shapes.assert_rank(positions, 2, "positions")
    return tf.gather(sequence, positions, batch_dims=1)


def true_positions(
    mask, max_positions: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the positions where a mask is true, in each row.

    The masks `[[0, 1, 0, 1, 1], [0, 0, 0, 1, 0]]` and `max_positions=2` give
    the positions `[[1, 3], [3, 0]]` and the weights `[[1, 1], [1, 0]]`: 0 for
    unused positions. An int `max_positions` makes the output size static; it
    may exceed the mask's length.

    Raises:
        ValueError: `mask` does not have rank 2.
    """
    shapes.assert_rank(mask, 2, "mask")
    mask = tf.cast(mask, tf.bool)
    length = shapes.get_shape_list(mask)[1]
    # [length]: length, ..., 2, 1
    priorities = tf.range(length, 0, -1, dtype=tf.int32)
    # [batch, length]
    priorities = tf.where(mask, priorities[tf.newaxis], 0)
    # [batch, max(length, max_positions)]
    priorities = tf.pad(
        priorities, [[0, 0], [0, tf.maximum(max_positions - length, 0)]]
    )
    # [batch, max_positions]
    priorities = tf.math.top_k(priorities, max_positions).values
    is_real = priorities > 0
    positions = tf.where(is_real, length - priorities, 0)
    return positions, tf.cast(is_real, tf.float32)
