"""Copies initializers, so that every variable has its own.

A Keras initializer without a seed may give all variables that share it the same
values, so each variable gets its own copy.
"""

import tensorflow as tf


def clone(initializer):
    """Copies an initializer, including its seed; None stays None."""
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
