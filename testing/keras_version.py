"""The version of `tf.keras` in this process."""

import tensorflow as tf

KERAS_2 = tf.keras.layers.Layer.__module__.startswith("tf_keras")
