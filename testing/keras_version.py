"""Tells which version of `tf.keras` this process uses."""

import tensorflow as tf

KERAS_2 = tf.keras.layers.Layer.__module__.startswith("tf_keras")
