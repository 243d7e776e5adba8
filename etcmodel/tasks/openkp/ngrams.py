"""Phrases of a page: word numbers, first occurrences, keyphrases."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from etcmodel.datasets import openkp
from etcmodel.datasets.normalized_texts import normalize
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.layout.contents import record_splits

# Maximum number of words of a phrase, and maximum number of keyphrases of a
# page in training (ETC paper, Appendix C).
MAX_WORDS = 5
MAX_PHRASES = 3


class VisibleWords(NamedTuple):
    """The words of each page that have at least one token.

    Attributes:
        numbers: each token's word, from 1, `<int32>[batch, (nodes), (tokens)]`.
        words, nodes: index of each word in the page, and of its node,
            `<int32>[batch, (visible words)]`.
    """

    numbers: tf.RaggedTensor
    words: tf.RaggedTensor
    nodes: tf.RaggedTensor


def number_words(words: tf.RaggedTensor) -> VisibleWords:
    """Numbers the words that have tokens; graph code.

    Example: the tokens of two nodes belong to the words `[[[0, 0, 2], [3]]]`,
    `<int32>[batch, (nodes), (tokens)]`, in ascending order. This gives the
    numbers `[[[1, 1, 2], [3]]]`, the words `[[0, 2, 3]]` and the nodes
    `[[0, 0, 1]]`.
    """
    splits = words.with_row_splits_dtype(tf.int64).nested_row_splits
    # [tokens]: the page of each token.
    owner = ragged_rows.owners(record_splits(splits))
    flat = words.flat_values
    is_same = (flat[1:] == flat[:-1]) & (owner[1:] == owner[:-1])
    is_first = tf.concat([tf.ones_like(flat[:1], tf.bool), ~is_same], axis=0)
    # [tokens + 1]: number of words that start before each token.
    before = tf.pad(tf.cumsum(tf.cast(is_first, tf.int32)), [[1, 0]])
    starts = tf.gather(before, record_splits(splits))
    first = tf.where(is_first)[:, 0]
    node = tf.gather(ragged_rows.owners(splits[1]), first)
    node -= tf.gather(splits[0], tf.gather(owner, first))

    def by_page(values):
        return tf.RaggedTensor.from_row_splits(
            values, tf.cast(starts, tf.int64), validate=False
        )

    return VisibleWords(
        words.with_flat_values(before[1:] - tf.gather(starts, owner)),
        by_page(tf.gather(flat, first)),
        by_page(tf.cast(node, tf.int32)),
    )


def first_occurrences(
    words: tf.RaggedTensor, nodes: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Computes each phrase's distance to its first occurrence; graph code.

    Case is ignored. A phrase that crosses nodes does not equal any other
    phrase. Example: the words `a b`, `A b` of two nodes give `[[0, 0, ...], [0,
    0, ...], [2, 2, 0, ...], [2, 0, ...]]`: for each word, the distances of the
    phrases of one word, two words and so on that start there, `<int32>[batch,
    (words), 5]`. Words and their nodes are `[batch, (words)]`.
    """
    page = ragged_rows.owners_in(words)
    # [words]
    lower = tf.strings.lower(words.values, encoding="utf-8")
    word = _number(tf.unique(lower, tf.int64).idx, page)
    node = tf.cast(nodes.values, tf.int64) + page * tf.int32.max
    index = tf.range(tf.size(word))
    phrase, offsets = word, []
    for size in range(1, MAX_WORDS + 1):
        if size > 1:
            phrase = _number(phrase, _shift(word, size - 1))
        is_inside = _shift(node, size - 1) == node
        # [different phrases]
        first = tf.math.unsorted_segment_min(
            index, tf.where(is_inside, phrase, -1), tf.size(word)
        )
        first = tf.where(is_inside, tf.gather(first, phrase), index)
        offsets.append(index - first)
    return words.with_values(tf.stack(offsets, axis=1))


def _shift(values, number):
    """Moves values `number` places to the front, with -1 at the end."""
    return tf.pad(values[number:], [[0, number]], constant_values=-1)[
        : tf.size(values)
    ]


def _number(first, second):
    """Numbers the distinct pairs of values of two `<int64>[n]` below 2**31."""
    return tf.unique(first * 2**32 + second, tf.int64).idx


def normalize_word(text: str) -> str:
    """Normalizes a word or phrase as the official script does."""
    return openkp.normalize_phrase(normalize(text))


def find_phrases(
    phrases: Sequence[str], words: Sequence[str], nodes: Sequence[int]
) -> list[tuple[int, int]]:
    """Finds phrases within a node, as (first word, number of words).

    Returns the first occurrence of each phrase, in the order of the phrases, at
    most `MAX_PHRASES`. Example: "star trek" is (1, 2) in the words "star",
    "star", "trek" of the nodes 0, 1, 1. `words` are results of
    `normalize_word`.
    """
    sought = dict.fromkeys(map(normalize_word, phrases))
    places = {word: [] for phrase in sought for word in phrase.split()[:1]}
    for i, word in enumerate(words):
        if word in places:
            places[word].append(i)
    found = []
    for phrase in sought:
        parts = phrase.split()
        end = len(parts)
        if end > MAX_WORDS:
            continue
        for i in places[parts[0]]:
            if words[i : i + end] == parts and nodes[i] == nodes[i + end - 1]:
                found.append((i, end))
                break
    return found[:MAX_PHRASES]
