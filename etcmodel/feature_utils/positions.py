"""Absolute positions that begin anew in every paragraph."""

import tensorflow as tf

from etcmodel import tensor_utils


def make_paragraph_positions(
    breakpoints: tf.Tensor, is_question: tf.Tensor | None, num_positions: int
) -> tf.Tensor:
    """Positions as BERT saw pairs of a question and a paragraph.

    All up to the end of the question counts through, and what a paragraph has
    goes on from there. The first position is that of [CLS], whether there is
    one or not. Positions that BERT does not have begin anew behind the
    question, so that paragraphs of any length work.

    Example: [CLS], two tokens of the question, and two paragraphs

        is_question  0 1 1  0 0 0  0 0
        breakpoints  1 0 1  0 0 1  0 1
        gives        0 1 2  3 4 5  3 4

    Args:
        breakpoints: `<int>[batch, length]`, 1 on the last token of every
            paragraph.
        is_question: `<int or bool>[batch, length]`, 1 on the question's
            tokens; None if there is none.
        num_positions: how many there are, 0 to `num_positions - 1`.

    Returns:
        `<int32>[batch, length]`.

    Raises:
        ValueError: `num_positions` is less than 2.
    """
    if num_positions < 2:
        raise ValueError(
            f"num_positions is {num_positions}, expected at least 2."
        )
    batch, length = tensor_utils.get_shape_list(breakpoints)
    # [1, length]
    index = tf.range(length)[tf.newaxis]
    # [batch, 1]
    end = shift = tf.zeros([batch, 1], tf.int32)
    if is_question is not None:
        # [batch, length]
        is_question = tf.cast(is_question, tf.bool)
        end = tf.reduce_max(
            tf.where(is_question, index + 1, 0), axis=1, keepdims=True
        )
        shift = tf.cast(is_question[:, :1], tf.int32)
    shift = tf.where(end > 0, shift, 1)
    # At most all but one position are the question's.
    first = tf.minimum(end + shift, num_positions - 1)
    # [batch, length], whether a paragraph starts there
    starts = tf.pad(
        tf.cast(breakpoints[:, :-1], tf.bool),
        [[0, 0], [1, 0]],
        constant_values=True,
    )
    starts = tf.logical_or(starts, tf.equal(index, end))
    # [batch, length], the number of the paragraph in the batch
    paragraph = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
    paragraph += tf.range(batch)[:, tf.newaxis] * length
    # [batch * length], where each paragraph starts
    start = tf.math.unsorted_segment_min(
        tf.tile(index, [batch, 1]), paragraph, batch * length
    )
    # [batch, length]
    start = tf.gather(start, paragraph)
    inside = first + (index - start) % (num_positions - first)
    before = tf.minimum(index + shift, num_positions - 1)
    return tf.where(index < end, before, inside)
