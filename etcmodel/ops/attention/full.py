"""Plain attention: scores every query against every key.

Computes the formula directly. Used for short inputs and unstructured attention,
and as the reference for the other implementations.
"""

from collections.abc import Sequence

import tensorflow as tf

from etcmodel.ops import shapes
from etcmodel.ops.attention import masks as masks_lib
from etcmodel.ops.attention import relative_ids as labels_lib
from etcmodel.ops.attention import softmax


def dense_attention(
    queries: tf.Tensor,
    pieces: Sequence[softmax.Keys],
    table: softmax.LabelTable | None = None,
    dropout: softmax.Dropout | None = None,
) -> tf.Tensor:
    """Computes attention from all pairs; masks and labels are tensors."""
    output = 0
    all_probs = probabilities(queries, pieces, table)
    for i, (probs, piece) in enumerate(zip(all_probs, pieces, strict=True)):
        if dropout is not None:
            probs *= dropout.factors(tf.shape(probs), i, probs.dtype)
        # [batch, heads, from, value_size]
        output += tf.matmul(
            tf.cast(probs, piece.values.dtype),
            softmax.heads_outer(piece.values),
        )
    return softmax.heads_outer(output)


def probabilities(
    queries: tf.Tensor,
    pieces: Sequence[softmax.Keys],
    table: softmax.LabelTable | None = None,
) -> list[tf.Tensor]:
    """Computes the probabilities of all pairs, one tensor per group of keys.

    Each query may have its own keys, `<float>[batch, from, to, heads,
    size_per_head]`.
    """
    # [batch, heads, from, size_per_head]
    queries = softmax.scaled(softmax.heads_outer(queries))
    scores, masks = [], []
    for piece in pieces:
        if piece.keys.shape.rank == 4:
            products = tf.matmul(
                queries, softmax.heads_outer(piece.keys), transpose_b=True
            )
        else:
            products = tf.einsum("bhfd,bfthd->bhft", queries, piece.keys)
        scores.append(softmax.to_score_dtype(products))
        if piece.labels is not None:
            scores[-1] += _label_scores(queries, piece.labels, table)
        mask = piece.mask
        masks.append(None if mask is None else tf.cast(mask, tf.bool)[:, None])
    return softmax.joint_softmax(scores, masks)


def long_attention(queries, local, others, radius, table, dropout) -> tf.Tensor:
    """Computes the attention of `blocks.LongQueries` from all pairs."""
    batch, length = shapes.get_shape_list(queries)[:2]
    mask = masks_lib.band_mask_tensor(local.mask, radius)
    if mask is None:
        # [batch, long, 2*radius + 1]
        mask = tf.ones([batch, length, 2 * radius + 1], tf.int32)
    labels = labels_lib.band_label_tensor(local.labels, batch, length)
    local = local._replace(
        # [batch, long, long] each
        mask=band_to_square(tf.cast(tf.cast(mask, tf.bool), tf.int32), radius),
        labels=None if labels is None else band_to_square(labels, radius),
    )
    if others is None:
        return dense_attention(queries, [local], table, dropout)
    global_len = shapes.get_shape_list(others.keys)[1]
    others = others._replace(
        mask=masks_lib.pair_mask_tensor(others.mask),
        labels=labels_lib.pair_label_tensor(others.labels, global_len),
    )
    return dense_attention(queries, [local, others], table, dropout)


def global_attention(queries, own, long, table, dropout) -> tf.Tensor:
    """Computes the attention of `blocks.GlobalQueries` from all pairs."""
    global_len = shapes.get_shape_list(queries)[1]
    long = long._replace(
        mask=masks_lib.pair_mask_tensor(long.mask, from_global=True),
        labels=labels_lib.pair_label_tensor(
            long.labels, global_len, from_global=True
        ),
    )
    return dense_attention(queries, [own, long], table, dropout)


def band_to_square(band: tf.Tensor, local_radius: int) -> tf.Tensor:
    """Spreads a band of `2r + 1` columns into a square, 0 outside the band.

    With a radius of 1, `[[a, b, c], [d, e, f], [g, h, i]]` becomes
    `[[b, c, 0], [d, e, f], [0, g, h]]`: column `k` of row `i` belongs to
    position `i + k - local_radius`.
    """
    batch, length, width = shapes.get_shape_list(band)
    # [batch, length * (width + length)]
    flat = tf.reshape(
        tf.pad(band, [[0, 0], [0, 0], [0, length]]),
        [batch, length * (width + length)],
    )
    # Each row loses one slot, so the n-th row moves by n.
    # [batch, length, width + length - 1]
    shifted = tf.reshape(
        flat[:, : length * (width + length - 1)],
        [batch, length, width + length - 1],
    )
    return shifted[:, :, local_radius : local_radius + length]


def _label_scores(queries, ids, table):
    """Computes the scores of labels, `<float>[batch, heads, from, to]`."""
    vocab_size, _, size = table.vectors.shape
    # [batch, from, relative_vocab_size, heads]
    scores = tf.einsum("bhfd,rhd->bfrh", queries, table.vectors)
    scores = softmax.to_score_dtype(scores) + softmax.to_score_dtype(
        table.biases * size**-0.5
    )
    ids = tf.cast(ids, tf.int32)
    if table.use_one_hot_lookup:
        # [batch, from, to, relative_vocab_size]
        one_hot = tf.one_hot(ids, vocab_size, dtype=scores.dtype)
        return tf.einsum("bftr,bfrh->bhft", one_hot, scores)
    is_label = (ids >= 0) & (ids < vocab_size)
    # [batch, from, to, heads]
    found = tf.gather(scores, tf.where(is_label, ids, 0), axis=2, batch_dims=2)
    found = tf.where(is_label[..., tf.newaxis], found, tf.zeros_like(found))
    return tf.transpose(found, [0, 3, 1, 2])
