"""Random choices of tokens and words that are the same on all devices."""

import tensorflow as tf

# For all kinds of devices, so that a seed gives the same masks on each.
ALGORITHM = "philox"


def check_fraction(name: str, fraction: float) -> None:
    """Checks a probability with which something is masked.

    Args:
        name: what it is called.
        fraction: the probability.

    Raises:
        ValueError: it is less than 0, or not less than 1.
    """
    if not 0 <= fraction < 1:
        raise ValueError(
            f"{name} is {fraction}; expected a probability that is at least 0 "
            "and less than 1"
        )


def random_bools(shape, seed, probability: float) -> tf.Tensor:
    """True with a probability that is less than 1.

    Drawn as integers, because XLA makes other floats of the same random bits.

    Args:
        shape: list of ints or `<int32>[]`.
        seed: `<int32>[2]`.
        probability: float, at least 0; rounded to a multiple of 2**-32.

    Returns:
        `<bool>` of the given shape.
    """
    numbers = tf.random.stateless_uniform(
        shape,
        seed,
        minval=None,
        maxval=None,
        dtype=tf.int32,
        alg=ALGORITHM,
    )
    return numbers < int(probability * 2**32) - 2**31


def word_numbers(is_continuation: tf.Tensor) -> tf.Tensor:
    """Numbers the words of each row from 0 on.

    `[0, 0, 1, 0]` and `[1, 1, 0, 0]` give `[0, 1, 1, 2]` and `[0, 0, 1, 2]`.

    Args:
        is_continuation: `<int>[batch, length]`, 1 for tokens that go on with
            the word of the token before. The first token begins a word in any
            case.

    Returns:
        `<int32>[batch, length]`.
    """
    is_first = tf.cast(tf.equal(is_continuation, 0), tf.int32)
    return tf.cumsum(is_first, axis=1) - is_first[:, :1]


def check_can_mask(tokenizer) -> None:
    """Checks that there is a token for what is to be predicted.

    Args:
        tokenizer: a tokenizer of `tokenizers`.

    Raises:
        ValueError: the vocabulary has none.
    """
    if "mask" not in tokenizer.special_ids:
        raise ValueError(
            "it has no token for what is masked: [MASK] in a WordPiece "
            "vocabulary, <sep_1> in a SentencePiece model."
        )
