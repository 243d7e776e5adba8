"""Initializers: a fresh copy for every variable.

One unseeded Keras initializer used for several variables may give all of them
the same values, so each variable gets a copy of its own.
"""

import tensorflow as tf


def clone(initializer):
    """A copy of an initializer that draws other values.

    Args:
        initializer: a Keras initializer, its name, or None.

    Returns:
        A new initializer of the same kind and settings (an explicit seed
        included), or None for None.
    """
    initializer = tf.keras.initializers.get(initializer)
    if initializer is None or not hasattr(initializer, "get_config"):
        return initializer
    return initializer.__class__.from_config(initializer.get_config())


def clone_kernel(initializer):
    """A kernel's initializer: a copy of a given one, or Keras's default.

    Args:
        initializer: a Keras initializer, its name, or None.

    Returns:
        A new initializer, or the name of Keras's default for None.
    """
    return "glorot_uniform" if initializer is None else clone(initializer)


def serialize(initializer):
    """The config form of an initializer, or None for None."""
    if initializer is None:
        return None
    return tf.keras.initializers.serialize(initializer)
