"""Masks sentences and words for the pre-training of ETC; graph code.

Source: ETC paper, section 3.5 and Appendices B and C.
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import random_masks
from etcmodel.ops import gathering
from etcmodel.ops import shapes


class MaskedSentences(NamedTuple):
    """Texts with masked sentences and words.

    Attributes:
        token_ids: `<int32>[batch, long]` with the mask tokens.
        is_target: `<bool>[batch, long]`, tokens to predict.
        is_masked: `<bool>[batch, global]`, masked sentences.
    """

    token_ids: tf.Tensor
    is_target: tf.Tensor
    is_masked: tf.Tensor


def mask_sentences(
    token_ids: tf.Tensor,
    is_continuation: tf.Tensor,
    is_text: tf.Tensor,
    sentence_ids: tf.Tensor,
    is_sentence: tf.Tensor,
    mask_token_id: int,
    sentence_mask_token_id: int,
    vocab_size: int,
    seed: tf.Tensor,
    cpc_fraction: float = 0.1,
    mlm_fraction: float = 0.15,
) -> MaskedSentences:
    """Chooses sentences for CPC and words for the masked language model.

    In each row, the number of chosen sentences is as close to the fraction as
    possible; their tokens become the token for masked sentences. Other words
    are chosen as a whole, each with the same probability. Their tokens are
    targets: 80 % become the mask token, 10 % any token below `vocab_size`, and
    10 % stay. The same seed, `<int32>[2]`, gives the same masks, with and
    without XLA.

    Example: `the cat ##s . a dog .`, with the sentences 0 and 1. If sentence 1
    and the word `cats` are chosen, the text becomes
    `the [M] [M] . [S] [S] [S]`, where an [M] may also be another token or the
    original one.

    `is_continuation` is 1 for tokens that continue a word, `is_text` False for
    tokens that are never masked, all `[batch, long]`; `sentence_ids` hold the
    global token of each token's sentence; a number outside of the global input
    means no sentence.

    Raises:
        ValueError: a fraction is out of its range, or `token_ids` is not a
            matrix.
    """
    random_masks.check_fraction("cpc_fraction", cpc_fraction)
    random_masks.check_fraction("mlm_fraction", mlm_fraction)
    token_ids = tf.cast(token_ids, tf.int32)
    shape = shapes.get_shape_list(token_ids, 2, "token_ids")
    seeds = tf.unstack(tf.random.split(seed, 4, alg=random_masks.ALGORITHM))
    is_masked = _choose_sentences(
        tf.cast(is_sentence, tf.bool), seeds[0], cpc_fraction
    )
    is_text = tf.cast(is_text, tf.bool)
    # [batch, long]
    in_masked = is_text & _of_global(is_masked, sentence_ids)
    is_chosen = random_masks.random_bools(shape, seeds[1], mlm_fraction)
    is_target = (
        is_text
        & ~in_masked
        & tf.gather(
            is_chosen,
            random_masks.word_numbers(is_continuation),
            batch_dims=1,
        )
    )
    # Draws numbers from 0 to 9: 0 for a random token, 1 for the original token,
    # 2 to 9 for the mask.
    kind = random_masks.random_ints(shape, seeds[2], 10)
    others = random_masks.random_ints(shape, seeds[3], vocab_size)
    replaced = tf.where(
        kind == 0, others, tf.where(kind == 1, token_ids, mask_token_id)
    )
    masked = tf.where(is_target, replaced, token_ids)
    return MaskedSentences(
        token_ids=tf.where(in_masked, sentence_mask_token_id, masked),
        is_target=is_target,
        is_masked=is_masked,
    )


class TakenSentences(NamedTuple):
    """Sentences copied from texts, to be encoded alone.

    Attributes:
        sentences: `<int32>[batch, n]`, their global tokens, in order.
        weights: `<float32>[batch, n]`, 1 for a sentence with tokens.
        token_ids: `<int32>[batch, m]`, one sentence after the other.
        owners: `<int32>[batch, m]`, the index of each token's sentence among
            the `n`; -1 for padding.
    """

    sentences: tf.Tensor
    weights: tf.Tensor
    token_ids: tf.Tensor
    owners: tf.Tensor


def take_sentences(
    token_ids: tf.Tensor,
    sentence_ids: tf.Tensor,
    is_taken: tf.Tensor,
    max_sentences: int,
    max_tokens: int,
) -> TakenSentences:
    """Copies the sentences marked in `is_taken`, `<bool>[batch, global]`.

    They are concatenated to save padding; attention masks separate them.
    Sentences beyond `max_sentences` and tokens beyond `max_tokens` are dropped.
    Sentence ids must ascend.

    Example: for the tokens `11 12 21 22 23 31` of the sentences `0 0 1 1 1 2`,
    with `is_taken=[0, 1, 1]`, `max_sentences=3` and `max_tokens=5`:

        sentences  1 2 0        token_ids  21 22 23 31  0
        weights    1 1 0        owners      0  0  0  1 -1
    """
    is_taken = tf.cast(is_taken, tf.bool)
    # [batch, n]
    sentences, _ = gathering.true_positions(is_taken, max_sentences)
    # [batch, global]: index of each sentence among those taken.
    number = tf.cumsum(tf.cast(is_taken, tf.int32), axis=1) - 1
    # [batch, m]
    positions, is_token = gathering.true_positions(
        _of_global(is_taken, sentence_ids), max_tokens
    )
    is_token = tf.cast(is_token, tf.bool)
    owners = tf.gather(
        number,
        tf.gather(tf.cast(sentence_ids, tf.int32), positions, batch_dims=1)
        * tf.cast(is_token, tf.int32),
        batch_dims=1,
    )
    is_token &= owners < max_sentences
    owners = tf.where(is_token, owners, -1)
    # [batch, n, m]
    is_of = tf.equal(
        tf.range(max_sentences)[:, tf.newaxis], owners[:, tf.newaxis]
    )
    return TakenSentences(
        sentences=sentences,
        weights=tf.cast(tf.reduce_any(is_of, axis=2), tf.float32),
        token_ids=tf.where(
            is_token,
            tf.gather(tf.cast(token_ids, tf.int32), positions, batch_dims=1),
            0,
        ),
        owners=owners,
    )


def _choose_sentences(is_sentence, seed, fraction):
    """Chooses a random `fraction` of the sentences of each row."""
    shape = shapes.get_shape_list(is_sentence)
    draws = random_masks.random_ints(shape, seed, 2**31 - 1)
    draws = tf.where(is_sentence, draws, 2**31 - 1)
    # [batch, 1]
    number = tf.reduce_sum(tf.cast(is_sentence, tf.float32), 1, keepdims=True)
    number = tf.cast(tf.floor(number * fraction + 0.5), tf.int32)
    # [batch, global]: each sentence's rank in the row's random order.
    rank = tf.argsort(tf.argsort(draws, axis=1, stable=True), axis=1)
    return is_sentence & (rank < number)


def _of_global(values, ids):
    """Gathers the value of each token's global token; False if it has none."""
    length = shapes.get_shape_list(values)[1]
    ids = tf.cast(ids, tf.int32)
    is_tied = (ids >= 0) & (ids < length)
    return is_tied & tf.gather(values, tf.where(is_tied, ids, 0), batch_dims=1)
