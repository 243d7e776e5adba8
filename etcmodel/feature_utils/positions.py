"""Absolute positions that restart in every paragraph."""

import tensorflow as tf

from etcmodel.feature_utils import structure_checks
from etcmodel.ops import checks
from etcmodel.ops import shapes


def make_paragraph_positions(
    breakpoints: tf.Tensor, is_question: tf.Tensor | None, num_positions: int
) -> tf.Tensor:
    """Makes positions as if each paragraph were BERT's pair with the question.

    The question's positions start at 1. Each paragraph's positions start after
    the last position of the question. The first token is [CLS], with position
    0, if it is a paragraph of its own or directly before the question. At least
    half of the `num_positions` are for paragraphs. If a paragraph has more
    tokens than there are positions for it, its positions restart after the last
    position of the question.

    Example: [CLS], a question of two tokens, and two paragraphs

        is_question  0 1 1  0 0 0  0 0
        breakpoints  1 0 1  0 0 1  0 1    on the last token of a paragraph
        gives        0 1 2  3 4 5  3 4
    """
    if num_positions < 2:
        raise ValueError(
            f"num_positions is {num_positions}, expected at least 2."
        )
    batch, length = shapes.get_shape_list(breakpoints)
    (breakpoints,) = checks.guard(
        [structure_checks.breakpoints("breakpoints", breakpoints)],
        structure_checks.BREAKPOINTS_EXAMPLE,
        breakpoints,
    )
    # [batch, length]
    ends = tf.cast(breakpoints, tf.bool)
    if is_question is None:
        is_question = tf.zeros_like(ends)
    is_question = tf.cast(is_question, tf.bool)
    # [batch, length], number of question tokens up to each token
    asked = tf.cumsum(tf.cast(is_question, tf.int32), axis=1)
    # [batch, 1]
    first = tf.minimum(1 + asked[:, -1:], num_positions // 2)
    # A paragraph also starts where a question begins or ends, even without a
    # breakpoint.
    starts = tf.pad(
        ends[:, :-1] | tf.not_equal(is_question[:, 1:], is_question[:, :-1]),
        [[0, 0], [1, 0]],
        constant_values=True,
    )
    # [batch, length], index of the token's paragraph in the batch
    paragraph = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
    paragraph += tf.range(batch)[:, tf.newaxis] * length
    # [batch, length]
    index = tf.tile(tf.range(length)[tf.newaxis], [batch, 1])
    # [batch * length], where each paragraph starts
    start = tf.math.unsorted_segment_min(index, paragraph, batch * length)
    inside = index - tf.gather(start, paragraph)
    positions = tf.where(
        is_question,
        tf.minimum(asked, num_positions - 1),
        first + inside % (num_positions - first),
    )
    # [batch, length], whether it is a [CLS]
    is_before = tf.roll(is_question, -1, axis=1)
    is_cls = (index == 0) & ~is_question & (ends | is_before)
    is_cls &= asked[:, -1:] > 0
    return tf.where(is_cls, 0, positions)


def take_first_owned(
    values: tf.Tensor, owners: tf.Tensor, num_global: int | tf.Tensor
) -> tf.Tensor:
    """Gathers the value of each global token's first long token, 0 for none.

    `values` and `owners` are `[batch, length]`; an owner is the index of a long
    token's global token, or -1. This gives the global tokens of question words
    the words' ids and positions. (Position 0 would be wrong: in BERT, only
    [CLS] has it, and its embedding is unlike all others. The model would take
    the word for another [CLS].)

    Example: a [CLS], a question of two words and a sentence of two words

        values  0 1 2 3 4
        owners  . 1 2 . .   (. is -1)
        gives   0 1 2 0     for 4 global tokens
    """
    batch, length = shapes.get_shape_list(values)
    # [batch, 1]
    row = tf.range(batch)[:, tf.newaxis]
    (owners,) = checks.guard(
        [
            checks.in_range(
                "owners",
                owners,
                tf.int32.min,
                num_global - 1,
                "expected the index of a global token, or -1 for none",
            )
        ],
        "Example with two global tokens: [-1, 0, 0, 1].",
        tf.cast(owners, tf.int32),
    )
    # [batch * num_global], past the end for global tokens without long tokens
    first = tf.math.unsorted_segment_min(
        tf.tile(tf.range(length)[tf.newaxis], [batch, 1]),
        tf.where(owners < 0, -1, row * num_global + owners),
        batch * num_global,
    )
    # [batch, num_global]
    first = tf.reshape(tf.minimum(first, length), [batch, num_global])
    # [batch, long + 1]
    padded = tf.pad(values, [[0, 0], [0, 1]])
    return tf.gather(padded, first, batch_dims=1)
