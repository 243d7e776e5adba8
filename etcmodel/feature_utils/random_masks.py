"""Random choices of tokens and words, which are equal on all devices."""

import tensorflow as tf

# CPUs, GPUs and TPUs have this algorithm, so a seed gives the same masks on
# all.
ALGORITHM = "philox"


def check_fraction(name: str, fraction: float) -> None:
    """Raises a `ValueError` unless `0 <= fraction < 1`."""
    if not 0 <= fraction < 1:
        raise ValueError(
            f"{name} is {fraction}. Expected a probability of at least 0 and "
            "less than 1."
        )


def random_ints(shape, seed, maxval: int | None, minval: int | None = 0):
    """Draws ints from `minval` to `maxval - 1`; any int32 if both are None.

    `seed` is `<int32>[2]`.
    """
    return tf.random.stateless_uniform(
        shape, seed, minval, maxval, tf.int32, alg=ALGORITHM
    )


def random_bools(shape, seed, probability: float) -> tf.Tensor:
    """Draws booleans, True with the given probability.

    Compares random integers with a threshold, since XLA makes different floats
    from the same random bits. The probability is rounded down to a multiple of
    2**-32. `seed` is `<int32>[2]`.
    """
    numbers = random_ints(shape, seed, None, None)
    return numbers < int(probability * 2**32) - 2**31


def word_numbers(is_continuation: tf.Tensor) -> tf.Tensor:
    """Numbers the words of each row from 0, `<int32>[batch, length]`.

    `is_continuation` is 1 for tokens that continue a word; the first token of a
    row always begins a word. Example: `[0, 0, 1, 0]` and `[1, 1, 0, 0]` give
    `[0, 1, 1, 2]` and `[0, 0, 1, 2]`.
    """
    is_first = tf.cast(tf.equal(is_continuation, 0), tf.int32)
    return tf.cumsum(is_first, axis=1) - is_first[:, :1]


def check_can_mask(tokenizer) -> None:
    """Raises a `ValueError` if a tokenizer's vocabulary has no mask token."""
    if "mask" not in tokenizer.special_ids:
        raise ValueError(
            "The vocabulary has no mask token. Expected [MASK] in a WordPiece "
            "vocabulary, or <sep_1> in a SentencePiece model."
        )
