"""Computes the attention probabilities of each pair, for inspection.

The probabilities are the weights of the values, before dropout. No
implementation keeps them, so this module computes them again.
`query_positions` selects some queries of a long text; only their rows are
computed.
"""

import tensorflow as tf

from etcmodel.ops import shapes
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import dispatch
from etcmodel.ops.attention import full
from etcmodel.ops.attention import masks
from etcmodel.ops.attention import relative_ids as labels_lib
from etcmodel.ops.attention import softmax

# With selected global queries, masks and labels are computed for this many long
# tokens at a time.
CHUNK_LEN = 512


def dense_scores(
    queries: tf.Tensor,
    keys: softmax.Keys,
    table: softmax.LabelTable | None = None,
) -> tf.Tensor:
    """Computes the probabilities of `dense_attention`, before dropout."""
    queries, keys = dispatch.check_dense(queries, keys)
    return full.probabilities(queries, [keys], table)[0]


def long_scores(
    queries: tf.Tensor,
    local: softmax.Keys,
    others: softmax.Keys | None,
    local_radius: int,
    table: softmax.LabelTable | None = None,
    query_positions=None,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Computes the probabilities of `long_attention`, before dropout.

    With a radius of 1, one head, two tokens and one global token, all with
    equal keys, the long scores are `[[[[0, 1/3, 1/3], [1/3, 1/3, 0]]]]` and the
    global ones `[[[[1/3], [1/3]]]]`; with the query position 1 they are
    `[[[[1/3, 1/3, 0]]]]` and `[[[[1/3]]]]`.

    `query_positions`, `<int>[n]` or `<int>[batch, n]`, selects queries; None
    selects all. The keys around each are copied, `[batch, n, 2*local_radius +
    1, heads, size_per_head]`, so select few queries of a long text.

    Returns:
        `<float32 or float64>[batch, heads, n, 2*local_radius + 1]`, column `k`
        of query `i` being key `i + k - local_radius`, 0 where there is none;
        and `<float32 or float64>[batch, heads, n, global]`, None without
        `others`. Each query's probabilities sum to 1 over both tensors, or are
        0 if it has no key.

    Raises:
        ValueError: see `long_attention`; or a query position is out of range.
    """
    queries, local, others = dispatch.check_long(
        queries, local, others, local_radius
    )
    batch, length = shapes.get_shape_list(queries)[:2]
    positions = _as_positions(query_positions, length)
    # [1 or batch, n]
    chosen = tf.range(length)[tf.newaxis] if positions is None else positions
    # [1 or batch, n, 2*local_radius + 1]
    near = chosen[..., tf.newaxis] + tf.range(-local_radius, local_radius + 1)
    exists = (near >= 0) & (near < length)
    near = tf.clip_by_value(near, 0, tf.maximum(length - 1, 0))
    mask, labels = local.mask, local.labels
    if isinstance(mask, masks.SegmentMask):
        # [batch, n, 2*local_radius + 1]
        mask = (
            _rows(mask.segment_ids, near)
            == _rows(mask.segment_ids, chosen)[..., tf.newaxis]
        )
    elif mask is not None:
        mask = tf.cast(_rows(mask, positions), tf.bool)
    if isinstance(labels, labels_lib.DistanceLabels):
        labels = labels.to_band(batch, shapes.get_shape_list(chosen)[1])
    elif labels is not None:
        labels = _for_all(_rows(labels, positions), batch)
    local = local._replace(
        # [batch, n, 2*local_radius + 1, heads, size_per_head]
        keys=_rows(local.keys, near),
        mask=exists if mask is None else mask & exists,
        labels=labels,
    )
    pieces = [local]
    if others is not None:
        pieces.append(_pairs_of_long(others, positions, batch))
    band, *rest = full.probabilities(
        _rows(queries, positions), pieces, dispatch.wide(table)
    )
    return band, rest[0] if rest else None


def global_scores(
    queries: tf.Tensor,
    own: softmax.Keys,
    long: softmax.Keys,
    table: softmax.LabelTable | None = None,
    query_positions=None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the probabilities of `global_attention`, before dropout.

    `query_positions` are as in `long_scores`.

    Returns:
        `<float32 or float64>[batch, heads, n, global]` and
        `<float32 or float64>[batch, heads, n, long]`. Each query's
        probabilities sum to 1 over both tensors, or are 0 if it has no key.
    """
    queries, own, long = dispatch.check_global(queries, own, long)
    batch, global_len = shapes.get_shape_list(queries)[:2]
    length = shapes.get_shape_list(long.keys)[1]
    positions = _as_positions(query_positions, global_len)
    own = own._replace(
        mask=_rows(own.mask, positions),
        labels=_for_all(_rows(own.labels, positions), batch),
    )
    mask, labels = long.mask, long.labels
    if isinstance(mask, masks.AttentionSpec):
        mask = _of_global(
            mask.part, mask.long_tensors(), tf.bool, positions, length
        )
    else:
        mask = _rows(mask, positions)
    if isinstance(labels, labels_lib.PairLabels):
        labels = _of_global(
            lambda tensors: long.labels.part_labels(tensors, global_len),
            labels.long_tensors(),
            tf.int32,
            positions,
            length,
        )
    else:
        labels = _rows(labels, positions)
    long = long._replace(mask=mask, labels=_for_all(labels, batch))
    own_scores, long_scores = full.probabilities(
        _rows(queries, positions), [own, long], dispatch.wide(table)
    )
    return own_scores, long_scores


def _pairs_of_long(keys, positions, batch):
    """Returns global keys, with the selected long queries' masks and labels."""
    mask, labels = keys.mask, keys.labels
    if isinstance(mask, masks.AttentionSpec):
        mask = mask.part([_rows(x, positions) for x in mask.long_tensors()])
    else:
        mask = _rows(mask, positions)
    if isinstance(labels, labels_lib.PairLabels):
        labels = labels.part_labels(
            [_rows(x, positions) for x in labels.long_tensors()],
            shapes.get_shape_list(keys.keys)[1],
        )
    else:
        labels = _rows(labels, positions)
    return keys._replace(mask=mask, labels=_for_all(labels, batch))


def _of_global(part, long_tensors, dtype, positions, length):
    """Returns selected global tokens' mask or labels `[batch, n, long]`."""
    if positions is None:
        return tf.linalg.matrix_transpose(part(long_tensors))
    long_tensors = [blocks.never_empty(x, length) for x in long_tensors]

    def rows_of_chunk(start):
        chunk = blocks.Chunk(start, CHUNK_LEN, 0)
        cut = [
            blocks.cut(x, chunk, 0, tf.maximum(length, 1)) for x in long_tensors
        ]
        # [batch, n, CHUNK_LEN]
        return _rows(tf.linalg.matrix_transpose(part(cut)), positions)

    # [chunks, batch, n, CHUNK_LEN]
    rows = tf.map_fn(
        rows_of_chunk,
        tf.range(0, tf.maximum(length, 1), CHUNK_LEN),
        fn_output_signature=dtype,
    )
    chunks, batch, num_chosen, _ = shapes.get_shape_list(rows)
    # [batch, n, chunks * CHUNK_LEN]
    rows = tf.reshape(
        tf.transpose(rows, [1, 2, 0, 3]),
        [batch, num_chosen, chunks * CHUNK_LEN],
    )
    return rows[:, :, :length]


def _as_positions(positions, number):
    """Checks query positions; returns `<int32>[1 or batch, n]` or None."""
    if positions is None:
        return None
    positions = tf.cast(positions, tf.int32)
    known = tf.get_static_value(positions)
    if known is not None and isinstance(number, int):
        wrong = known[(known < 0) | (known >= number)]
        if wrong.size:
            raise ValueError(
                f"query_positions has {wrong[0]}, but must be at least 0 and "
                f"less than the number of queries, {number}."
            )
    return positions[tf.newaxis] if positions.shape.rank == 1 else positions


def _rows(tensor, positions):
    if tensor is None or positions is None:
        return tensor
    tensor = tf.convert_to_tensor(tensor)
    if positions.shape[0] == 1:
        return tf.gather(tensor, positions[0], axis=1)
    if tensor.shape[0] == 1:
        return tf.gather(tensor[0], positions)
    return tf.gather(tensor, positions, axis=1, batch_dims=1)


def _for_all(ids, batch):
    """Broadcasts labels with a batch of 1 to all examples; None stays None."""
    if ids is None:
        return None
    ids = tf.convert_to_tensor(ids)
    return tf.broadcast_to(ids, [batch, *shapes.get_shape_list(ids)[1:]])
