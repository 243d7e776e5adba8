"""Rows of flat vectors; graph code that is traced once.

A graph of features uses these functions hundreds of times. It calls one trace
of each, instead of holding, and optimizing, a copy of it for every use.
"""

import tensorflow as tf

from etcmodel.ops.traces import once


@once
def cumulative(values: tf.Tensor) -> tf.Tensor:
    """Sums before every element, and the total at the end.

    Example: `cumulative([2, 0, 3])` gives `[0, 2, 2, 5]`.

    Args:
        values: <int or bool>[n].

    Returns:
        <int64>[n + 1].
    """
    return tf.pad(tf.cumsum(tf.cast(values, tf.int64)), [[1, 0]])


@once
def sum_rows(values: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Sums a flat vector row by row.

    Example: `sum_rows([2, 0, 3], [0, 2, 2, 3])` gives `[2, 0, 3]`.

    Args:
        values: <int or bool>[n].
        splits: <int64>[rows + 1], where each row starts, and the end.

    Returns:
        <int64>[rows].
    """
    return lengths(tf.gather(cumulative(values), splits))


@once
def lengths(splits: tf.Tensor) -> tf.Tensor:
    """How many elements every row has.

    Example: `lengths([0, 2, 2, 3])` gives `[2, 0, 1]`.

    Args:
        splits: <int64>[rows + 1], where each row starts, and the end.

    Returns:
        <int64>[rows].
    """
    return splits[1:] - splits[:-1]


@once
def owners(splits: tf.Tensor) -> tf.Tensor:
    """The row that every element is in.

    Example: `owners([0, 2, 2, 3])` gives `[0, 0, 2]`.

    Args:
        splits: <int64>[rows + 1], where each row starts, and the end.

    Returns:
        <int64>[elements].
    """
    return tf.searchsorted(
        splits[1:], tf.range(splits[-1]), side="right", out_type=tf.int64
    )


def owners_in(ragged: tf.RaggedTensor) -> tf.Tensor:
    """The row that every value of a ragged tensor is in; see `owners`.

    Example: `[[7, 8], [], [9]]` gives `[0, 0, 2]`.

    Args:
        ragged: <dtype>[rows, (values), ...].

    Returns:
        <int64>[values].
    """
    return owners(tf.cast(ragged.row_splits, tf.int64))


@once
def index_in(owner: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Index of every element within its row.

    Example: `index_in([0, 0, 2], [0, 2, 2, 3])` gives `[0, 1, 0]`.

    Args:
        owner: <int64>[elements], the rows that they are in; see `owners`.
        splits: <int64>[rows + 1], where each row starts, and the end.

    Returns:
        <int64>[elements].
    """
    return tf.range(tf.size(owner, tf.int64)) - tf.gather(splits, owner)


def merge(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes one row of the rows in each row.

    Example: `[[[7, 8], []], [[9]]]` gives `[[7, 8], [9]]`.

    Args:
        ragged: <dtype>[rows, (rows of the row), (values), ...].

    Returns:
        <dtype>[rows, (values), ...].
    """
    inner = ragged.values
    splits = tf.gather(inner.row_splits, ragged.row_splits)
    return tf.RaggedTensor.from_row_splits(inner.values, splits, validate=False)


def keep(ragged: tf.RaggedTensor, mask: tf.Tensor) -> tf.RaggedTensor:
    """Keeps some of the values of every row.

    Example: of `[[7, 8], [], [9]]` the mask `[True, False, True]` keeps
    `[[7], [], [9]]`.

    Args:
        ragged: <dtype>[rows, (values), ...].
        mask: <bool>[values].

    Returns:
        <dtype>[rows, (kept values), ...].
    """
    splits = tf.cast(ragged.row_splits, tf.int64)
    return tf.RaggedTensor.from_row_splits(
        tf.gather(ragged.values, tf.where(mask)[:, 0]),
        tf.gather(cumulative(mask), splits),
        validate=False,
    )
