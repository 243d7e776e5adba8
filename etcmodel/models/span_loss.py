"""Losses over all segments of a document, on one or more replicas.

ReadTwice paper, Appendix C. A batch is a list of segments ("blocks") of one or
more documents, spread over all replicas of a `tf.distribute.Strategy`. The
replicas exchange what they need, so losses and gradients do not depend on the
number of devices or hosts. All replicas need the same shapes. In all functions:

    block_ids             <int>[blocks] document of each block, 0 for padding
    logits                <float>[blocks, length, classes]
    cross_blocks_eq_mask  <bool>[blocks, all blocks], see `get_document_mask`

Results are float64 for float64 logits and float32 for all other logits. An
argument with the wrong rank raises a ValueError.
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.models.read_twice import memory_extraction
from etcmodel.ops import collectives
from etcmodel.ops import shapes

# The log probability of tokens in blocks that belong to no document.
_NEVER = -1e9


class BlockLosses(NamedTuple):
    """The share of each block of this replica in its document's loss.

    The sum of `losses` over all replicas, divided by the sum of `weights`, is
    the mean loss of the documents. `losses` are in nats. `weights` are the
    block's share of its document, 0 for a block that does not count. Both are
    `<float32>[blocks]`.
    """

    losses: tf.Tensor
    weights: tf.Tensor


def get_document_mask(block_ids) -> tf.Tensor:
    """Marks pairs of blocks of the same document, over all replicas.

    For `[1, 0, 2]` on the first of two replicas and `[2, 1, 0]` on the second,
    returns `[[1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]` on
    the first, as `<bool>[blocks, all blocks]`.
    """
    shapes.assert_rank(block_ids, 1, "block_ids")
    block_ids = tf.convert_to_tensor(block_ids)
    # [all blocks]
    all_block_ids = collectives.all_gather(block_ids)
    return memory_extraction.get_cross_block_att(
        block_ids, None, all_block_ids, None, "doc"
    )


def get_multi_doc_mask(block_ids) -> tf.Tensor:
    """Marks blocks whose document has other blocks, on any replica.

    For `[1, 0, 1, 2]`, returns `[1, 0, 1, 0]`, as `<float32>[blocks]`.
    """
    # [blocks, all blocks]
    same_document = tf.cast(get_document_mask(block_ids), tf.float32)
    return tf.cast(tf.reduce_sum(same_document, axis=1) > 1, tf.float32)


def cross_batch_log_softmax(logits, cross_blocks_eq_mask) -> tf.Tensor:
    """Computes the log softmax over all tokens of all blocks of a document.

    Each class has its own softmax. The document's highest logit is subtracted
    first, so results stay accurate for large logits, such as 1e8. Blocks of no
    document get -1e9. Example: one class and one document of two blocks with
    two tokens each; the logits are the logs of the numbers on the left:

        [[1, 2], [3, 4]]  ->  the logs of  [[0.1, 0.2], [0.3, 0.4]]
    """
    logits = _as_scores(logits)
    shapes.assert_rank(cross_blocks_eq_mask, 2, "cross_blocks_eq_mask")
    same_document = tf.cast(cross_blocks_eq_mask, tf.bool)
    in_document = _is_in_document(same_document)
    highest, total = _exp_sums(logits, in_document, same_document)
    # [blocks, length, classes]
    log_probs = logits - highest[:, tf.newaxis] - _log(total)[:, tf.newaxis]
    return tf.where(in_document, log_probs, tf.constant(_NEVER, logits.dtype))


def batch_span_cross_entropy_loss(
    logits, annotation_begins, annotation_ends, annotation_labels, block_ids
) -> BlockLosses:
    """Computes the negative log probability that any correct answer is chosen.

    One correct answer per document is enough (the OR model with global
    normalization of the ReadTwice paper, Appendix C.1, equation 7, after Clark
    and Gardner, 2018). Token `j` of block `i` of a document has the logit
    `z_ij`, and `B` is the set of first tokens of its answers:

        loss_begin = -log(sum_B exp(z_ij) / sum_ij exp(z_ij))

    The loss of ends is computed the same way and added. Each document counts
    once, however many blocks and replicas it has; documents without an answer
    do not count. Each sum subtracts its own highest logit, so the `eps` of the
    original code is not needed.

    Example: a document has two blocks of two tokens. Begin and end logits are
    the logs of 1, 2 and of 3, 4, and the only answer is the last token. Each
    block has the loss `(-log 0.4 - log 0.4) / 2` and the weight 1/2.

    Args:
        logits: `<float>[blocks, length, 2]`, begin and end.
        annotation_begins: `<int>[blocks, annotations]` first token of each
            answer.
        annotation_ends: `<int>[blocks, annotations]` last token of each answer.
        annotation_labels: `<int>[blocks, annotations]`, above 0 for answers,
            and 0 for padding. The same answer may occur twice.
        block_ids: `<int>[blocks]`.
    """
    logits = _as_scores(logits)
    length = shapes.get_shape_list(logits)[1]
    for name, x in (
        ("annotation_begins", annotation_begins),
        ("annotation_ends", annotation_ends),
        ("annotation_labels", annotation_labels),
    ):
        shapes.assert_rank(x, 2, name)
    # [blocks, all blocks]
    same_document = get_document_mask(block_ids)
    # [blocks, length, 2]
    is_right = tf.stack(
        [
            _mark(positions, annotation_labels, length)
            for positions in (annotation_begins, annotation_ends)
        ],
        axis=-1,
    )
    # [blocks, length, 4]: begin and end of all tokens, then of answers
    counts = tf.logical_and(
        tf.concat([tf.ones_like(is_right), is_right], axis=-1),
        _is_in_document(same_document),
    )
    highest, total = _exp_sums(
        tf.concat([logits, logits], axis=-1), counts, same_document
    )
    # [blocks]
    has_answer = tf.reduce_all(total[:, 2:] > 0, axis=1)
    # The highest logits may be large, so their difference is computed first.
    losses = tf.reduce_sum(
        highest[:, :2]
        - highest[:, 2:]
        + (_log(total[:, :2]) - _log(total[:, 2:])),
        axis=1,
    )
    blocks_of_document = tf.reduce_sum(
        tf.cast(same_document, losses.dtype), axis=1
    )
    weights = tf.cast(has_answer, losses.dtype) / tf.maximum(
        blocks_of_document, 1
    )
    return BlockLosses(losses * weights, weights)


def choice_losses(logits, labels, is_supporting, block_ids) -> BlockLosses:
    """Computes the loss of the correct option in each supporting block.

    ReadTwice paper, Appendix C.2. From a block's first token, the model
    predicts whether a question's answer is "yes", "no" or a span. "We normalize
    these scores globally across all passages. The loss function [...] is a
    negative log-likelihood of the correct option, applied only to the two
    supporting paragraphs (not the distractors)." Here the probabilities of all
    options in all blocks of a question sum to 1. Every supporting block has the
    loss `-log p(block, correct option)`, and the question's loss is the mean of
    its supporting blocks' losses. (With two supporting blocks, it is at least
    log 2.) Questions without supporting blocks do not count.

    Example: one question has two blocks and two options, and the logits are the
    logs of `[[1, 2], [3, 4]]`. With the labels `[1, 1]`, if both blocks are
    supporting, the losses are `[-log(0.2) / 2, -log(0.4) / 2]`. If only the
    first is supporting, they are `[-log(0.2), 0]`.

    Args:
        logits: `<float>[blocks, options]`.
        labels: `<int>[blocks]` the correct option of the question.
        is_supporting: `<int or bool>[blocks]`.
        block_ids: `<int>[blocks]` question of each block.
    """
    options = shapes.get_shape_list(logits, 2, "logits")[1]
    shapes.assert_rank(labels, 1, "labels")
    shapes.assert_rank(is_supporting, 1, "is_supporting")
    # [blocks, all blocks]
    same_document = get_document_mask(block_ids)
    # [blocks, options]
    log_probs = cross_batch_log_softmax(logits[..., tf.newaxis], same_document)[
        ..., 0
    ]
    is_right = tf.one_hot(labels, options, dtype=log_probs.dtype)
    # [blocks]
    losses = -tf.reduce_sum(log_probs * is_right, axis=1)
    counts = tf.logical_and(
        tf.cast(is_supporting, tf.bool), tf.reduce_any(same_document, axis=1)
    )
    counts = tf.cast(counts, losses.dtype)
    blocks_of_document = _over_document(
        tf.reduce_sum, counts[:, tf.newaxis], same_document, 0
    )[:, 0]
    weights = counts / tf.maximum(blocks_of_document, 1)
    return BlockLosses(losses * weights, weights)


def _as_scores(logits):
    logits = tf.convert_to_tensor(logits)
    shapes.assert_rank(logits, 3, "logits")
    return logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)


def _mark(positions, labels, length):
    """Marks annotated tokens, `<bool>[blocks, length]`.

    For `[[1, 3, 0]]`, the labels `[[1, 1, 0]]` and four tokens, returns
    `[[0, 1, 0, 1]]` as booleans.
    """
    positions = tf.cast(positions, tf.int32)[..., tf.newaxis]
    # [blocks, annotations, length]
    is_there = tf.logical_and(
        tf.equal(positions, tf.range(length)),
        tf.cast(labels, tf.int32)[..., tf.newaxis] > 0,
    )
    # [blocks, length]
    return tf.reduce_any(is_there, axis=1)


def _is_in_document(same_document):
    return tf.reduce_any(same_document, axis=1)[:, tf.newaxis, tf.newaxis]


def _exp_sums(logits, counts, same_document):
    """Sums `exp(logits)` over each document's tokens where `counts` is true.

    Returns `highest` and `total`, both `[blocks, classes]`; the log of the sum
    is `highest + log(total)`. They are separate because adding a large
    `highest` would round the second term away. `highest` has no gradient.
    `total` is at least 1, or 0 if nothing counts.
    """
    lowest = tf.constant(logits.dtype.min, logits.dtype)
    # [blocks, classes]
    highest = _over_document(
        tf.reduce_max,
        tf.reduce_max(
            tf.where(counts, tf.stop_gradient(logits), lowest), axis=1
        ),
        same_document,
        lowest,
    )
    highest = tf.where(highest > lowest, highest, tf.zeros_like(highest))
    # [blocks, length, classes]
    below = tf.where(counts, logits - highest[:, tf.newaxis], lowest)
    # [blocks, classes]
    total = _over_document(
        tf.reduce_sum, tf.reduce_sum(tf.exp(below), axis=1), same_document, 0
    )
    return highest, total


def _over_document(reduce, values, same_document, neutral):
    """Reduces `<float>[blocks, classes]` over a document on all replicas."""
    # [all blocks, classes]
    everywhere = collectives.all_gather(values)
    # [blocks, all blocks, classes]
    of_document = tf.where(
        same_document[..., tf.newaxis],
        everywhere[tf.newaxis],
        tf.cast(neutral, values.dtype),
    )
    # [blocks, classes]
    return reduce(of_document, axis=1)


def _log(total):
    """Returns the log of a `total` of `_exp_sums`, or 0 for a total of 0."""
    return tf.math.log(tf.where(total > 0, total, tf.ones_like(total)))
