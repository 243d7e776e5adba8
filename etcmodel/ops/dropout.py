"""Draws dropout masks that depend only on a seed."""

import tensorflow as tf


def draw(shape, seed, rate, dtype=tf.float32) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws which elements are kept.

    Args:
        shape: `<int32>[rank]`, or a list.
        seed: `<int32>[2]`. Equal seeds give equal draws.
        rate: probability of dropping, in [0, 1); a number or `<float>[]`.
        dtype: dtype of the random numbers; half precision is too coarse.

    Returns:
        The mask `<bool>[shape]`, true for kept elements, and their scale.
    """
    if tf.is_tensor(rate):
        rate = tf.cast(rate, dtype)
    else:
        rate = tf.constant(rate, dtype)
    draws = tf.random.stateless_uniform(shape, seed, dtype=dtype)
    return draws >= rate, 1.0 / (1.0 - rate)


def drop(x: tf.Tensor, is_kept: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Scales the kept elements and sets all others to 0.

    `[1., 2., 3.]` with `[True, False, True]` and a scale of 2 gives
    `[2., 0., 6.]`. Its gradient keeps one byte per element.
    """
    return tf.where(is_kept, x * tf.cast(scale, x.dtype), tf.zeros([], x.dtype))
