"""Parts of losses and metrics that several tasks share."""

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


def is_correct(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Whether the most probable class, or candidate, is the right one.

    Args:
        logits: `<float32>[batch, classes]`.
        labels: `<int>[batch]`.

    Returns:
        `<float32>[batch]`, 1 or 0. Its mean is the accuracy.
    """
    # [batch]
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return tf.cast(tf.equal(predictions, tf.cast(labels, tf.int32)), tf.float32)
