"""Finds tokens that begin or end inside a word; graph code.

Models use this module to predict answers of whole words. An answer should
neither begin with "##r" nor end with "Bel", the beginning of "Belfort".
"""

import unicodedata

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import ragged_rows

BEGINS_INSIDE, ENDS_INSIDE = 1, 2

# Scripts without spaces between words, or with endings directly after names, as
# in Korean. Each entry is the first word of the characters' names in Unicode.
WITHOUT_SPACES = frozenset(
    "CJK HANGUL HIRAGANA KATAKANA KATAKANA-HIRAGANA BOPOMOFO YI THAI LAO KHMER "
    "MYANMAR TIBETAN JAVANESE BALINESE".split()
)


def find_word_cuts(tokenizer, ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Finds tokens that begin or end inside a word.

    A word is a run of letters, their marks and digits. Characters of scripts
    without spaces between words, such as Chinese or Thai, are words by
    themselves. Graph code.

    Example: the pieces `bel ##fort , 5 ##°` of WordPiece give `2 1 0 0 0`.

    Returns:
        `<int32>[..., (tokens)]`: 0, `BEGINS_INSIDE`, `ENDS_INSIDE` or the sum
        of these two.
    """
    with tf.init_scope():
        tokens = tokenizer.id_to_token(tf.range(tokenizer.vocab_size)).numpy()
        continues = tokenizer.is_continuation(
            tf.range(tokenizer.vocab_size)
        ).numpy()
    texts = [x.decode("utf-8", "replace") for x in tokens]
    if tokenizer.kind == "wordpiece":
        texts = [x.removeprefix("##") for x in texts]
    # [vocab]
    begins, ends = (
        np.array([_is_of_word(x[i:][:1]) for x in texts]) for i in (0, -1)
    )
    begins &= continues == 1
    rows = ids
    while rows.ragged_rank > 1:
        rows = rows.values
    row, token = ragged_rows.owners_in(rows), rows.values
    # [tokens - 1], whether each token and the next one are in the same word
    joins = (
        tf.gather(tf.constant(ends), token)[:-1]
        & tf.gather(tf.constant(begins), token)[1:]
        & tf.equal(row[:-1], row[1:])
    )
    joins = tf.cast(joins, tf.int32)
    cuts = BEGINS_INSIDE * tf.pad(joins, [[1, 0]])
    cuts += ENDS_INSIDE * tf.pad(joins, [[0, 1]])
    # If there are no tokens, padding adds one value.
    return ids.with_flat_values(cuts[: tf.size(token)])


def begins_inside(cuts: tf.Tensor) -> tf.Tensor:
    """Marks tokens that begin inside a word, `<bool>[...]`."""
    return cuts % 2 > 0


def ends_inside(cuts: tf.Tensor) -> tf.Tensor:
    """Marks tokens that end inside a word, `<bool>[...]`."""
    return cuts >= ENDS_INSIDE


def whole_words(cuts: np.ndarray, first: int, last: int) -> tuple[int, int]:
    """Extends a span, given by its first and last token, to whole words.

    `cuts` are the results of `find_word_cuts` for the text's tokens.
    """
    # Stops at the end of the text, even if the last word is truncated there.
    while first > 0 and ends_inside(cuts[first - 1]):
        first -= 1
    while last + 1 < len(cuts) and begins_inside(cuts[last + 1]):
        last += 1
    return int(first), int(last)


def _is_of_word(character: str) -> bool:
    """Returns whether a character can be part of a longer word."""
    if not character or unicodedata.category(character)[0] not in "LMN":
        return False
    script = unicodedata.name(character, "").partition(" ")[0]
    return script not in WITHOUT_SPACES
