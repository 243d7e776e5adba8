"""What is known of a section's units, for the tokens of a layout; graph code.

The layout engine says of every token which section, group, segment and token
of the content it comes from (`Layout.long_sources`, `Layout.global_sources`).
Here that is used to look things up, such as where in a text a token stood.
"""

import tensorflow as tf


def _starts(
    content: tf.RaggedTensor, sources: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """First segment of each token's record, and the token's own segment.

    Both as indices into the segments of all records; where a token is not of
    the section, whatever is there.
    """
    group_splits = content.row_splits
    segment_splits = content.values.row_splits
    # [batch, 1]
    first_group = group_splits[:-1, tf.newaxis]
    first_segment = tf.gather(segment_splits, first_group)
    # [batch, length]
    group = first_group + tf.maximum(tf.cast(sources[..., 1], tf.int64), 0)
    group = tf.minimum(group, tf.size(segment_splits, tf.int64) - 1)
    segment = tf.gather(segment_splits, group) + tf.cast(
        sources[..., 2], tf.int64
    )
    return first_segment, segment


def segment_indices(
    sources: tf.Tensor, section: int, content: tf.RaggedTensor
) -> tf.Tensor:
    """Which of its record's segments each token belongs to.

    Example: of a record with groups of 2 and 1 segments, the token with the
    sources (section, 1, 0, -1) belongs to segment 2.

    Args:
        sources: <int32>[batch, length, 4], from a `Layout`.
        section: index of the section.
        content: the section's content, ragged [batch, (groups), (segments)]
            and possibly more.

    Returns:
        The index, counted through all groups of the record; -1 for tokens of
        other sections, of groups, and padding. <int32>[batch, length].
    """
    content = content.with_row_splits_dtype(tf.int64)
    first, segment = _starts(content, sources)
    is_own = tf.equal(sources[..., 0], section) & (sources[..., 2] >= 0)
    # [batch, length]
    return tf.where(is_own, tf.cast(segment - first, tf.int32), -1)


def token_values(
    sources: tf.Tensor,
    section: int,
    values: tf.RaggedTensor,
    default: int = -1,
) -> tf.Tensor:
    """A value of each token of a section, such as where it stood in the text.

    Example: with values `[[[[0, 3], [0]]]]`, the token with the sources
    (section, 0, 0, 1) has the value 3.

    Args:
        sources: <int32>[batch, length, 4], from a `Layout`.
        section: index of the section.
        values: one for each token of the section's content,
            <dtype>[batch, (groups), (segments), (tokens)].
        default: the value for all other tokens and for padding.

    Returns:
        <dtype>[batch, length].
    """
    values = values.with_row_splits_dtype(tf.int64)
    _, segment = _starts(values, sources)
    token_splits = values.values.values.row_splits
    is_own = tf.equal(sources[..., 0], section) & (sources[..., 3] >= 0)
    token = tf.gather(token_splits, tf.where(is_own, segment, 0)) + tf.cast(
        sources[..., 3], tf.int64
    )
    # One more, for when there are no tokens at all.
    flat = tf.pad(values.flat_values, [[0, 1]])
    # [batch, length]
    found = tf.gather(flat, tf.where(is_own, token, 0))
    return tf.where(is_own, found, tf.cast(default, found.dtype))
