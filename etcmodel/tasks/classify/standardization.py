"""A layer that standardizes vectors by the documents seen in training."""

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.ops import collectives

# From this many steps on, the statistics follow the last steps alone.
_WINDOW = 100
_EPSILON = 1e-6
_LARGEST = 5.0


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class RunningStandardization(graph_layer.GraphLayer):
    """Standardizes each element of a vector by its running mean and variance.

    The mean vectors of long documents hardly differ, because the mean over
    thousands of tokens is almost the same for all of them. A linear layer then
    learns little in a few hundred steps. Without the running mean, and divided
    by the running deviation, they differ as much as short ones.

    Each training step updates the statistics before they are used, so that
    training and inference compute the same function. (Batch normalization
    divides by the deviation in the batch, which is 0 for a single document.)
    Example: a first batch of `[1]` and `[3]` has the mean 2 and the deviation
    1, and becomes `[-1]` and `[1]`.

    All replicas have the same statistics, those of all their documents. Results
    are limited to 5 deviations, as a short text may be far from long ones.
    """

    def build(self, input_shape):
        """Creates the statistics, `<float32>[size]`, and the step count."""
        size = (input_shape[-1],)
        self.mean = self._add_statistic("mean", size, "zeros")
        self.variance = self._add_statistic("variance", size, "ones")
        self.count = self._add_statistic("count", (), "zeros")
        super().build(input_shape)

    def call(self, vectors, is_known=None, training=None):
        """Computes `<float32>[batch, size]`, 0 where not `is_known`.

        `vectors` are `<float32>[batch, size]`; `is_known`, `<bool>[batch]`,
        tells which of them the statistics take into account, by default all.
        """
        if is_known is None:
            is_known = tf.ones_like(vectors[:, 0], tf.bool)
        # [batch, 1]
        known = tf.cast(is_known, vectors.dtype)[:, tf.newaxis]
        if tf.is_tensor(training) or training:
            self._update(tf.stop_gradient(vectors), known, training)
        deviation = tf.sqrt(self.variance + _EPSILON)
        standardized = (vectors - self.mean) / deviation
        return known * tf.clip_by_value(standardized, -_LARGEST, _LARGEST)

    def _add_statistic(self, name, shape, initializer):
        """Adds a statistic that each replica updates by itself."""
        options = {"aggregation": "mean"}
        if not keras_compat.is_keras_3():
            options = {
                "aggregation": tf.VariableAggregation.MEAN,
                "synchronization": tf.VariableSynchronization.ON_READ,
            }
        return self.add_weight(
            name=name,
            shape=shape,
            dtype="float32",
            initializer=initializer,
            trainable=False,
            **options,
        )

    def _update(self, vectors, known, training):
        """Moves the statistics towards those of a batch."""
        number = collectives.all_sum(tf.reduce_sum(known))
        counts = tf.logical_and(number > 0, tf.cast(training, tf.bool))
        count = self.count + tf.cast(counts, tf.float32)
        # The mean over all steps so far, and then over about the last ones.
        share = tf.maximum(1 / tf.maximum(count, 1.0), 1 / _WINDOW)
        share = tf.where(counts, share, 0.0)

        def move(statistic, values):
            # [size]
            total = collectives.all_sum(tf.reduce_sum(known * values, axis=0))
            of_batch = tf.math.divide_no_nan(total, number)
            statistic.assign(statistic + share * (of_batch - statistic))

        self.count.assign(count)
        move(self.mean, vectors)
        move(self.variance, tf.math.squared_difference(vectors, self.mean))
