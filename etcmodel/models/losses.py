"""Functions for losses and metrics that several tasks share."""

import tensorflow as tf


def is_correct(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns 1 where the most probable class is the label, 0 elsewhere.

    Takes `<float32>[batch, classes]` and `<int>[batch]` and returns
    `<float32>[batch]`, whose mean is the accuracy.
    """
    # [batch]
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return tf.cast(tf.equal(predictions, tf.cast(labels, tf.int32)), tf.float32)
