"""Parts of losses and metrics that several tasks share."""

import tensorflow as tf


def is_correct(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Tells whether the most probable class, or candidate, is the right one.

    `<float32>[batch, classes]` and `<int>[batch]` give `<float32>[batch]`, 1 or
    0, whose mean is the accuracy.
    """
    # [batch]
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return tf.cast(tf.equal(predictions, tf.cast(labels, tf.int32)), tf.float32)
