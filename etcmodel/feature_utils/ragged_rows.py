"""Operations on the rows of flat vectors; graph code that is traced once.

A graph that makes features calls these functions hundreds of times. All calls
share one trace of each function; otherwise TensorFlow would store and optimize
a copy per call. Splits are `<int64>[rows + 1]`: row i has the elements
`splits[i]:splits[i + 1]`.
"""

import tensorflow as tf

from etcmodel.ops.traces import once


@once
def cumulative(values: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the values before each value, and the total.

    Example: `[2, 0, 3]` gives `[0, 2, 2, 5]`.
    """
    return tf.pad(tf.cumsum(tf.cast(values, tf.int64)), [[1, 0]])


@once
def sum_rows(values: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Sums each row: `sum_rows([2, 0, 3], [0, 2, 2, 3])` is `[2, 0, 3]`."""
    return lengths(tf.gather(cumulative(values), splits))


@once
def lengths(splits: tf.Tensor) -> tf.Tensor:
    """Returns row lengths: `lengths([0, 2, 2, 3])` is `[2, 0, 1]`."""
    return splits[1:] - splits[:-1]


@once
def owners(splits: tf.Tensor) -> tf.Tensor:
    """Returns each element's row: `owners([0, 2, 2, 3])` is `[0, 0, 2]`."""
    return tf.searchsorted(
        splits[1:], tf.range(splits[-1]), side="right", out_type=tf.int64
    )


def owners_in(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Returns the row of every value of a ragged tensor; see `owners`."""
    return owners(tf.cast(ragged.row_splits, tf.int64))


@once
def index_in(owner: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Returns each element's index in its row, given the elements' `owners`.

    Example: `index_in([0, 0, 2], [0, 2, 2, 3])` is `[0, 1, 0]`.
    """
    return tf.range(tf.size(owner, tf.int64)) - tf.gather(splits, owner)


def merge(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
    """Concatenates the inner rows of each row.

    Example: `[[[7, 8], []], [[9]]]` gives `[[7, 8], [9]]`.
    """
    inner = ragged.values
    splits = tf.gather(inner.row_splits, ragged.row_splits)
    return tf.RaggedTensor.from_row_splits(inner.values, splits, validate=False)


def keep(ragged: tf.RaggedTensor, mask: tf.Tensor) -> tf.RaggedTensor:
    """Keeps the values where a mask, `<bool>[values]`, is True.

    Example: `[[7, 8], [], [9]]` with `[True, False, True]` gives
    `[[7], [], [9]]`.
    """
    splits = tf.cast(ragged.row_splits, tf.int64)
    return tf.RaggedTensor.from_row_splits(
        tf.gather(ragged.values, tf.where(mask)[:, 0]),
        tf.gather(cumulative(mask), splits),
        validate=False,
    )
