"""Entry points of attention: check arguments and choose an implementation.

The implementations give the same results. `full` computes all pairs and masks,
`sparse` computes blocks and keeps their scores for the backward pass,
`streaming` computes a chunk of blocks at a time and keeps no scores.
"""

import tensorflow as tf

from etcmodel.ops import shared_graphs
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import full
from etcmodel.ops.attention import masks
from etcmodel.ops.attention import softmax
from etcmodel.ops.attention import streaming
from etcmodel.ops.attention.relative_ids import BandLabels
from etcmodel.ops.attention.relative_ids import DistanceLabels
from etcmodel.ops.attention.relative_ids import PairLabels

IMPLEMENTATIONS = ("auto", "streaming", "sparse", "full")
# Longest static length for which `'auto'` chooses `'full'`.
MAX_AUTO_FULL_LENGTH = 256


def long_attention(
    queries: tf.Tensor,
    local: softmax.Keys,
    others: softmax.Keys | None,
    local_radius: int,
    table: softmax.LabelTable | None = None,
    dropout: softmax.Dropout | None = None,
    implementation: str = "auto",
) -> tf.Tensor:
    """Attends from long queries to nearby long keys and all global keys.

    Args:
        queries: `<float>[batch, long, heads, size_per_head]`.
        local: the long keys. The mask is `<int32 or bool>[batch, long,
            2*local_radius + 1]`, column `k` of query `i` being key
            `i + k - local_radius`, or a `SegmentMask`; the labels are
            `<int32>[batch, long, 2*local_radius + 1]` or a `BandLabels`.
        others: the global keys, or None. The mask is
            `<int32 or bool>[batch, long, global]` or a `LongGlobalMask`; the
            labels are `<int32>[batch, long, global]` or a `PairLabels`.
        local_radius: number of positions that a query sees on each side, at
            least 1.
        table: the vectors and biases of the labels. A label beyond the table
            adds nothing to the score.
        dropout: dropout of the probabilities.
        implementation: one of `IMPLEMENTATIONS`.

    Returns:
        `<float>[batch, long, heads, value_size]`.

    Raises:
        ValueError: the implementation is unknown, a mask or labels have the
            wrong type or shape, or only `local` or only `others` has labels.
    """
    check_implementation(implementation)
    queries, local, others = check_long(queries, local, others, local_radius)
    return _long_attention(
        choose_implementation(implementation, queries.shape[1]),
        queries,
        local,
        others,
        local_radius,
        wide(table),
        dropout,
    )


@shared_graphs.shared
def _long_attention(implementation, *call):
    match implementation:
        case "full":
            return full.long_attention(*call)
        case "sparse":
            return blocks.attend(blocks.LongQueries(*call))
    return streaming.attend(blocks.LongQueries(*call))


def global_attention(
    queries: tf.Tensor,
    own: softmax.Keys,
    long: softmax.Keys,
    table: softmax.LabelTable | None = None,
    dropout: softmax.Dropout | None = None,
    implementation: str = "auto",
) -> tf.Tensor:
    """Attends from global queries to all global and all long keys.

    Queries are `<float>[batch, global, heads, size_per_head]`. Masks, `<int32
    or bool>`, and labels, `<int32>`, are `[batch, global, global]` for the
    global keys and `[batch, global, long]` for the long keys. The long keys
    accept a `LongGlobalMask` or a `PairLabels` instead of a tensor. For the
    other arguments, see `long_attention`.
    """
    check_implementation(implementation)
    queries, own, long = check_global(queries, own, long)
    return _global_attention(
        choose_implementation(implementation, long.keys.shape[1]),
        queries,
        own,
        long,
        wide(table),
        dropout,
    )


@shared_graphs.shared
def _global_attention(implementation, *call):
    match implementation:
        case "full":
            return full.global_attention(*call)
        case "sparse":
            return blocks.attend(blocks.GlobalQueries(*call))
    return streaming.attend(blocks.GlobalQueries(*call))


def dense_attention(
    queries: tf.Tensor,
    keys: softmax.Keys,
    table: softmax.LabelTable | None = None,
    dropout: softmax.Dropout | None = None,
) -> tf.Tensor:
    """Attends from `<float>[batch, from, heads, size_per_head]` to all keys.

    The mask and the labels are `[batch, from, to]`; see `long_attention`.
    """
    queries, keys = check_dense(queries, keys)
    return _dense_attention(queries, [keys], table, dropout)


_dense_attention = shared_graphs.shared(full.dense_attention)


def choose_implementation(implementation: str, length: int | None) -> str:
    """Resolves `'auto'` from the static length of the long sequence.

    Avoids "streaming" for export, since converters to other formats reject its
    loops.
    """
    if implementation != "auto":
        return implementation
    is_short = length is not None and length <= MAX_AUTO_FULL_LENGTH
    for_long = "sparse" if shared_graphs.is_inlined() else "streaming"
    return "full" if is_short else for_long


def check_implementation(implementation: str) -> None:
    """Raises a ValueError unless the implementation exists."""
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"att_implementation is {implementation!r}, but must be one of "
            f"{IMPLEMENTATIONS}."
        )


def check_long(queries, local, others, local_radius):
    """Checks the arguments of `long_attention`; casts them to one dtype."""
    queries = tf.convert_to_tensor(queries)
    width = 2 * local_radius + 1
    local = _checked(local, queries, width, masks.SegmentMask, BandLabels)
    if isinstance(local.labels, DistanceLabels):
        if len(local.labels.pattern) != width:
            raise ValueError(
                f"{local.name}relative_att_ids needs a label for each of "
                f"2*local_radius + 1 = {width} distances, but has "
                f"{len(local.labels.pattern)}."
            )
    if others is not None:
        others = _checked(
            others,
            queries,
            others.keys.shape[1],
            masks.LongGlobalMask,
            PairLabels,
        )
        _check_together(local, others)
    return queries, local, others


def check_global(queries, own, long):
    """Checks the arguments of `global_attention`; casts them to one dtype."""
    queries = tf.convert_to_tensor(queries)
    own = _checked(own, queries, own.keys.shape[1])
    long = _checked(
        long,
        queries,
        long.keys.shape[1],
        masks.LongGlobalMask,
        PairLabels,
        are_long=True,
    )
    _check_together(own, long)
    return queries, own, long


def check_dense(queries, keys):
    """Checks the arguments of `dense_attention`; casts them to one dtype."""
    queries = tf.convert_to_tensor(queries)
    return queries, _checked(keys, queries, keys.keys.shape[1])


def _checked(
    keys, queries, width, mask_type=None, labels_type=None, are_long=False
):
    """Checks the shapes of keys, and casts them to the queries' dtype."""
    for name, value, allowed in (
        (f"{keys.name}att_mask", keys.mask, mask_type),
        (f"{keys.name}relative_att_ids", keys.labels, labels_type),
    ):
        if value is None:
            continue
        if isinstance(value, masks.AttentionSpec):
            _check_spec(name, value, allowed, queries, keys, are_long)
        else:
            is_band = mask_type is masks.SegmentMask
            _check_shape(
                name, value, [*queries.shape[:2], width], must_be_known=is_band
            )
    return keys._replace(
        # Keras 2 casts only the first argument of a layer.
        keys=tf.cast(keys.keys, queries.dtype),
        values=tf.cast(keys.values, queries.dtype),
    )


def _check_spec(name, spec, allowed, queries, keys, are_long):
    if not isinstance(spec, allowed or ()):
        expected = (
            f"a tensor or a {allowed.__name__}" if allowed else "a tensor"
        )
        raise ValueError(
            f"{name} must be {expected}, but is a {type(spec).__name__}."
        )
    long, others = queries, keys.keys
    if are_long:
        long, others = others, long
    for what, tensors, like in (
        ("long", spec.long_tensors(), long),
        ("global", spec.global_tensors(), others),
    ):
        for tensor in tensors:
            _check_shape(
                f"each tensor for the {what} tokens of {name}",
                tensor,
                like.shape[:2],
            )


def _check_shape(name, tensor, expected, must_be_known=False):
    """Raises a ValueError unless a tensor may have the expected shape."""
    shape = tf.TensorShape(tensor.shape)
    expected = list(expected)
    # A first axis of 1 applies to all examples.
    fits = shape.rank is None or (
        shape.rank == len(expected)
        and all(
            actual is None
            or size is None
            or actual == size
            or (i == 0 and actual == 1)
            for i, (actual, size) in enumerate(
                zip(shape, expected, strict=True)
            )
        )
        and not (must_be_known and shape[-1] is None)
    )
    if not fits:
        hint = " The last axis is 2*local_radius + 1." if must_be_known else ""
        raise ValueError(
            f"{name} must have the shape {_shown(expected)}, but has "
            f"{_shown(shape)}.{hint}"
        )


def _check_together(*pieces):
    """Raises a ValueError if some keys have labels and others have none."""
    given = [
        f"{x.name}relative_att_ids" for x in pieces if x.labels is not None
    ]
    if 0 < len(given) < len(pieces):
        names = " and ".join(f"{x.name}relative_att_ids" for x in pieces)
        raise ValueError(
            f"A softmax needs labels of all its keys or of none. Give both "
            f"{names}, or neither; got only {given[0]}."
        )


def wide(table):
    """Casts biases to the dtype of scores, in which gradients are summed."""
    if table is None:
        return None
    return table._replace(biases=softmax.to_score_dtype(table.biases))


def _shown(shape):
    return "[" + ", ".join("?" if x is None else str(x) for x in shape) + "]"
