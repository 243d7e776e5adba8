"""The content of one section of a layout, as flat vectors; graph code.

Functions process whole batches with cumulative sums, without loops over
records, sentences or tokens.
"""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows

_OWNERS = {"group": "group_row", "unit": "unit_group", "token": "token_unit"}


@dataclasses.dataclass(frozen=True)
class FlatContent:
    """The groups, units and tokens of one section, and their splits.

    A row is a record, or a window of a record. An *element* is a group, a unit
    or a token. `group_splits` split the groups by row, `unit_splits` the units
    by group, and `token_splits` the tokens by unit. An element's origin is its
    index in the flat content before truncation and repetition. All tensors are
    `<int64>`.
    """

    group_splits: tf.Tensor
    unit_splits: tf.Tensor
    token_splits: tf.Tensor
    group_origin: tf.Tensor
    unit_origin: tf.Tensor
    token_origin: tf.Tensor

    @functools.cached_property
    def group_row(self) -> tf.Tensor:
        """Index of each group's row."""
        return ragged_rows.owners(self.group_splits)

    @functools.cached_property
    def unit_group(self) -> tf.Tensor:
        """Index of each unit's group."""
        return ragged_rows.owners(self.unit_splits)

    @functools.cached_property
    def unit_row(self) -> tf.Tensor:
        """Index of each unit's row."""
        return tf.gather(self.group_row, self.unit_group)

    @functools.cached_property
    def token_unit(self) -> tf.Tensor:
        """Index of each token's unit."""
        return ragged_rows.owners(self.token_splits)

    @functools.cached_property
    def unit_lengths(self) -> tf.Tensor:
        """Number of tokens of each unit."""
        return ragged_rows.lengths(self.token_splits)

    @functools.cached_property
    def row_unit_splits(self) -> tf.Tensor:
        """Row splits of the units, `<int64>[rows + 1]`.

        Row i has the units `splits[i]:splits[i + 1]`.
        """
        return tf.gather(self.unit_splits, self.group_splits)

    @functools.cached_property
    def row_token_splits(self) -> tf.Tensor:
        """Row splits of the tokens, `<int64>[rows + 1]`."""
        return tf.gather(self.token_splits, self.row_unit_splits)

    def row_sizes(self, level: str) -> tf.Tensor:
        """Counts the elements of a level in each row, `<int64>[rows]`."""
        return ragged_rows.lengths(self.splits(level))

    def splits(self, level: str) -> tf.Tensor:
        """Returns the row splits of a level's elements, `<int64>[rows + 1]`."""
        if level == "group":
            return self.group_splits
        if level == "unit":
            return self.row_unit_splits
        return self.row_token_splits

    def origin(self, level: str) -> tf.Tensor:
        """Returns the origins of a level's elements."""
        return getattr(self, f"{level}_origin")

    def row(self, level: str) -> tf.Tensor:
        """Returns the row of each element of a level."""
        if level == "token":
            return tf.gather(self.unit_row, self.token_unit)
        return self.group_row if level == "group" else self.unit_row

    def unit_index_in_row(self) -> tf.Tensor:
        """Returns the index of each unit within its row."""
        return ragged_rows.index_in(self.unit_row, self.row_unit_splits)

    def owner(self, level: str) -> tf.Tensor:
        """Returns the row, group or unit of each element of a level."""
        return getattr(self, _OWNERS[level])

    def index(self, level: str) -> tf.Tensor:
        """Returns the index of each element of a level within its owner."""
        splits = getattr(self, f"{level}_splits")
        return ragged_rows.index_in(self.owner(level), splits)


def flatten(content: tf.RaggedTensor) -> FlatContent:
    """Flattens content, `<dtype>[batch, (groups), (units), (tokens)]`."""
    splits = content.with_row_splits_dtype(tf.int64).nested_row_splits[:3]
    return FlatContent(*splits, *(tf.range(x[-1]) for x in splits))


class Costs(NamedTuple):
    """Number of tokens that an element of a level adds to an input: 0 or 1.

    For example, `unit_global` is 1 if every unit has a global token.
    """

    token_long: int
    token_global: int
    unit_global: int
    group_global: int


class Kept(NamedTuple):
    """The parts of a section that truncation keeps.

    Attributes:
        groups: whether each group is kept, `<bool>[groups]`. No unit of a
            dropped group is kept.
        units: whether each unit is kept, `<bool>[units]`.
        lengths: number of tokens kept at the start of each unit,
            `<int64>[units]`.
    """

    groups: tf.Tensor
    units: tf.Tensor
    lengths: tf.Tensor


class Counts(NamedTuple):
    """Numbers of a section's elements in each record, `<int32>[batch]`.

    `tokens`, `units` and `groups` count the elements before truncation;
    `kept_tokens`, `kept_units` and `kept_groups` count the elements after it.
    """

    tokens: tf.Tensor
    kept_tokens: tf.Tensor
    units: tf.Tensor
    kept_units: tf.Tensor
    groups: tf.Tensor
    kept_groups: tf.Tensor


def used(content: FlatContent, costs: Costs) -> tuple[tf.Tensor, tf.Tensor]:
    """Counts a section's tokens in the long and the global input.

    Both are `<int64>[rows]`.
    """
    groups, units, tokens = map(content.row_sizes, ("group", "unit", "token"))
    return (
        tokens * costs.token_long,
        tokens * costs.token_global
        + units * costs.unit_global
        + groups * costs.group_global,
    )


def count(original: FlatContent, content: FlatContent) -> Counts:
    """Counts each record's elements, and the elements that any row keeps."""
    values = []
    for level in ("token", "unit", "group"):
        splits, origin = original.splits(level), content.origin(level)
        # [elements of the original]
        is_kept = tf.tensor_scatter_nd_update(
            tf.zeros([splits[-1]], tf.int64),
            origin[:, tf.newaxis],
            tf.ones_like(origin),
        )
        values += [
            original.row_sizes(level),
            ragged_rows.sum_rows(is_kept, splits),
        ]
    return Counts(*(tf.cast(value, tf.int32) for value in values))


def select(content: FlatContent, kept: Kept) -> FlatContent:
    """Returns the parts of the content that `kept` marks."""
    # Number of kept tokens before each unit, and the unit of each kept token.
    before = ragged_rows.cumulative(kept.lengths)
    unit = ragged_rows.owners(before)
    # [kept tokens]
    token = tf.gather(content.token_splits, unit) + ragged_rows.index_in(
        unit, before
    )
    groups = tf.where(kept.groups)[:, 0]
    units = tf.where(kept.units)[:, 0]
    num_units = ragged_rows.sum_rows(kept.units, content.unit_splits)
    return FlatContent(
        ragged_rows.cumulative(
            ragged_rows.sum_rows(kept.groups, content.group_splits)
        ),
        ragged_rows.cumulative(tf.gather(num_units, groups)),
        ragged_rows.cumulative(tf.gather(kept.lengths, units)),
        tf.gather(content.group_origin, groups),
        tf.gather(content.unit_origin, units),
        tf.gather(content.token_origin, token),
    )


def repeat(content: FlatContent, owner: tf.Tensor) -> FlatContent:
    """Repeats rows of content; `owner` is the old row of each new row."""
    splits = [content.group_splits, content.unit_splits, content.token_splits]
    origins = [content.group_origin, content.unit_origin, content.token_origin]
    # [new rows, (elements)] of each level, from groups to tokens
    repeated = [
        tf.gather(
            tf.RaggedTensor.from_nested_row_splits(
                origin, splits[: level + 1], validate=False
            ),
            owner,
        )
        for level, origin in enumerate(origins)
    ]
    return FlatContent(
        *repeated[-1].nested_row_splits, *(x.flat_values for x in repeated)
    )


class Windows(NamedTuple):
    """Windows over a section's tokens, each field `<int64>[windows]`.

    `owner` is the record of each window, `starts` its first token in the
    record, and `sizes` its number of tokens. A record has one or more windows.
    """

    owner: tf.Tensor
    starts: tf.Tensor
    sizes: tf.Tensor


def make_windows(
    lengths: tf.Tensor, room: tf.Tensor, stride: int | None
) -> Windows:
    """Makes windows over texts; the last window of a text may be shorter.

    `lengths` are the texts' numbers of tokens, and `room` is the size of a
    window; both are `<int64>[batch]`. A text of n tokens has
    `1 + ceil(max(n - room, 0) / stride)` windows. A larger stride than the room
    is reduced to the room, so that windows skip no tokens. None means the room.

    Example: lengths of 9 and 3 with room for 4 and a stride of 3 give the
    owners 0 0 0 1, the starts 0 3 6 0 and the sizes 4 4 3 3.
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
    """Returns the row splits of runs of equal keys, `<int64>[runs + 1]`."""
    changes = tf.zeros_like(keys[0][1:], tf.bool)
    for key in keys:
        changes |= tf.not_equal(key[1:], key[:-1])
    # The first key always begins a run. Without keys there are no runs.
    is_first = tf.concat([tf.ones_like(keys[0][:1], tf.bool), changes], axis=0)
    return tf.concat(
        [tf.where(is_first)[:, 0], [tf.size(is_first, tf.int64)]], axis=0
    )


def cut_windows(content: FlatContent, windows: Windows) -> FlatContent:
    """Returns the content of windows: tokens, and their units and groups.

    Example: a record has the units `[7, 8, 9]` and `[5]`. The window from 0 to
    2 has the unit `[7, 8]`; the window from 1 to 4 has `[8, 9]` and `[5]`.
    """
    first = tf.gather(content.row_token_splits, windows.owner) + windows.starts
    # [windows, (tokens)]
    index = tf.ragged.range(first, first + windows.sizes)
    row = ragged_rows.owners_in(index)
    # [tokens]
    unit = tf.gather(content.token_unit, index.values)
    token_splits = _runs(row, unit)
    # [units]
    row, unit = (tf.gather(x, token_splits[:-1]) for x in (row, unit))
    group = tf.gather(content.unit_group, unit)
    unit_splits = _runs(row, group)
    # [groups]
    row, group = (tf.gather(x, unit_splits[:-1]) for x in (row, group))
    number = tf.math.unsorted_segment_sum(
        tf.ones_like(row), row, tf.size(windows.owner)
    )
    return FlatContent(
        ragged_rows.cumulative(number),
        unit_splits,
        token_splits,
        tf.gather(content.group_origin, group),
        tf.gather(content.unit_origin, unit),
        tf.gather(content.token_origin, index.values),
    )
