"""Adds dimensions to content: `[batch, (groups), (units), (tokens)]`."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows


def one_unit(tokens: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes the tokens of each record a single group with a single unit.

    Use it for a question, for example. `tokens` is `<int>[batch, (tokens)]`:
    `[[7, 8], []]` gives `[[[[7, 8]]], [[[]]]]`.
    """
    return one_group(_nest(tokens))


def one_group(units: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes the units of each record a single group.

    Use it for the sentences of a text, for example. `units` is `<int>[batch,
    (units), (tokens)]`: `[[[7, 8], [9]]]` gives `[[[[7, 8], [9]]]]`.
    """
    return _nest(units)


def groups_of_one(units: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes each unit a separate group.

    Use it for candidates, for example. `units` is `<int>[batch, (groups),
    (tokens)]`: `[[[7, 8], [9]]]` gives `[[[[7, 8]], [[9]]]]`.
    """
    units = units.with_row_splits_dtype(tf.int64)
    return units.with_values(_nest(units.values))


def constant_tokens(token_ids: Sequence[int], batch: tf.Tensor):
    """Repeats the same tokens for every record, `<int32>[batch, (tokens)]`."""
    ids = tf.constant(token_ids, tf.int32)
    # [batch, tokens]
    tokens = tf.tile(ids[tf.newaxis], [batch, 1])
    return tf.RaggedTensor.from_tensor(tokens, row_splits_dtype=tf.int64)


def record_splits(nested_splits: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns row splits of each record's innermost elements.

    `nested_splits` are the splits of all levels, from the outermost. Example:
    `[[0, 2, 3], [0, 1, 3, 4]]` gives `[0, 3, 4]`.
    """
    return functools.reduce(lambda x, y: tf.gather(y, x), nested_splits)


def unit_indices(content: tf.RaggedTensor, level: str) -> tf.RaggedTensor:
    """Returns the index of every group or unit within its record, `<int32>`.

    `level` is "group" or "unit". Example: the units of `[[[[7], [8]], [[9]]]]`
    have the indices `[[[0, 1], [2]]]`.
    """
    depth = ("group", "unit").index(level) + 1
    splits = content.with_row_splits_dtype(tf.int64).nested_row_splits[:depth]
    first = record_splits(splits)
    index = ragged_rows.index_in(ragged_rows.owners(first), first)
    return tf.RaggedTensor.from_nested_row_splits(
        tf.cast(index, tf.int32), splits, validate=False
    )


def _nest(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes each element of the first dimension a separate row."""
    ragged = ragged.with_row_splits_dtype(tf.int64)
    splits = tf.range(ragged.nrows() + 1)
    return tf.RaggedTensor.from_row_splits(ragged, splits, validate=False)
