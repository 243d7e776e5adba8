"""Global-local attention as pure tensor functions.

One rule holds for all of them: a query attends to several *pieces* of keys
(the local band, the side keys) under **one joint softmax**, in which each pair
of query `i` and key `j` has the score (paper section 3.2, with the bias of the
original code)

    score[i, j] = (q_i . k_j + q_i . E[id_ij] + b[id_ij]) / sqrt(size_per_head)

Scores and the softmax are computed in float32 (float64 for float64 inputs)
whatever the inputs' dtype. A masked pair has a probability of exactly 0, and a
query without any unmasked key gets an output of zeros.

The functions know nothing of Keras: weights come in as tensors and dropout as
a function.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from etcmodel import tensor_utils

DropoutFn = Callable[[tf.Tensor], tf.Tensor]


class RelativeLabels:
    """The learned part of relative attention: one vector and bias a label.

    Attributes:
        emb_table: `<float>[relative_vocab_size, heads, size_per_head]`.
        bias_table: `<float>[relative_vocab_size, heads]`.
        use_one_hot_lookup: look labels up by a matrix product with their
            one-hot form rather than by a gather. Same numbers.
    """

    def __init__(
        self,
        emb_table: tf.Tensor,
        bias_table: tf.Tensor,
        use_one_hot_lookup: bool = False,
    ):
        self.emb_table = emb_table
        self.bias_table = bias_table
        self.use_one_hot_lookup = use_one_hot_lookup

    def scores(self, scaled_queries: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Scores that the labels add to each pair of query and key.

        Args:
            scaled_queries: `<float>[batch, heads, from, size_per_head]`
                queries, already divided by `sqrt(size_per_head)`.
            ids: `<int>[batch, from, to]` label of each pair.

        Returns:
            `<float>[batch, heads, from, to]`.
        """
        size = self.emb_table.shape[-1]
        ids = tf.cast(ids, tf.int32)
        # [batch, from, relative_vocab_size, heads]
        label_scores = tf.einsum(
            "bhfd,rhd->bfrh", scaled_queries, self.emb_table
        ) + self.bias_table / math.sqrt(size)
        if self.use_one_hot_lookup:
            # [batch, from, to, relative_vocab_size]
            one_hot = tf.one_hot(
                ids, self.emb_table.shape[0], dtype=label_scores.dtype
            )
            return tf.einsum("bftr,bfrh->bhft", one_hot, label_scores)
        # [batch, from, to, heads]
        pair_scores = tf.gather(label_scores, ids, axis=2, batch_dims=2)
        return tf.transpose(pair_scores, [0, 3, 1, 2])


def dense_attention(
    queries: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    att_mask: tf.Tensor | None = None,
    relative_att_ids: tf.Tensor | None = None,
    labels: RelativeLabels | None = None,
    dropout_fn: DropoutFn | None = None,
) -> tf.Tensor:
    """Every query against every key: the plain form, and the reference.

    Args:
        queries: `<float>[batch, from, heads, size_per_head]`.
        keys: `<float>[batch, to, heads, size_per_head]`.
        values: `<float>[batch, to, heads, value_size]`.
        att_mask: `<int32 or bool>[batch, from, to]`, nonzero where the query
            may attend. None lets it attend everywhere.
        relative_att_ids: `<int32>[batch, from, to]` labels of the pairs.
        labels: the tables `relative_att_ids` index into.
        dropout_fn: applied to the probabilities `<float>[batch, heads, from,
            to]`, which are not normalised again afterwards.

    Returns:
        `<float>[batch, from, heads, value_size]`.
    """
    # [batch, heads, from, size_per_head]
    scaled_queries = _scale(_heads_outer(queries))
    scores = _dense_scores(
        scaled_queries, _heads_outer(keys), relative_att_ids, labels
    )
    mask = None if att_mask is None else tf.cast(att_mask, tf.bool)[:, None]
    (probs,) = joint_softmax([scores], [mask])
    # [batch, heads, from, value_size]
    output = _weighted_sum(probs, _heads_outer(values), dropout_fn)
    return tf.transpose(output, [0, 2, 1, 3])


def banded_attention(
    queries: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    local_radius: int,
    att_mask: tf.Tensor | None = None,
    relative_att_ids: tf.Tensor | None = None,
    side_keys: tf.Tensor | None = None,
    side_values: tf.Tensor | None = None,
    side_att_mask: tf.Tensor | None = None,
    side_relative_att_ids: tf.Tensor | None = None,
    labels: RelativeLabels | None = None,
    dropout_fn: DropoutFn | None = None,
) -> tf.Tensor:
    """Queries against the keys near them and all side keys, in blocks.

    The long sequence is cut into blocks of `local_radius + 1` (paper, Appendix
    A): the keys that a block of queries may see lie in it and its two
    neighbours. Side keys and values are used as they are, once, and their
    scores meet the local ones only in the softmax; they are never copied into
    the blocks.

    Args:
        queries: `<float>[batch, long, heads, size_per_head]`.
        keys: `<float>[batch, long, heads, size_per_head]`.
        values: `<float>[batch, long, heads, value_size]`.
        local_radius: how many positions a query sees to each side, at least 1.
        att_mask: `<int32 or bool>[batch, long, 2*local_radius + 1]`; column
            `k` of query `i` is key `i + k - local_radius`.
        relative_att_ids: `<int32>[batch, long, 2*local_radius + 1]`.
        side_keys: `<float>[batch, side, heads, size_per_head]`.
        side_values: `<float>[batch, side, heads, value_size]`.
        side_att_mask: `<int32 or bool>[batch, long, side]`.
        side_relative_att_ids: `<int32>[batch, long, side]`.
        labels: the tables that both kinds of ids index into.
        dropout_fn: applied to the local and to the side probabilities.

    Returns:
        `<float>[batch, long, heads, value_size]`.
    """
    block_len = local_radius + 1
    long_len = tensor_utils.get_shape_list(queries)[1]
    # [batch, heads, long, size_per_head]
    scaled_queries = _scale(_heads_outer(queries))

    # [batch, heads, blocks, block_len, size_per_head]
    blocked_queries = _to_blocks(scaled_queries, block_len)
    # [batch, heads, blocks, 3*block_len, size_per_head]
    near_keys = _three_blocks(_heads_outer(keys), block_len)
    # [batch, heads, blocks, 3*block_len, value_size]
    near_values = _three_blocks(_heads_outer(values), block_len)

    # [batch, heads, blocks, block_len, 3*block_len]
    scores = _to_score_dtype(
        tf.matmul(blocked_queries, near_keys, transpose_b=True)
    )
    if relative_att_ids is not None:
        # [batch, heads, long, 2*local_radius + 1]
        label_scores = labels.scores(scaled_queries, relative_att_ids)
        scores += _to_score_dtype(band_to_blocks(label_scores, local_radius))
    # [batch or 1, 1, blocks, block_len, 3*block_len]
    mask = _blocked_band_mask(att_mask, long_len, local_radius)
    if side_keys is None:
        (probs,) = joint_softmax([scores], [mask])
        output = _from_blocks(
            _weighted_sum(probs, near_values, dropout_fn), long_len
        )
        return tf.transpose(output, [0, 2, 1, 3])

    # [batch, heads, long, side]
    side_scores = _dense_scores(
        scaled_queries, _heads_outer(side_keys), side_relative_att_ids, labels
    )
    # [batch, heads, blocks, block_len, side]
    side_scores = _to_blocks(side_scores, block_len)
    side_mask = None
    if side_att_mask is not None:
        # [batch, 1, blocks, block_len, side]
        side_mask = _to_blocks(
            tf.cast(side_att_mask, tf.bool)[:, None], block_len
        )
    probs, side_probs = joint_softmax([scores, side_scores], [mask, side_mask])
    # [batch, heads, long, value_size]
    output = _from_blocks(
        _weighted_sum(probs, near_values, dropout_fn), long_len
    )
    output += _weighted_sum(
        # [batch, heads, long, side]
        _from_blocks(side_probs, long_len),
        _heads_outer(side_values),
        dropout_fn,
    )
    return tf.transpose(output, [0, 2, 1, 3])


def band_to_square(band: tf.Tensor, local_radius: int) -> tf.Tensor:
    """Spreads a band of `2r + 1` columns into a square, 0 outside the band.

    With a radius of 1, `[[a, b, c], [d, e, f], [g, h, i]]` becomes
    `[[b, c, 0], [d, e, f], [0, g, h]]`.

    Args:
        band: `<any>[batch, length, 2*local_radius + 1]`; column `k` of row `i`
            belongs to position `i + k - local_radius`.
        local_radius: positions to each side.

    Returns:
        `<any>[batch, length, length]`. What lies before the first or after the
        last position is dropped.
    """
    length = tensor_utils.get_shape_list(band)[1]
    # [batch, length, length + 2*local_radius]
    skewed = tensor_utils.skew_elements_right(band, axis=-1)
    return skewed[:, :, local_radius : local_radius + length]


def band_to_blocks(band: tf.Tensor, local_radius: int) -> tf.Tensor:
    """Spreads a band over the slots of a block and its two neighbours.

    With a radius of 1 (blocks of 2), the rows `[[a, b, c], [d, e, f]]` of one
    block become `[[0, a, b, c, 0, 0], [0, 0, d, e, f, 0]]`: of the six slots,
    two stand for the block before, two for the block itself, two for the next.

    Args:
        band: `<any>[..., length, 2*local_radius + 1]`.
        local_radius: positions to each side; blocks have one more.

    Returns:
        `<any>[..., blocks, local_radius + 1, 3*(local_radius + 1)]`, 0 outside
        the band. Slots beyond the ends of the sequence keep what the band says.
    """
    # [..., blocks, block_len, 2*local_radius + 1]
    blocked = _to_blocks(band, local_radius + 1)
    # [..., blocks, block_len, 3*local_radius + 1]
    skewed = tensor_utils.skew_elements_right(blocked, axis=-1)
    rank = skewed.shape.rank
    # [..., blocks, block_len, 3*block_len]
    return tf.pad(skewed, [[0, 0]] * (rank - 1) + [[1, 1]])


def _blocked_band_mask(att_mask, long_len, local_radius):
    """Mask of the band in blocks, `<bool>[batch or 1, 1, blocks, b, 3b]`."""
    if att_mask is None:
        # [1, long, 2*local_radius + 1]
        att_mask = tf.ones([1, long_len, 2 * local_radius + 1], tf.bool)
    # Spread as int8: padding of booleans is not supported everywhere.
    att_mask = tf.cast(tf.cast(att_mask, tf.bool), tf.int8)
    # [batch, 1, blocks, block_len, 3*block_len]
    in_band = tf.cast(band_to_blocks(att_mask[:, None], local_radius), tf.bool)

    # Slots before the first and after the last position are no keys.
    block_len = local_radius + 1
    num_blocks = tensor_utils.get_shape_list(in_band)[2]
    # [blocks, 1, 1]
    first_slot = ((tf.range(num_blocks) - 1) * block_len)[:, None, None]
    # [blocks, 1, 3*block_len]
    position = first_slot + tf.range(3 * block_len)
    return in_band & (position >= 0) & (position < long_len)


def joint_softmax(scores, masks):
    """One softmax over the last axes of all the tensors in `scores`.

    Args:
        scores: list of `<float>[..., to_n]`, all but the last axis equal.
        masks: list of `<bool>[..., to_n]` (broadcastable to the scores) or
            None.

    Returns:
        List of probabilities shaped as `scores`; they sum to 1 over all of
        them together, or are all 0 where everything is masked.
    """
    lowest = scores[0].dtype.min
    masked = [
        s if m is None else tf.where(m, s, lowest)
        for s, m in zip(scores, masks, strict=True)
    ]
    # [..., 1]
    maxima = [tf.reduce_max(s, axis=-1, keepdims=True) for s in masked]
    maximum = tf.stop_gradient(_reduce(tf.maximum, maxima))
    # Where there is no key at all the maximum is -inf, or `lowest` where all
    # of them are masked.
    maximum = tf.maximum(maximum, lowest)
    weights = []
    for s, m in zip(masked, masks, strict=True):
        weight = tf.exp(s - maximum)
        if m is not None:
            weight = tf.where(m, weight, tf.zeros([], weight.dtype))
        weights.append(weight)
    # [..., 1]
    total = _reduce(
        tf.add, [tf.reduce_sum(w, axis=-1, keepdims=True) for w in weights]
    )
    # A total is 0 (nothing to attend to) or at least 1 (the maximum's own).
    total = tf.where(total > 0, total, tf.ones([], total.dtype))
    return [w / total for w in weights]


def _reduce(function, tensors):
    result = tensors[0]
    for tensor in tensors[1:]:
        result = function(result, tensor)
    return result


def _dense_scores(scaled_queries, keys, relative_att_ids, labels):
    """`<float32 or float64>[batch, heads, from, to]` before masking."""
    scores = _to_score_dtype(tf.matmul(scaled_queries, keys, transpose_b=True))
    if relative_att_ids is not None:
        scores += _to_score_dtype(
            labels.scores(scaled_queries, relative_att_ids)
        )
    return scores


def _weighted_sum(probs, values, dropout_fn):
    """Values summed with the probabilities of the axis before their last."""
    if dropout_fn is not None:
        probs = dropout_fn(probs)
    return tf.matmul(tf.cast(probs, values.dtype), values)


def _heads_outer(tensor):
    """`[batch, length, heads, size]` as `[batch, heads, length, size]`."""
    return tf.transpose(tensor, [0, 2, 1, 3])


def _scale(queries):
    """Divides by the root of the size, before products can overflow."""
    return queries * (1.0 / math.sqrt(queries.shape[-1]))


def _to_score_dtype(tensor):
    if tensor.dtype == tf.float64:
        return tensor
    return tf.cast(tensor, tf.float32)


def _to_blocks(tensor, block_len):
    """`[..., length, size]` as `[..., blocks, block_len, size]`, padded."""
    return tensor_utils.split_into_blocks(tensor, block_len, axis=-2)


def _from_blocks(tensor, length):
    """`[..., blocks, block_len, size]` as `[..., length, size]`, cut."""
    # [..., blocks*block_len, size]
    flat = tensor_utils.flatten_dims(tensor, first_dim=-3, last_dim=-2)
    return flat[..., :length, :]


def _three_blocks(tensor, block_len):
    """Blocks with their neighbours: `[batch, heads, blocks, 3*b, size]`."""
    # [batch, heads, 1 + blocks + 1, block_len, size]
    blocks = tf.pad(
        _to_blocks(tensor, block_len), [[0, 0], [0, 0], [1, 1], [0, 0], [0, 0]]
    )
    return tf.concat(
        [blocks[:, :, :-2], blocks[:, :, 1:-1], blocks[:, :, 2:]], axis=-2
    )
