"""Lists of strings as tensors; graph code."""

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows


def without_padding(texts: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
    """Drops the trailing empty strings and trailing empty rows of every row.

    The input is `<string>[batch, n]` or `[batch, m, n]`, padded or ragged; the
    result is ragged. An empty string before a text is kept, and so is an empty
    row before a row with text.

    Example: `[[["a", ""], ["", ""], ["b", ""], ["", ""]]]` gives
    `[[["a"], [], ["b"]]]`.
    """
    if not isinstance(texts, tf.RaggedTensor):
        texts = tf.convert_to_tensor(texts, tf.string)
        texts = tf.RaggedTensor.from_tensor(
            texts, ragged_rank=texts.shape.rank - 1
        )
    texts = texts.with_row_splits_dtype(tf.int64)
    # [elements]
    if texts.ragged_rank > 1:
        texts = texts.with_values(without_padding(texts.values))
        is_used = texts.values.row_lengths() > 0
    else:
        is_used = tf.not_equal(texts.values, "")
    splits = texts.row_splits
    owner = ragged_rows.owners(splits)
    index = ragged_rows.index_in(owner, splits)
    # [batch]
    length = tf.math.unsorted_segment_max(
        tf.where(is_used, index + 1, 0), owner, texts.nrows()
    )
    return ragged_rows.keep(texts, index < tf.gather(length, owner))
