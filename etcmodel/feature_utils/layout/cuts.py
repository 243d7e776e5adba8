"""Truncation: which parts of a section are kept when the input is full."""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.layout.flat_content import Costs
from etcmodel.feature_utils.layout.flat_content import FlatContent
from etcmodel.feature_utils.layout.flat_content import Kept


class Budget(NamedTuple):
    """Limits of a section in each record.

    Attributes:
        long: number of tokens that fit into the long input, `<int64>[batch]`.
        global_: number of tokens that fit into the global input,
            `<int64>[batch]`.
        max_units: maximum number of units.
    """

    long: tf.Tensor
    global_: tf.Tensor
    max_units: int = tf.int64.max


def _clipped_lengths(
    content: FlatContent,
    costs: Costs,
    budget: Budget,
    reserved: tf.Tensor | int,
) -> tf.Tensor:
    """Returns unit lengths, each limited to the whole budget of its section."""
    lengths = content.unit_lengths
    if costs.token_long:
        lengths = tf.minimum(lengths, tf.gather(budget.long, content.unit_row))
    if costs.token_global:
        room = tf.maximum(budget.global_ - reserved - costs.unit_global, 0)
        lengths = tf.minimum(lengths, tf.gather(room, content.unit_row))
    return lengths


def _has_tokens_left(content: FlatContent, lengths: tf.Tensor) -> tf.Tensor:
    """Marks units, except those that cropping leaves without tokens."""
    return (lengths > 0) | tf.equal(content.unit_lengths, 0)


def _keep_prefix(
    content: FlatContent,
    costs: Costs,
    budget: Budget,
    lengths: tf.Tensor,
    crop: bool,
) -> Kept:
    """Keeps as many elements from the start, depth first, as fit."""
    row = content.unit_row
    row_first = content.row_unit_splits[:-1]
    before = ragged_rows.cumulative(lengths)
    # [units], number of tokens in the record before each unit
    tokens_before = before[:-1] - tf.gather(tf.gather(before, row_first), row)
    unit_index = content.unit_index_in_row()
    group_index = content.index("group")
    # [units], number of global tokens in the record, up to and including the
    # unit's own global token
    globals_before = (
        costs.group_global * (tf.gather(group_index, content.unit_group) + 1)
        + costs.unit_global * (unit_index + 1)
        + costs.token_global * tokens_before
    )
    long_room = tf.gather(budget.long, row) - costs.token_long * tokens_before
    global_room = tf.gather(budget.global_, row) - globals_before
    fits = (long_room >= 0) & (global_room >= 0)
    fits &= unit_index < budget.max_units
    room = lengths
    if costs.token_long:
        room = tf.minimum(room, long_room)
    if costs.token_global:
        room = tf.minimum(room, global_room)
    if not crop:
        fits &= tf.equal(lengths, room)
    fits &= _has_tokens_left(content, room)
    # All units after the first unit that does not fit are dropped, even empty
    # units.
    misfits = ragged_rows.cumulative(~fits)
    fits = tf.equal(misfits[1:], tf.gather(tf.gather(misfits, row_first), row))
    kept_lengths = tf.where(fits, room, 0)

    # Keeps a group if its global token fits and its first unit is kept. A group
    # without units needs room for its global token only.
    first = content.unit_splits[:-1]
    count = content.unit_splits[1:] - first
    base = tf.gather(row_first, content.group_row)
    # [groups]
    tokens_before = tf.gather(before, first) - tf.gather(before, base)
    globals_before = (
        costs.group_global * (group_index + 1)
        + costs.unit_global * (first - base)
        + costs.token_global * tokens_before
    )
    group_fits = (
        costs.token_long * tokens_before
        <= tf.gather(budget.long, content.group_row)
    ) & (globals_before <= tf.gather(budget.global_, content.group_row))
    # Number of units that do not fit, up to and including the first unit of
    # each group.
    seen = tf.gather(misfits, tf.where(count > 0, first + 1, first))
    groups = group_fits & tf.equal(seen, tf.gather(misfits, base))
    return Kept(groups=groups, units=fits, lengths=kept_lengths)


def cut_keep(content: FlatContent, costs: Costs, budget: Budget) -> Kept:
    """Drops tokens from the end of the section until it is within its budget.

    Example: units of 3 and 4 tokens in a budget of 5 keep 3 and 2 tokens.
    """
    return _keep_prefix(content, costs, budget, content.unit_lengths, crop=True)


def cut_tail(content: FlatContent, costs: Costs, budget: Budget) -> Kept:
    """Drops whole units from the end.

    A unit that alone exceeds the budget is cropped to the budget first.

    Example: of units of 3, 4 and 1 tokens, a budget of 5 keeps the first unit.
    """
    lengths = _clipped_lengths(content, costs, budget, costs.group_global)
    return _keep_prefix(content, costs, budget, lengths, crop=False)


def _skip_misfits(
    takes: tf.Tensor, limits: tf.Tensor, row: tf.Tensor, splits: tf.Tensor
) -> tf.Tensor:
    """Keeps, in order, each unit or group of a row that fits.

    `takes`, `<int64>[n, resources]`, is how much each element uses. `limits`,
    in the same shape, is how much all kept elements of the row up to and
    including this one may use. `row` is the row of each element, and `splits`
    are the row splits of the elements.
    """
    row_first = splits[:-1]

    def room(kept):
        """Returns the room that earlier elements leave, `[n, resources]`."""
        sums = tf.cumsum(tf.where(kept[:, tf.newaxis], takes, 0))
        sums = tf.pad(sums, [[1, 0], [0, 0]])
        return limits - sums[:-1] + tf.gather(tf.gather(sums, row_first), row)

    def misfits(kept):
        return kept & tf.reduce_any(takes > room(kept), axis=1)

    index = tf.range(tf.size(row, tf.int64))

    # Each step drops the first element of every row that does not fit. Most
    # rows have no such element.
    def skip(kept, wrong):
        first = tf.math.unsorted_segment_min(
            tf.where(wrong, index, index.dtype.max), row, tf.size(row_first)
        )
        # [items]
        first = tf.gather(first, row)
        # Later elements have at most the room that the dropped element had.
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
    return kept


def cut_fit(content: FlatContent, costs: Costs, budget: Budget) -> Kept:
    """Skips every unit that does not fit as a whole.

    A short unit after a skipped long unit can still be kept. Groups are kept,
    even without units, while the global input has room. HotpotQA's paragraphs
    are truncated this way (ETC paper, Appendix C: as many tokens as possible).

    Example: units of 3, 4 and 1 tokens in a budget of 5 keep 3, 0 and 1 tokens.
    """
    row = content.unit_row
    group_index = content.index("group")
    lengths = content.unit_lengths
    global_costs = costs.unit_global + costs.token_global * lengths
    group_costs = costs.group_global * (group_index + 1)
    # [units, 3]: long tokens, global tokens, number of units
    takes = tf.stack(
        [costs.token_long * lengths, global_costs, tf.ones_like(lengths)], 1
    )
    # [units, 3]
    limits = tf.stack(
        [
            tf.gather(budget.long, row),
            tf.gather(budget.global_, row)
            - tf.gather(group_costs, content.unit_group),
            tf.fill(tf.shape(row), tf.constant(budget.max_units, tf.int64)),
        ],
        axis=1,
    )
    row_first = content.row_unit_splits[:-1]
    kept = _skip_misfits(takes, limits, row, content.row_unit_splits)
    used = ragged_rows.cumulative(tf.where(kept, global_costs, 0))
    used = tf.gather(used, content.unit_splits[:-1]) - tf.gather(
        tf.gather(used, row_first), content.group_row
    )
    return Kept(
        groups=used + group_costs
        <= tf.gather(budget.global_, content.group_row),
        units=kept,
        lengths=tf.where(kept, lengths, 0),
    )


def _whole_groups(
    content: FlatContent, costs: Costs, budget: Budget
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns how much each group uses, and the limits of its row.

    Both are `<int64>[groups, 3]`: long tokens, global tokens and units.
    """
    units = ragged_rows.lengths(content.unit_splits)
    tokens = ragged_rows.sum_rows(content.unit_lengths, content.unit_splits)
    takes = tf.stack(
        [
            costs.token_long * tokens,
            costs.group_global
            + costs.unit_global * units
            + costs.token_global * tokens,
            units,
        ],
        axis=1,
    )
    max_units = tf.constant(budget.max_units, tf.int64)
    limits = tf.stack(
        [
            budget.long,
            budget.global_,
            tf.fill(tf.shape(budget.long), max_units),
        ],
        1,
    )
    return takes, tf.gather(limits, content.group_row)


def _keep_groups(content: FlatContent, groups: tf.Tensor) -> Kept:
    units = tf.gather(groups, content.unit_group)
    return Kept(groups, units, tf.where(units, content.unit_lengths, 0))


def cut_fit_groups(content: FlatContent, costs: Costs, budget: Budget) -> Kept:
    """Skips every group that does not fit as a whole.

    Example: the groups have units of 2 and 2, of 3, and of 1 token. A budget of
    5 keeps the first and the last group.
    """
    takes, limits = _whole_groups(content, costs, budget)
    return _keep_groups(
        content,
        _skip_misfits(takes, limits, content.group_row, content.group_splits),
    )


def cut_tail_groups(content: FlatContent, costs: Costs, budget: Budget) -> Kept:
    """Drops whole groups from the end.

    Example: the groups have units of 2 and 2, of 3, and of 1 token. A budget of
    5 keeps the first group.
    """
    takes, limits = _whole_groups(content, costs, budget)
    sums = tf.pad(tf.cumsum(takes), [[1, 0], [0, 0]])
    before = tf.gather(sums, tf.gather(content.group_splits, content.group_row))
    return _keep_groups(
        content, tf.reduce_all(sums[1:] - before <= limits, axis=1)
    )


def cut_balanced(content: FlatContent, costs: Costs, budget: Budget) -> Kept:
    """Drops, one at a time, the last unit of the group with the most units.

    Among groups of equal size, the group that has had this size for the longest
    time loses a unit next. This is the max-heap of ETC (paper, Appendix C) in
    closed form: units are dropped in the order of (-position in their group,
    size of the group, group). The code goes through them in reverse and keeps
    units while the budgets last. Groups are kept, even without units. The last
    groups are dropped only if the global input has no room for one unit per
    group.

    Example: with groups of 4, 2 and 4 units and room for 7 units, the groups 0,
    2 and 0 lose one unit each, which leaves 2, 2 and 3.
    """
    group_index = content.index("group")
    counts = ragged_rows.lengths(content.unit_splits)
    # Global tokens that a group needs with its first unit.
    needs = costs.group_global * (
        1 + costs.unit_global * tf.cast(counts > 0, tf.int64)
    )
    needed = ragged_rows.cumulative(needs)
    row_first = tf.gather(content.group_splits[:-1], content.group_row)
    groups = needed[1:] - tf.gather(needed, row_first) <= tf.gather(
        budget.global_, content.group_row
    )
    group_tokens = costs.group_global * ragged_rows.sum_rows(
        groups, content.group_splits
    )
    lengths = _clipped_lengths(content, costs, budget, group_tokens)

    # Within each record, sorts units into the order in which they are kept.
    base = 1 + tf.reduce_max(tf.concat([counts, [0]], 0))
    num_groups = tf.reduce_max(tf.concat([group_index, [0]], 0)) + 1
    key = content.unit_row * base + content.index("unit")
    key = key * base - tf.gather(counts, content.unit_group)
    key = key * num_groups - tf.gather(group_index, content.unit_group)
    # [units]
    order = tf.argsort(key)

    # Units of dropped groups cost nothing and are not kept.
    alive = tf.gather(groups, content.unit_group)
    cost = tf.cast(alive, tf.int64)
    row = content.unit_row

    def used(values):
        """Returns the budget used up to each unit, in the order `order`."""
        sums = ragged_rows.cumulative(tf.gather(values * cost, order))
        starts = tf.gather(sums, content.row_unit_splits[:-1])
        return sums[1:] - tf.gather(starts, row)

    # Sorting does not move units between rows, so `row` is right for both
    # orders.
    fits = costs.token_long * used(lengths) <= tf.gather(budget.long, row)
    fits &= used(costs.unit_global + costs.token_global * lengths) <= tf.gather(
        budget.global_ - group_tokens, row
    )
    fits &= used(tf.ones_like(lengths)) <= budget.max_units
    fits = tf.gather(fits, tf.math.invert_permutation(order))
    units = fits & alive & _has_tokens_left(content, lengths)
    return Kept(
        groups=groups,
        units=units,
        lengths=tf.where(units, lengths, 0),
    )
