"""Losses that compare all segments of a document, on any replica.

ReadTwice paper, Appendix C. A batch is a list of segments ("blocks") of one or
more documents, over all replicas of a `tf.distribute.Strategy`; replicas gather
what they need from each other, so one device, two, and two hosts have the same
losses and gradients. All replicas need the same shapes. In all functions:

    block_ids             <int>[blocks] document of each, 0 for padding
    logits                <float>[blocks, length, classes]
    cross_blocks_eq_mask  <bool>[blocks, all blocks], see `get_document_mask`

Results are float64 for float64 logits and float32 for others. An argument of
another rank raises a ValueError.
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.models.read_twice import memory_extraction
from etcmodel.ops import collectives
from etcmodel.ops import shapes

# The log probability of tokens and blocks that belong to no document.
_NEVER = -1e9


class BlockLosses(NamedTuple):
    """The loss of each block of this replica: its part of its document's loss.

    Summed over all replicas, `losses / weights` is the mean of the documents.
    `losses` are in nats, and `weights` are the block's share of its document,
    0 for a block that does not count; both are `<float32>[blocks]`.
    """

    losses: tf.Tensor
    weights: tf.Tensor


def get_document_mask(block_ids) -> tf.Tensor:
    """Marks which blocks of all replicas belong to the same document.

    `[1, 0, 2]` on the first of two replicas and `[2, 1, 0]` on the second give
    `[[1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]` (True and
    False, `<bool>[blocks, all blocks]`) on the first.
    """
    shapes.assert_rank(block_ids, 1, "block_ids")
    block_ids = tf.convert_to_tensor(block_ids)
    # [all blocks]
    all_block_ids = collectives.all_gather(block_ids)
    return memory_extraction.get_cross_block_att(
        block_ids, None, all_block_ids, None, "doc"
    )


def get_multi_doc_mask(block_ids) -> tf.Tensor:
    """Marks blocks whose document has other blocks, too.

    `[1, 0, 1, 2]` gives `[1, 0, 1, 0]`, `<float32>[blocks]`, on all replicas.
    """
    # [blocks, all blocks]
    same_document = tf.cast(get_document_mask(block_ids), tf.float32)
    return tf.cast(tf.reduce_sum(same_document, axis=1) > 1, tf.float32)


def cross_batch_log_softmax(logits, cross_blocks_eq_mask) -> tf.Tensor:
    """Computes the log softmax over all tokens of all blocks of a document.

    Each class has its own softmax. The document's highest logit is subtracted
    first, so that logits of any size, such as 1e8, are as exact as their dtype.
    Blocks of no document get -1e9. Example: one class and one document, whose
    two blocks have two tokens each and the logs of these numbers as logits:

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
    """Computes the negative log probability of any right answer of a document.

    One right answer is enough (the OR model with global normalization of the
    ReadTwice paper, Appendix C.1, equation 7, after Clark and Gardner, 2018).
    With the tokens `(i, j)` of all blocks of a document, and `B` the first
    tokens of answers,

        loss_begin = -log(sum_B exp(z_ij) / sum_ij exp(z_ij))

    and the same for ends; begins and ends are added. Each document counts once,
    however many blocks and replicas it has; documents without an answer do not
    count. Each sum is computed with its own highest logit, so no probability
    needs the `eps` of the original code.

    Example: a document of two blocks with two tokens each; the begin and end
    logits are the logs of 1, 2 and of 3, 4, and the only answer is the last
    token. Each block has the loss `(-log 0.4 - log 0.4) / 2` and the weight
    1/2.

    Args:
        logits: `<float>[blocks, length, 2]`, begin and end.
        annotation_begins: `<int>[blocks, annotations]` first token of each
            answer.
        annotation_ends: `<int>[blocks, annotations]` last token of each.
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
    # [blocks, length, 4]: all tokens of the document, then the right ones
    counts = tf.logical_and(
        tf.concat([tf.ones_like(is_right), is_right], axis=-1),
        _is_in_document(same_document),
    )
    highest, total = _exp_sums(
        tf.concat([logits, logits], axis=-1), counts, same_document
    )
    # [blocks]
    has_answer = tf.reduce_all(total[:, 2:] > 0, axis=1)
    # Subtracts the highest logits first: the difference is small.
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
    """Computes the loss of the right option in each supporting block.

    ReadTwice paper, Appendix C.2: whether the answer of a question is "yes",
    "no" or a span, from a block's first token. "We normalize these scores
    globally across all passages. The loss function [...] is a negative
    log-likelihood of the correct option, applied only to the two supporting
    paragraphs (not the distractors)." Here the probabilities of all options in
    all blocks of a question sum to 1; every supporting block has the loss
    `-log p(block, right option)`, and a question the mean of these. (With two
    supporting blocks, it is at least log 2.) Other questions do not count.

    Example: two blocks of one question and two options, whose logits are the
    logs of `[[1, 2], [3, 4]]`. With the labels `[1, 1]`, and both supporting,
    the losses are `[-log(0.2) / 2, -log(0.4) / 2]`; with the first alone,
    `[-log(0.2), 0]`.

    Args:
        logits: `<float>[blocks, options]`.
        labels: `<int>[blocks]` the right option of the question.
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

    `[[1, 3, 0]]` with the labels `[[1, 1, 0]]` gives `[[0, 1, 0, 1]]` (True and
    False) for four tokens.
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
    """Sums `exp(logits)` over a document where `counts`, `[blocks, classes]`.

    The log of the sum is `highest + log(total)`. They are returned separately,
    since a large `highest` can absorb the second term. `highest` has no
    gradient, and `total` is at least 1, or 0 if nothing counts.
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
    """Reduces `<float>[blocks, classes]` over a document, on all replicas."""
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
    """Returns the log of a sum of `_exp_sums`, or 0 for a sum of 0."""
    return tf.math.log(tf.where(total > 0, total, tf.ones_like(total)))
