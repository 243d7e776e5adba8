"""Attention of the long tokens as in the ETC paper's Appendix A.

This is the baseline for the package's attention. It uses plain TensorFlow
operations in the dtype of the inputs, and keeps all intermediate results.

*   Long tokens are split into blocks of `radius + 1`. A block of queries
    attends to three blocks of keys, and to the global keys, which are copied
    into every block. Masks and labels have the same layout.
*   The scores with all label vectors are computed once. The score of a pair's
    label is gathered from them.
*   Masking subtracts 10,000 from the score of a pair.
"""

import contextlib
import math
from unittest import mock

import tensorflow as tf

from etcmodel.ops.attention import dispatch


def attend(queries, local, others, radius, table, dropout) -> tf.Tensor:
    """Computes `dispatch.long_attention`, for static shapes only.

    Masks and labels must be tensors.
    """
    batch, length, heads, size = queries.shape
    block = radius + 1

    def with_side(slots, side):
        """Appends global slots: `[batch * blocks, 3 * block + global, ...]`."""
        blocks = slots.shape[0] // batch
        return tf.concat([slots, tf.repeat(side, blocks, axis=0)], axis=1)

    def pairs(band, side):
        """Returns `[batch * blocks, block, 3 * block + global]`."""
        side = _join(_cut(side, block))
        return tf.concat([_band_to_slots(band), side], axis=-1)

    # [batch * blocks, block, heads, size]
    queries = _join(_cut(queries, block))
    keys = with_side(_three_blocks(local.keys, block), others.keys)
    values = with_side(_three_blocks(local.values, block), others.values)
    mask = pairs(local.mask, others.mask)
    vectors, biases = (
        tf.cast(x, queries.dtype) for x in (table.vectors, table.biases)
    )
    # [batch * blocks, block, labels, heads]
    label_scores = tf.einsum("bfhd,rhd->bfrh", queries, vectors) + biases
    # [batch * blocks, block, to, heads]
    pair_scores = tf.gather(
        label_scores, pairs(local.labels, others.labels), axis=2, batch_dims=2
    )
    # [batch * blocks, heads, block, to]
    scores = tf.einsum("bfhd,bthd->bhft", queries, keys)
    scores += tf.transpose(pair_scores, [0, 3, 1, 2])
    scores /= math.sqrt(size)
    scores -= 1e4 * tf.cast(1 - mask, scores.dtype)[:, tf.newaxis]
    probs = tf.nn.softmax(scores)
    if dropout is not None:
        probs *= dropout.factors(tf.shape(probs), 0, probs.dtype)
    outputs = tf.einsum("bhft,bthd->bfhd", probs, values)
    return tf.reshape(outputs, [batch, -1, heads, size])[:, :length]


def replaces_sparse() -> contextlib.AbstractContextManager:
    """Replaces the implementation "sparse" by `attend` in a with block."""
    return mock.patch.object(
        dispatch, "_long_attention", lambda implementation, *call: attend(*call)
    )


def _cut(tensor, block):
    """Splits padded tokens into blocks: `[batch, blocks, block, ...]`."""
    batch, length, *inner = tensor.shape
    missing = -length % block
    tensor = tf.pad(tensor, [[0, 0], [0, missing], *[[0, 0] for _ in inner]])
    return tf.reshape(
        tensor, [batch, (length + missing) // block, block, *inner]
    )


def _join(blocks):
    """Reshapes `[batch, blocks, ...]` to `[batch * blocks, ...]`."""
    return tf.reshape(blocks, [-1, *blocks.shape[2:]])


def _three_blocks(tensor, block):
    """Joins each block with its neighbours: `[batch * blocks, 3 * block, ...]`.

    Neighbours that do not exist are 0.
    """
    blocks = _cut(tensor, block)
    rank = blocks.shape.rank
    padded = tf.pad(blocks, [[int(axis == 1)] * 2 for axis in range(rank)])
    return _join(
        tf.concat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], axis=2)
    )


def _band_to_slots(band):
    """Converts a band to the slots of three blocks: `[batch * blocks, b, 3 b]`.

    Slots before the first and after the last token are 0.
    """
    length, width = band.shape[1:]
    block = width // 2 + 1
    # [batch, blocks, block, width]
    rows = _cut(band, block)
    outer = rows.shape[:2]
    # Row i must begin in column i + 1. Rows are padded to one more column than
    # needed, so that reshaping shifts each row by one more.
    rows = tf.pad(rows, [[0, 0]] * 3 + [[0, 3 * block + 1 - width]])
    flat = tf.reshape(rows, [*outer, block * (3 * block + 1)])
    flat = tf.pad(flat, [[0, 0], [0, 0], [1, 0]])[..., : 3 * block**2]
    # [batch, blocks, block, 3 * block]
    slots = tf.reshape(flat, [*outer, block, 3 * block])
    # [blocks, 1, 3 * block]
    position = block * (
        tf.range(outer[1])[:, tf.newaxis, tf.newaxis] - 1
    ) + tf.range(3 * block)
    exists = (position >= 0) & (position < length)
    return _join(slots * tf.cast(exists, slots.dtype))
