"""Flat units of one section of a layout; graph code.

A section's content [batch, (groups), (segments), (tokens)] is held flat, with
the splits of every level. Everything here works on whole batches at once with
cumulative sums; nothing loops over records, sentences or tokens.
"""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows


@dataclasses.dataclass(frozen=True)
class Units:
    """The groups, segments and tokens of one section, flat.

    A row is a record, or a window of one. Origins are the indices that units
    have in the flat content, before anything is cut or repeated.

    Attributes:
        group_splits: <int64>[rows + 1], which groups a row has.
        segment_splits: <int64>[groups + 1], which segments a group has.
        token_splits: <int64>[segments + 1], which tokens a segment has.
        group_origin: <int64>[groups].
        segment_origin: <int64>[segments].
        token_origin: <int64>[tokens].
    """

    group_splits: tf.Tensor
    segment_splits: tf.Tensor
    token_splits: tf.Tensor
    group_origin: tf.Tensor
    segment_origin: tf.Tensor
    token_origin: tf.Tensor

    @functools.cached_property
    def group_row(self) -> tf.Tensor:
        """The rows of groups, <int64>[groups]."""
        return ragged_rows.owners(self.group_splits)

    @functools.cached_property
    def segment_group(self) -> tf.Tensor:
        """The groups of segments, <int64>[segments]."""
        return ragged_rows.owners(self.segment_splits)

    @functools.cached_property
    def segment_row(self) -> tf.Tensor:
        """The rows of segments, <int64>[segments]."""
        return tf.gather(self.group_row, self.segment_group)

    @functools.cached_property
    def token_segment(self) -> tf.Tensor:
        """The segments of tokens, <int64>[tokens]."""
        return ragged_rows.owners(self.token_splits)

    @functools.cached_property
    def segment_lengths(self) -> tf.Tensor:
        """How many tokens segments have, <int64>[segments]."""
        return ragged_rows.lengths(self.token_splits)

    @functools.cached_property
    def row_segment_splits(self) -> tf.Tensor:
        """Which segments a row has, <int64>[rows + 1]."""
        return tf.gather(self.segment_splits, self.group_splits)

    @functools.cached_property
    def row_token_splits(self) -> tf.Tensor:
        """Which tokens a row has, <int64>[rows + 1]."""
        return tf.gather(self.token_splits, self.row_segment_splits)

    def row_sizes(self, level: str) -> tf.Tensor:
        """How many units of a level rows have, <int64>[rows]."""
        return ragged_rows.lengths(self.splits(level))

    def splits(self, level: str) -> tf.Tensor:
        """Which units of a level a row has, <int64>[rows + 1]."""
        if level == "group":
            return self.group_splits
        if level == "segment":
            return self.row_segment_splits
        return self.row_token_splits

    def origin(self, level: str) -> tf.Tensor:
        """Origins of the units of a level, <int64>[units]."""
        return getattr(self, f"{level}_origin")

    def row(self, level: str) -> tf.Tensor:
        """Rows of the units of a level, <int64>[units]."""
        if level == "token":
            return tf.gather(self.segment_row, self.token_segment)
        return self.group_row if level == "group" else self.segment_row

    def group_index(self) -> tf.Tensor:
        """Index of each group within its row, <int64>[groups]."""
        return ragged_rows.index_in(self.group_row, self.group_splits)

    def segment_index(self) -> tf.Tensor:
        """Index of each segment within its group, <int64>[segments]."""
        return ragged_rows.index_in(self.segment_group, self.segment_splits)

    def segment_index_in_row(self) -> tf.Tensor:
        """Index of each segment within its row, <int64>[segments]."""
        return ragged_rows.index_in(self.segment_row, self.row_segment_splits)

    def token_index(self) -> tf.Tensor:
        """Index of each token within its segment, <int64>[tokens]."""
        return ragged_rows.index_in(self.token_segment, self.token_splits)


def flatten(content: tf.RaggedTensor) -> Units:
    """Flattens the content of a section.

    Args:
        content: <dtype>[batch, (groups), (segments), (tokens)].

    Returns:
        Its units.
    """
    splits = content.with_row_splits_dtype(tf.int64).nested_row_splits[:3]
    return Units(*splits, *(tf.range(x[-1]) for x in splits))


class Costs(NamedTuple):
    """What one unit of each level takes from the budgets: 0 or 1."""

    token_long: int
    token_global: int
    segment_global: int
    group_global: int


class Kept(NamedTuple):
    """What is left of a section. Of a segment the first tokens are kept.

    Attributes:
        groups: <bool>[groups].
        segments: <bool>[segments], none of a group that is not kept.
        lengths: <int64>[segments], how many tokens of each are kept; 0 of
            those that are not.
    """

    groups: tf.Tensor
    segments: tf.Tensor
    lengths: tf.Tensor


class Counts(NamedTuple):
    """How much of a section there was and how much is left, <int32>[batch]."""

    tokens: tf.Tensor
    kept_tokens: tf.Tensor
    segments: tf.Tensor
    kept_segments: tf.Tensor
    groups: tf.Tensor
    kept_groups: tf.Tensor


def used(units: Units, costs: Costs) -> tuple[tf.Tensor, tf.Tensor]:
    """What a section takes of both inputs, two <int64>[rows]."""
    groups, segments, tokens = map(
        units.row_sizes, ("group", "segment", "token")
    )
    return (
        tokens * costs.token_long,
        tokens * costs.token_global
        + segments * costs.segment_global
        + groups * costs.group_global,
    )


def count(content: Units, units: Units) -> Counts:
    """How much of a section is left in any of a record's rows.

    Args:
        content: its units before anything was cut.
        units: what is left of them.

    Returns:
        The counts of every record.
    """
    values = []
    for level in ("token", "segment", "group"):
        splits, origin = content.splits(level), units.origin(level)
        # [units of the content]
        is_kept = tf.tensor_scatter_nd_update(
            tf.zeros([splits[-1]], tf.int64),
            origin[:, tf.newaxis],
            tf.ones_like(origin),
        )
        values += [
            content.row_sizes(level),
            ragged_rows.sum_rows(is_kept, splits),
        ]
    return Counts(*(tf.cast(value, tf.int32) for value in values))


def select(units: Units, kept: Kept) -> Units:
    """The units that are kept."""
    # Tokens before each segment, and the first of each that has any.
    before = ragged_rows.cumulative(kept.lengths)
    segment = ragged_rows.owners(before)
    # [kept tokens]
    token = tf.gather(units.token_splits, segment) + ragged_rows.index_in(
        segment, before
    )
    groups = tf.where(kept.groups)[:, 0]
    segments = tf.where(kept.segments)[:, 0]
    num_segments = ragged_rows.sum_rows(kept.segments, units.segment_splits)
    return Units(
        ragged_rows.cumulative(
            ragged_rows.sum_rows(kept.groups, units.group_splits)
        ),
        ragged_rows.cumulative(tf.gather(num_segments, groups)),
        ragged_rows.cumulative(tf.gather(kept.lengths, segments)),
        tf.gather(units.group_origin, groups),
        tf.gather(units.segment_origin, segments),
        tf.gather(units.token_origin, token),
    )


def repeat(units: Units, owner: tf.Tensor) -> Units:
    """Units of rows that are there several times.

    Args:
        units: the units.
        owner: which of their rows each new row is, <int64>[new rows].

    Returns:
        The units of the new rows.
    """
    splits = [units.group_splits, units.segment_splits, units.token_splits]
    origins = [units.group_origin, units.segment_origin, units.token_origin]
    # Levels from the top: [new rows, (units)] of each.
    repeated = [
        tf.gather(
            tf.RaggedTensor.from_nested_row_splits(
                origin, splits[: level + 1], validate=False
            ),
            owner,
        )
        for level, origin in enumerate(origins)
    ]
    return Units(
        *repeated[-1].nested_row_splits, *(x.flat_values for x in repeated)
    )


class Windows(NamedTuple):
    """Parts of a section's tokens; a record has one or more.

    Attributes:
        owner: the record of each window, <int64>[windows].
        starts: its first token, counted through the record's,
            <int64>[windows].
        sizes: how many tokens it has, <int64>[windows].
    """

    owner: tf.Tensor
    starts: tf.Tensor
    sizes: tf.Tensor


def make_windows(
    lengths: tf.Tensor, room: tf.Tensor, stride: int | None
) -> Windows:
    """Windows over texts, the last of which may be shorter.

    A text of n tokens has `1 + ceil(max(n - room, 0) / stride)` of them.

    Example: lengths of 9 and 3 with room for 4 and a stride of 3 give the
    owners 0 0 0 1, the starts 0 3 6 0 and the sizes 4 4 3 3.

    Args:
        lengths: tokens of each text, <int64>[batch].
        room: the most tokens of a window, <int64>[batch].
        stride: from the start of a window to that of the next; at most the
            room, which stands for None, or tokens would be in no window.

    Returns:
        The windows.
    """
    step = tf.maximum(room, 1)
    if stride is not None:
        step = tf.minimum(step, stride)
    # [batch]
    beyond = tf.maximum(lengths - tf.maximum(room, 0), 0)
    number = tf.where(room > 0, 1 + (beyond + step - 1) // step, 1)
    # [batch, (windows)]
    index = tf.ragged.range(number)
    owner = ragged_rows.owners_in(index)
    # [windows]
    starts = index.values * tf.gather(step, owner)
    # [windows]
    sizes = tf.minimum(
        tf.gather(tf.maximum(room, 0), owner),
        tf.gather(lengths, owner) - starts,
    )
    return Windows(owner, starts, sizes)


def _runs(*keys: tf.Tensor) -> tf.Tensor:
    """Where runs of equal keys begin, and the end; each <int64>[n]."""
    changes = tf.zeros_like(keys[0][1:], tf.bool)
    for key in keys:
        changes |= tf.not_equal(key[1:], key[:-1])
    # The first one always begins a run; nothing has none.
    is_first = tf.concat([tf.ones_like(keys[0][:1], tf.bool), changes], axis=0)
    return tf.concat(
        [tf.where(is_first)[:, 0], [tf.size(is_first, tf.int64)]], axis=0
    )


def cut_windows(units: Units, windows: Windows) -> Units:
    """The units that windows show at least a token of.

    Example: of a record with the segments `[7, 8, 9]` and `[5]`, the windows
    from 0 to 2 and from 1 to 4 show `[7, 8]`, and `[8, 9]` and `[5]`.

    Args:
        units: of the records.
        windows: parts of their tokens.

    Returns:
        Units of the windows.
    """
    first = tf.gather(units.row_token_splits, windows.owner) + windows.starts
    # [windows, (tokens)]
    index = tf.ragged.range(first, first + windows.sizes)
    row = ragged_rows.owners_in(index)
    # [tokens]
    segment = tf.gather(units.token_segment, index.values)
    token_splits = _runs(row, segment)
    # [segments]
    row, segment = (tf.gather(x, token_splits[:-1]) for x in (row, segment))
    group = tf.gather(units.segment_group, segment)
    segment_splits = _runs(row, group)
    # [groups]
    row, group = (tf.gather(x, segment_splits[:-1]) for x in (row, group))
    number = tf.math.unsorted_segment_sum(
        tf.ones_like(row), row, tf.size(windows.owner)
    )
    return Units(
        ragged_rows.cumulative(number),
        segment_splits,
        token_splits,
        tf.gather(units.group_origin, group),
        tf.gather(units.segment_origin, segment),
        tf.gather(units.token_origin, index.values),
    )
