"""Positions of a layout's elements, and dense tables of tokens; graph code."""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.layout import flat_content
from etcmodel.feature_utils.layout.spec import LEVELS
from etcmodel.feature_utils.layout.spec import Blocks
from etcmodel.feature_utils.layout.spec import Section

# Columns besides features: the index of a token's section; the indices of its
# group, unit and token in the record; and these indices in the flat content.
SOURCES = ("section", "group", "unit", "token")
_ORIGINS = tuple(f"{level}_origin" for level in LEVELS)
_MARKS = dict.fromkeys((*SOURCES, *_ORIGINS), -1)


class PlacedSection(NamedTuple):
    """A section with its content before and after truncation.

    Attributes:
        spec: the section of the layout.
        index: index of the section in the layout.
        tokens: token ids of the original content, `<int32>[tokens]`.
        original: the content before truncation.
        content: the content after truncation, in all rows.
        max_shared: `<int64>[rows]`, number of global tokens that each row has
            room for; None unless units share the last global token.
        long_positions: positions of the kept tokens in the long input.
        global_positions: level -> positions of its elements in the global
            input, for levels with a global token.
        group_ends: the last global position of each group.
    """

    spec: Section
    index: int
    tokens: tf.Tensor
    original: flat_content.FlatContent
    content: flat_content.FlatContent
    max_shared: tf.Tensor | None = None
    long_positions: tf.Tensor | None = None
    global_positions: Mapping[str, tf.Tensor] | None = None
    group_ends: tf.Tensor | None = None

    def used(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts the section's tokens in both inputs, `<int64>[rows]` each."""
        long, global_ = flat_content.used(self.content, self.spec.costs)
        if self.max_shared is not None:
            global_ = tf.minimum(global_, self.max_shared)
        return long, global_

    def with_global(self, level: str) -> tf.Tensor | None:
        """Returns the indices of elements of a level that get a global token.

        None means all elements.
        """
        if self.max_shared is None:
            return None
        index = self.content.unit_index_in_row()
        limit = tf.gather(self.max_shared, self.content.row(level))
        return tf.where(index < limit)[:, 0]

    def sources(self, level: str) -> dict[str, tf.Tensor | int]:
        """Returns the columns of marks (see `Table`) of a level's elements."""
        columns = {"section": self.index}
        # From the elements of the level up to the groups that contain them.
        inside = None
        for name in reversed(LEVELS[: LEVELS.index(level) + 1]):
            origin = _take(self.content.origin(name), inside)
            columns[f"{name}_origin"] = origin
            columns[name] = tf.gather(self.original.index(name), origin)
            inside = _take(self.content.owner(name), inside)
        return columns


def _take(values: tf.Tensor, index: tf.Tensor | None) -> tf.Tensor:
    """Gathers values; returns all of them if the index is None."""
    return values if index is None else tf.gather(values, index)


def place(
    section: PlacedSection, long_start: tf.Tensor, global_start: tf.Tensor
) -> PlacedSection:
    """Computes the positions of a section's elements in both inputs.

    `long_start` and `global_start`, `<int64>[rows]`, are the section's first
    positions in each row.
    """
    content, costs = section.content, section.spec.costs
    token_row = content.row("token")
    tokens = tf.range(tf.size(token_row, tf.int64))
    long_shift = long_start - content.row_token_splits[:-1]

    # The number of global tokens before each unit and before each group.
    unit_sums = ragged_rows.cumulative(
        costs.unit_global + content.unit_lengths * costs.token_global
    )
    group_sums = costs.group_global * tf.range(
        tf.size(content.unit_splits, tf.int64)
    )
    row_sums = tf.gather(unit_sums, content.row_unit_splits[:-1])
    row_sums += tf.gather(group_sums, content.group_splits[:-1])
    shift = global_start - row_sums
    group_shift = tf.gather(shift, content.group_row)
    group_units = tf.gather(unit_sums, content.unit_splits)
    # [units]
    units = (
        tf.gather(group_sums[1:], content.unit_group)
        + unit_sums[:-1]
        + tf.gather(shift, content.unit_row)
    )
    positions = {
        "group": lambda: group_sums[:-1] + group_units[:-1] + group_shift,
        "unit": lambda: units,
        "token": lambda: (
            tf.gather(units, content.token_unit)
            + costs.unit_global
            + content.index("token")
        ),
    }
    group_ends = group_sums[1:] + group_units[1:] + group_shift - 1
    if section.max_shared is not None:
        last = global_start + section.max_shared - 1
        units = tf.minimum(units, tf.gather(last, content.unit_row))
        group_ends = tf.minimum(group_ends, tf.gather(last, content.group_row))
    return section._replace(
        long_positions=tokens + tf.gather(long_shift, token_row),
        global_positions={
            level: positions[level]() for level in section.spec.global_tokens
        },
        group_ends=group_ends,
    )


class Table:
    """Collects the tokens of all sections, and makes dense tensors of them.

    The columns are the features, and marks that tell where each token comes
    from (`SOURCES` and origins). `pads` maps each feature to its padding value.
    """

    def __init__(self, pads: Mapping[str, int]):
        self._pads = {**pads, **_MARKS}
        # A specification may have no global tokens.
        self._places = [tf.zeros([0, 2], tf.int64)]
        self._columns = {name: [[pad]] for name, pad in self._pads.items()}

    def add(
        self, row: tf.Tensor, position: tf.Tensor, **values: tf.Tensor | int
    ) -> None:
        """Adds tokens; a column is `<int>[tokens]`, or one int for all."""
        # [tokens, 2]
        self._places.append(tf.stack([row, position], axis=1))
        shape = tf.shape(position)
        for name, pad in self._pads.items():
            value = tf.cast(values.get(name, pad), tf.int32)
            self._columns[name].append(tf.broadcast_to(value, shape))

    def dense(
        self, rows: tf.Tensor, length: int | tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Returns the features and the marks, `<int32>[rows, length]` each."""
        places = tf.concat(self._places, axis=0)
        # The number of the token at each position; 0 for no token.
        # [rows, length]
        index = tf.scatter_nd(
            places,
            tf.range(1, tf.shape(places)[0] + 1),
            tf.stack([rows, tf.cast(length, tf.int64)]),
        )
        static = length if isinstance(length, int) else None
        index = tf.ensure_shape(index, [None, static])
        columns = {
            name: tf.gather(tf.concat(parts, axis=0), index)
            for name, parts in self._columns.items()
        }
        marks = {name: columns.pop(name) for name in _MARKS}
        return columns, marks


def add_long(table: Table, section: PlacedSection) -> None:
    """Adds a section's tokens to the table of the long input."""
    spec, content = section.spec, section.content
    if not spec.in_long:
        return
    columns = section.sources("token")
    unit = content.token_unit
    group = tf.gather(content.unit_group, unit)
    types = spec.token_type_id
    if spec.first_unit_token_type_id is not None:
        types = tf.where(
            tf.equal(columns["unit"], 0),
            spec.first_unit_token_type_id,
            types,
        )
    positions = section.global_positions
    sentences = paragraphs = -1
    if spec.link_sentences:
        if "token" in positions:
            sentences = positions["token"]
        elif "unit" in positions:
            sentences = tf.gather(positions["unit"], unit)
    if spec.link_paragraphs and "group" in positions:
        paragraphs = tf.gather(positions["group"], group)
    ends = 0
    if spec.breaks:
        # The last token of each group.
        end = tf.gather(content.token_splits, content.unit_splits[1:]) - 1
        place = tf.range(tf.size(unit, tf.int64))
        ends = tf.equal(place, tf.gather(end, group))
    table.add(
        content.row("token"),
        section.long_positions,
        **columns,
        long_token_ids=tf.gather(section.tokens, content.token_origin),
        long_token_type_ids=types,
        long_sentence_ids=sentences,
        long_paragraph_ids=paragraphs,
        long_paragraph_breakpoints=ends,
    )


def add_global(
    table: Table, section: PlacedSection, token_ids: Mapping[int | str, int]
) -> None:
    """Adds a section's global tokens to the table of the global input."""
    content = section.content
    for level, token in section.spec.global_tokens.items():
        positions = section.global_positions[level]
        ends = 0
        if section.spec.breaks:
            group_end = section.group_ends
            if level != "group":
                group_end = tf.gather(group_end, content.unit_group)
            if level == "token":
                group_end = tf.gather(group_end, content.token_unit)
            ends = tf.equal(positions, group_end)
        columns = {
            **section.sources(level),
            "row": content.row(level),
            "position": positions,
            "global_paragraph_breakpoints": ends,
        }
        chosen = section.with_global(level)
        table.add(
            **{
                name: _take(x, chosen) if tf.is_tensor(x) else x
                for name, x in columns.items()
            },
            global_token_ids=token_ids[token.token_id],
            global_token_type_ids=token.token_type_id,
        )


def add_blocks(
    table: Table,
    blocks: Blocks,
    token_ids: Mapping[int | str, int],
    numbers: tf.Tensor,
) -> None:
    """Adds the global tokens of blocks; each row has `numbers[row]` blocks."""
    index = tf.ragged.range(numbers)
    table.add(
        ragged_rows.owners_in(index),
        index.values,
        global_token_ids=token_ids[blocks.global_token.token_id],
        global_token_type_ids=blocks.global_token.token_type_id,
    )
