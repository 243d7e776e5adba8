"""Content of sections: lifted to four levels, and numbered; graph code."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows


def one_unit(tokens: tf.RaggedTensor) -> tf.RaggedTensor:
    """One group of one unit: a question.

    Example: `[[7, 8], []]` gives `[[[[7, 8]]], [[[]]]]`.

    Args:
        tokens: <int>[batch, (tokens)].

    Returns:
        <int>[batch, (1), (1), (tokens)].
    """
    return one_group(_nest(tokens))


def one_group(units: tf.RaggedTensor) -> tf.RaggedTensor:
    """One group of units: the sentences of a text.

    Example: `[[[7, 8], [9]]]` gives `[[[[7, 8], [9]]]]`.

    Args:
        units: <int>[batch, (units), (tokens)].

    Returns:
        <int>[batch, (1), (units), (tokens)].
    """
    return _nest(units)


def groups_of_one(units: tf.RaggedTensor) -> tf.RaggedTensor:
    """Groups of one unit each: candidate answers.

    Example: `[[[7, 8], [9]]]` gives `[[[[7, 8]], [[9]]]]`.

    Args:
        units: <int>[batch, (groups), (tokens)].

    Returns:
        <int>[batch, (groups), (1), (tokens)].
    """
    units = units.with_row_splits_dtype(tf.int64)
    return units.with_values(_nest(units.values))


def constant_tokens(token_ids: Sequence[int], batch: tf.Tensor):
    """The same tokens for every record: a [CLS].

    Args:
        token_ids: the ids.
        batch: <int>[], number of records.

    Returns:
        <int32>[batch, (tokens)]: lift it with `one_unit`.
    """
    ids = tf.constant(token_ids, tf.int32)
    # [batch, tokens]
    tokens = tf.tile(ids[tf.newaxis], [batch, 1])
    return tf.RaggedTensor.from_tensor(tokens, row_splits_dtype=tf.int64)


def record_splits(nested_splits: Sequence[tf.Tensor]) -> tf.Tensor:
    """Which of the innermost units each record has.

    Example: `[[0, 2, 3], [0, 1, 3, 4]]` gives `[0, 3, 4]`.

    Args:
        nested_splits: as `nested_row_splits` of content, the records' first.

    Returns:
        `<int64>[batch + 1]`.
    """
    return functools.reduce(lambda x, y: tf.gather(y, x), nested_splits)


def unit_indices(content: tf.RaggedTensor, level: str) -> tf.RaggedTensor:
    """Index of every group or unit of content within its record.

    Example: the units of `[[[[7], [8]], [[9]]]]` have `[[[0, 1], [2]]]`.

    Args:
        content: `<dtype>[batch, (groups), (units), ...]`.
        level: "group" or "unit".

    Returns:
        `<int32>[batch, (groups)]` or `<int32>[batch, (groups), (units)]`.
    """
    depth = ("group", "unit").index(level) + 1
    splits = content.with_row_splits_dtype(tf.int64).nested_row_splits[:depth]
    first = record_splits(splits)
    index = ragged_rows.index_in(ragged_rows.owners(first), first)
    return tf.RaggedTensor.from_nested_row_splits(
        tf.cast(index, tf.int32), splits, validate=False
    )


def _nest(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes a row of its own of everything in the first dimension."""
    ragged = ragged.with_row_splits_dtype(tf.int64)
    splits = tf.range(ragged.nrows() + 1)
    return tf.RaggedTensor.from_row_splits(ragged, splits, validate=False)
