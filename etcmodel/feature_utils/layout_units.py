"""Flat units of one section of a layout, and how they are cut; graph code.

A section's content [batch, (groups), (segments), (tokens)] is held flat, with
the splits of every level. Everything here works on whole batches at once with
cumulative sums; nothing loops over records, sentences or tokens.
"""

from typing import NamedTuple

import tensorflow as tf


def cumulative(values: tf.Tensor) -> tf.Tensor:
    """Sums before every element, and the total at the end.

    Example: `cumulative([2, 0, 3])` gives `[0, 2, 2, 5]`.

    Args:
        values: <int>[n].

    Returns:
        <int64>[n + 1].
    """
    return tf.pad(tf.cumsum(tf.cast(values, tf.int64)), [[1, 0]])


def sum_rows(values: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Sums a flat vector row by row.

    Example: `sum_rows([2, 0, 3], [0, 2, 2, 3])` gives `[2, 0, 3]`.

    Args:
        values: <int>[n].
        splits: <int64>[rows + 1], where each row starts, and the end.

    Returns:
        <int64>[rows].
    """
    sums = tf.gather(cumulative(values), splits)
    return sums[1:] - sums[:-1]


def _owners(splits: tf.Tensor) -> tf.Tensor:
    """The row that every element is in, for the splits of the rows."""
    return tf.repeat(
        tf.range(tf.size(splits, tf.int64) - 1), splits[1:] - splits[:-1]
    )


class Units(NamedTuple):
    """The groups, segments and tokens of one section, flat.

    Attributes:
        tokens: <int32>[tokens].
        token_splits: <int64>[segments + 1], which tokens a segment has.
        segment_splits: <int64>[groups + 1], which segments a group has.
        group_splits: <int64>[batch + 1], which groups a record has.
        segment_group: <int64>[segments], the group of a segment.
        group_row: <int64>[groups], the record of a group.
        segment_row: <int64>[segments], the record of a segment.
        segment_lengths: <int64>[segments], number of tokens.
    """

    tokens: tf.Tensor
    token_splits: tf.Tensor
    segment_splits: tf.Tensor
    group_splits: tf.Tensor
    segment_group: tf.Tensor
    group_row: tf.Tensor
    segment_row: tf.Tensor
    segment_lengths: tf.Tensor

    @property
    def row_segment_splits(self) -> tf.Tensor:
        """Which segments a record has, <int64>[batch + 1]."""
        return tf.gather(self.segment_splits, self.group_splits)

    @property
    def row_token_splits(self) -> tf.Tensor:
        """Which tokens a record has, <int64>[batch + 1]."""
        return tf.gather(self.token_splits, self.row_segment_splits)

    def index_in_row(self, level: str) -> tf.Tensor:
        """Index of each group or segment within its record."""
        if level == "group":
            row, splits = self.group_row, self.group_splits
        else:
            row, splits = self.segment_row, self.row_segment_splits
        return tf.range(tf.size(row, tf.int64)) - tf.gather(splits, row)

    def segment_index(self) -> tf.Tensor:
        """Index of each segment within its group, <int64>[segments]."""
        first = tf.gather(self.segment_splits, self.segment_group)
        return tf.range(tf.size(first, tf.int64)) - first


def flatten(content: tf.RaggedTensor) -> Units:
    """Flattens the content of a section.

    Args:
        content: <int>[batch, (groups), (segments), (tokens)].

    Returns:
        Its units.
    """
    content = content.with_row_splits_dtype(tf.int64)
    group_splits = content.row_splits
    segment_splits = content.values.row_splits
    token_splits = content.values.values.row_splits
    segment_group = _owners(segment_splits)
    group_row = _owners(group_splits)
    return Units(
        tokens=tf.cast(content.flat_values, tf.int32),
        token_splits=token_splits,
        segment_splits=segment_splits,
        group_splits=group_splits,
        segment_group=segment_group,
        group_row=group_row,
        segment_row=tf.gather(group_row, segment_group),
        segment_lengths=token_splits[1:] - token_splits[:-1],
    )


class Costs(NamedTuple):
    """What one unit of each level takes from the budgets: 0 or 1."""

    token_long: int
    token_global: int
    segment_global: int
    group_global: int


class Budget(NamedTuple):
    """What a section may use, record by record.

    Attributes:
        long: positions in the long input, <int64>[batch].
        global_: positions in the global input, <int64>[batch].
        segments: greatest number of segments of a record, or None.
    """

    long: tf.Tensor
    global_: tf.Tensor
    segments: int | None


class Kept(NamedTuple):
    """What is left of a section. Of a segment the first tokens are kept.

    Attributes:
        groups: <bool>[groups].
        segments: <bool>[segments].
        lengths: <int64>[segments], how many tokens of each are kept.
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


def used(units: Units, kept: Kept, costs: Costs) -> tuple[tf.Tensor, tf.Tensor]:
    """What a section takes of both inputs, two <int64>[batch]."""
    tokens = sum_rows(kept.lengths, units.row_segment_splits)
    segments = sum_rows(kept.segments, units.row_segment_splits)
    groups = sum_rows(kept.groups, units.group_splits)
    return (
        tokens * costs.token_long,
        tokens * costs.token_global
        + segments * costs.segment_global
        + groups * costs.group_global,
    )


def count(units: Units, kept: Kept) -> Counts:
    """How much of a section is left, record by record."""
    row_segments = units.row_segment_splits
    row_tokens = units.row_token_splits
    values = (
        row_tokens[1:] - row_tokens[:-1],
        sum_rows(kept.lengths, row_segments),
        row_segments[1:] - row_segments[:-1],
        sum_rows(kept.segments, row_segments),
        units.group_splits[1:] - units.group_splits[:-1],
        sum_rows(kept.groups, units.group_splits),
    )
    return Counts(*(tf.cast(value, tf.int32) for value in values))


def _clipped_lengths(
    units: Units, costs: Costs, budget: Budget, reserved: tf.Tensor | int
) -> tf.Tensor:
    """Lengths of the segments, those too long for the whole budget cropped."""
    lengths = units.segment_lengths
    if costs.token_long:
        lengths = tf.minimum(lengths, tf.gather(budget.long, units.segment_row))
    if costs.token_global:
        room = tf.maximum(budget.global_ - reserved - costs.segment_global, 0)
        lengths = tf.minimum(lengths, tf.gather(room, units.segment_row))
    return lengths


def _has_tokens_left(units: Units, lengths: tf.Tensor) -> tf.Tensor:
    """False for segments of which cropping leaves nothing."""
    return tf.logical_or(lengths > 0, tf.equal(units.segment_lengths, 0))


def _keep_prefix(
    units: Units, costs: Costs, budget: Budget, lengths: tf.Tensor, crop: bool
) -> Kept:
    """Keeps the longest beginning, depth first, that the budgets allow."""
    row = units.segment_row
    row_first = units.row_segment_splits[:-1]
    before = cumulative(lengths)
    # Tokens of the record before each segment.
    # [segments]
    tokens_before = before[:-1] - tf.gather(tf.gather(before, row_first), row)
    segment_index = units.index_in_row("segment")
    group_index = units.index_in_row("group")
    # Global tokens of the record up to the segment's own, if it has one.
    globals_before = (
        costs.group_global * (tf.gather(group_index, units.segment_group) + 1)
        + costs.segment_global * (segment_index + 1)
        + costs.token_global * tokens_before
    )
    long_room = tf.gather(budget.long, row) - costs.token_long * tokens_before
    global_room = tf.gather(budget.global_, row) - globals_before
    fits = tf.logical_and(long_room >= 0, global_room >= 0)
    if budget.segments is not None:
        fits = tf.logical_and(fits, segment_index < budget.segments)
    room = lengths
    if costs.token_long:
        room = tf.minimum(room, long_room)
    if costs.token_global:
        room = tf.minimum(room, global_room)
    if not crop:
        fits = tf.logical_and(fits, tf.equal(lengths, room))
    fits = tf.logical_and(fits, _has_tokens_left(units, room))
    kept_lengths = tf.where(fits, room, 0)

    # A group stays if its global token fits, and its first segment, if any.
    first = units.segment_splits[:-1]
    count = units.segment_splits[1:] - first
    base = tf.gather(row_first, units.group_row)
    # [groups]
    tokens_before = tf.gather(before, first) - tf.gather(before, base)
    globals_before = (
        costs.group_global * (group_index + 1)
        + costs.segment_global * (first - base)
        + costs.token_global * tokens_before
    )
    group_fits = tf.logical_and(
        costs.token_long * tokens_before
        <= tf.gather(budget.long, units.group_row),
        globals_before <= tf.gather(budget.global_, units.group_row),
    )
    first_fits = tf.gather(tf.pad(fits, [[0, 1]]), first)
    groups = tf.logical_and(
        group_fits, tf.logical_or(tf.equal(count, 0), first_fits)
    )
    return Kept(groups=groups, segments=fits, lengths=kept_lengths)


def cut_keep(units: Units, costs: Costs, budget: Budget) -> Kept:
    """Crops the end, token by token, only if the section is over its budget.

    Example: segments of 3 and 4 tokens in a budget of 5 keep 3 and 2.
    """
    return _keep_prefix(units, costs, budget, units.segment_lengths, crop=True)


def cut_tail(units: Units, costs: Costs, budget: Budget) -> Kept:
    """Drops whole segments from the end.

    A segment that alone is longer than the budget is cropped to it first.

    Example: segments of 3, 4 and 1 tokens in a budget of 5 keep 3.
    """
    lengths = _clipped_lengths(units, costs, budget, costs.group_global)
    return _keep_prefix(units, costs, budget, lengths, crop=False)


def cut_fit(units: Units, costs: Costs, budget: Budget) -> Kept:
    """Skips every segment for which there is no room, whole.

    In order, each segment that fits into what those before it have left is
    kept, so a short one can follow a long one that was skipped. Groups stay,
    even those that lose all segments, as long as the global input lasts. That
    is how HotpotQA's paragraphs are laid out (paper, Appendix C: as many
    tokens as possible).

    Example: segments of 3, 4 and 1 tokens in a budget of 5 keep 3, 0 and 1.
    """
    row = units.segment_row
    row_first = units.row_segment_splits[:-1]
    group_index = units.index_in_row("group")
    lengths = units.segment_lengths
    global_costs = costs.segment_global + costs.token_global * lengths
    group_costs = costs.group_global * (group_index + 1)
    most = lengths.dtype.max if budget.segments is None else budget.segments
    # What a segment takes: of the long input, the global one, the number.
    # [segments, 3]
    takes = tf.stack(
        [costs.token_long * lengths, global_costs, tf.ones_like(lengths)], 1
    )
    # What a record has for the segments up to each one.
    # [segments, 3]
    limits = tf.stack(
        [
            tf.gather(budget.long, row),
            tf.gather(budget.global_, row)
            - tf.gather(group_costs, units.segment_group),
            tf.fill(tf.shape(row), tf.cast(most, tf.int64)),
        ],
        axis=1,
    )

    def room(kept):
        """What those kept leave for each segment, [segments, 3]."""
        sums = tf.cumsum(tf.where(kept[:, tf.newaxis], takes, 0))
        sums = tf.pad(sums, [[1, 0], [0, 0]])
        return limits - sums[:-1] + tf.gather(tf.gather(sums, row_first), row)

    def misfits(kept):
        return kept & tf.reduce_any(takes > room(kept), axis=1)

    index = tf.range(tf.size(row, tf.int64))

    # Once for every first misfit of a record; most records have none.
    def skip(kept, wrong):
        first = tf.math.unsorted_segment_min(
            tf.where(wrong, index, index.dtype.max), row, tf.size(budget.long)
        )
        # [segments]
        first = tf.gather(first, row)
        # Those behind it will not find more room than it does.
        left = tf.gather(room(kept), tf.minimum(first, index))
        too_much = tf.reduce_any(takes > left, axis=1)
        kept &= ~(too_much & (index >= first))
        return kept, misfits(kept)

    everything = tf.ones_like(row, tf.bool)
    kept, _ = tf.while_loop(
        lambda kept, wrong: tf.reduce_any(wrong),
        skip,
        (everything, misfits(everything)),
    )
    used = cumulative(tf.where(kept, global_costs, 0))
    used = tf.gather(used, units.segment_splits[:-1]) - tf.gather(
        tf.gather(used, row_first), units.group_row
    )
    return Kept(
        groups=used + group_costs <= tf.gather(budget.global_, units.group_row),
        segments=kept,
        lengths=tf.where(kept, lengths, 0),
    )


def cut_balanced(units: Units, costs: Costs, budget: Budget) -> Kept:
    """Drops last segments, each time of the group that has the most.

    Among groups with equally many, the one that has had as many for the
    longest time is the next. That is the max-heap of ETC (paper, Appendix C),
    in closed form: the segments go in the order of (-position in their group,
    size of the group, group), so the reverse of it is how they are kept, as
    long as the budgets last. Groups stay, even those that lose all segments;
    but if the global input has no room for every group with one segment, the
    last groups go.

    Example: groups of 4, 2 and 4 segments, 7 allowed: the groups 0, 2 and 0
    lose one each, which leaves 2, 2 and 3.
    """
    group_index = units.index_in_row("group")
    counts = units.segment_splits[1:] - units.segment_splits[:-1]
    # A group with its first segment.
    needs = costs.group_global * (
        1 + costs.segment_global * tf.cast(counts > 0, tf.int64)
    )
    needed = cumulative(needs)
    row_first = tf.gather(units.group_splits[:-1], units.group_row)
    groups = needed[1:] - tf.gather(needed, row_first) <= tf.gather(
        budget.global_, units.group_row
    )
    group_tokens = costs.group_global * sum_rows(groups, units.group_splits)
    lengths = _clipped_lengths(units, costs, budget, group_tokens)

    # The order in which segments are kept, record by record.
    most = tf.reduce_max(tf.concat([counts, [0]], 0)) + 1
    most_groups = tf.reduce_max(tf.concat([group_index, [0]], 0)) + 1
    key = units.segment_row * most + units.segment_index()
    key = key * most - tf.gather(counts, units.segment_group)
    key = key * most_groups - tf.gather(group_index, units.segment_group)
    # [segments]
    order = tf.argsort(key)

    # Segments of dropped groups cost nothing and are not kept.
    alive = tf.gather(groups, units.segment_group)
    cost = tf.cast(alive, tf.int64)
    row = units.segment_row

    def used(values):
        """Budget used up to each segment, in the order of keeping."""
        sums = cumulative(tf.gather(values * cost, order))
        starts = tf.gather(sums, units.row_segment_splits[:-1])
        return sums[1:] - tf.gather(starts, row)

    # Rows keep their places when sorted, so `row` holds for both orders.
    fits = costs.token_long * used(lengths) <= tf.gather(budget.long, row)
    fits &= used(
        costs.segment_global + costs.token_global * lengths
    ) <= tf.gather(budget.global_ - group_tokens, row)
    if budget.segments is not None:
        fits &= used(tf.ones_like(lengths)) <= budget.segments
    fits = tf.gather(fits, tf.math.invert_permutation(order))
    segments = fits & alive & _has_tokens_left(units, lengths)
    return Kept(
        groups=groups,
        segments=segments,
        lengths=tf.where(segments, lengths, 0),
    )
