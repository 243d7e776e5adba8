"""Attention masks made from segment ids or breakpoints.

Masks are int32; 1 means that the query may attend to the key. Tokens with
equal ids belong to one segment, even if other tokens are between them.
Breakpoints are 1 on the last token of each segment or, with
`use_starting_breakpoints`, on its first token. If a tensor has the wrong rank,
functions raise a `ValueError` that names it.

Source: ETC (Ainslie et al., 2020), sections 3.2 to 3.4.
"""

import tensorflow as tf

from etcmodel.feature_utils import structure_checks
from etcmodel.ops import attention
from etcmodel.ops import checks


def overwrite_relative_att_ids_outside_segments(
    rel_att_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    overwrite_value: int | tf.Tensor,
    name: str | None = None,
) -> tf.Tensor:
    """Sets the labels of all pairs of tokens in different segments.

    Labels are `<int>[batch, seq, seq]`, segment ids `<int>[batch, seq]`.
    Example: the label rows `012 401 540`, the segments `[[10, 20, 10]]` and the
    value 9 give `092 909 590`.
    """
    with tf.name_scope(name or "overwrite_relative_att_ids_outside_segments"):
        rel_att_ids = _checked("rel_att_ids", rel_att_ids, 3)
        segment_ids = _checked("segment_ids", segment_ids)
        return tf.where(
            _same_segment(segment_ids),
            rel_att_ids,
            tf.cast(overwrite_value, rel_att_ids.dtype),
        )


def make_att_mask_from_input_mask(
    input_mask: tf.Tensor, name: str | None = None
) -> tf.Tensor:
    """Makes a full attention mask that separates padding from text.

    The input mask, `<int>[batch, seq]` (1 for text), gives
    `<int32>[batch, seq, seq]`. Text attends to text, and padding to padding, so
    every row of the result has a 1.
    Example: `[[1, 1, 0]]` gives the rows `110 110 001`.
    """
    with tf.name_scope(name or "make_att_mask_from_input_mask"):
        input_mask = _checked("input_mask", input_mask)
        (input_mask,) = checks.guard(
            [checks.in_range("input_mask", input_mask, 0, 1)],
            "Example with two tokens and padding: [1, 1, 0].",
            input_mask,
        )
        return make_segmented_att_mask(input_mask)


def make_segmented_att_mask(
    segment_ids: tf.Tensor, name: str | None = None
) -> tf.Tensor:
    """Makes a full attention mask within segments, `<int32>[batch, seq, seq]`.

    Example: the ids `[[0, 3, 0]]` give the rows `101 010 101`.
    """
    with tf.name_scope(name or "make_segmented_att_mask"):
        segment_ids = _checked("segment_ids", segment_ids)
        return tf.cast(_same_segment(segment_ids), tf.int32)


def make_att_mask_from_breakpoints(
    att_breakpoints: tf.Tensor,
    use_starting_breakpoints: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Makes a full attention mask within segments, `<int32>[batch, seq, seq]`.

    Example: `[[0, 1, 0]]` gives the rows `110 110 001`, or `100 011 011` with
    `use_starting_breakpoints`.
    """
    with tf.name_scope(name or "make_att_mask_from_breakpoints"):
        return make_segmented_att_mask(
            _segments_from_breakpoints(
                att_breakpoints, use_starting_breakpoints
            )
        )


def make_local_segmented_att_mask(
    segment_ids: tf.Tensor, local_radius: int, name: str | None = None
) -> tf.Tensor:
    """Makes a local attention mask within segments.

    Column `k` is the key at distance `k - local_radius`. `local_radius` is at
    least 1. Keys before the first and after the last token are masked.

    Example: `[[7, 7, 7, 9, 9]]` with a radius of 2 gives the rows
    `00111 01110 11100 00110 01100`.

    Returns:
        `<int32>[batch, seq, 2 * local_radius + 1]`.
    """
    with tf.name_scope(name or "make_local_segmented_att_mask"):
        segment_ids = _checked("segment_ids", segment_ids)
        if local_radius < 1:
            raise ValueError(
                f"`local_radius` must be 1 or more, got {local_radius}."
            )
        mask = attention.SegmentMask(segment_ids)
        # [batch, seq, 2 * local_radius + 1]
        return tf.cast(mask.to_band(local_radius), tf.int32)


def make_local_att_mask_from_breakpoints(
    att_breakpoints: tf.Tensor,
    local_radius: int,
    use_starting_breakpoints: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Makes a local attention mask within segments that breakpoints separate.

    Columns are those of `make_local_segmented_att_mask`. Example:
    `[[0, 1, 0, 0]]` with a radius of 1 gives the rows `011 110 011 110`.
    """
    with tf.name_scope(name or "make_local_att_mask_from_breakpoints"):
        return make_local_segmented_att_mask(
            _segments_from_breakpoints(
                att_breakpoints, use_starting_breakpoints
            ),
            local_radius,
        )


def _segments_from_breakpoints(att_breakpoints, use_starting_breakpoints):
    """Numbers the segments: `[[0, 1, 0]]` -> `[[0, 0, 1]]`."""
    # Booleans cannot be summed, and small types would overflow.
    att_breakpoints = _checked("att_breakpoints", att_breakpoints)
    att_breakpoints = tf.cast(att_breakpoints, tf.int32)
    (att_breakpoints,) = checks.guard(
        [structure_checks.breakpoints("att_breakpoints", att_breakpoints)],
        structure_checks.BREAKPOINTS_EXAMPLE,
        att_breakpoints,
    )
    # [batch, seq]; a breakpoint at the end of a segment counts only for the
    # tokens after it.
    return tf.cumsum(
        att_breakpoints, axis=1, exclusive=not use_starting_breakpoints
    )


def _same_segment(segment_ids):
    return segment_ids[:, :, tf.newaxis] == segment_ids[:, tf.newaxis, :]


def _checked(name, tensor, rank=2):
    tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank != rank:
        raise ValueError(
            f"`{name}` must have {rank} dimensions (the first is the batch), "
            f"got shape {tensor.shape}."
        )
    return tensor
