"""Initializers: a fresh copy for every variable.

One unseeded Keras initializer used for several variables may give all of them
the same values, so each variable gets a copy of its own.
"""

import tensorflow as tf


def clone(initializer):
    """Copies an initializer, with a given seed; None stays None."""
    initializer = tf.keras.initializers.get(initializer)
    if initializer is None or not hasattr(initializer, "get_config"):
        return initializer
    return initializer.__class__.from_config(initializer.get_config())


def clone_kernel(initializer):
    """Copies a kernel's initializer; None becomes Keras's default."""
    return "glorot_uniform" if initializer is None else clone(initializer)


def serialize(initializer):
    """Returns the config of an initializer, or None for None."""
    if initializer is None:
        return None
    return tf.keras.initializers.serialize(initializer)
