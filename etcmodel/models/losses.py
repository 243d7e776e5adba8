"""Losses that several tasks share."""

import tensorflow as tf

# Keeps the mean defined when a batch holds padding examples only.
_WEIGHT_EPSILON = 1e-5


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Mean over the real examples of a batch.

    Args:
        values: `<float32>[batch]`.
        weights: `<float>[batch]`, 1 for real examples and 0 for padding.

    Returns:
        `<float32>[]`; 0 if all is padding.
    """
    weights = tf.cast(weights, tf.float32)
    return tf.reduce_sum(values * weights) / (
        tf.reduce_sum(weights) + _WEIGHT_EPSILON
    )
