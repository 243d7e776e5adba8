"""The layout engine: ragged units and a specification to EtcFeatures.

What tasks differ in is which units exist, which of them get a global token,
what is linked to what, and what gives way when the budget is full. All of that
is a specification, a list of `Section`s; `LayoutEngine` does the rest, for a
whole batch at once, in graph code.

A section's content has four levels, [batch, (groups), (segments), (tokens)]:
a document is a group of sentences, a question one group of one segment. The
sections follow each other in both inputs. The global tokens of a group come
depth first: the group's own, then for each segment its own and those of its
tokens.

Worked example, a question above two paragraphs of one and two sentences:

    engine = LayoutEngine([
        Section("question", token_type_id=3,
                token_global=GlobalToken(3), cut="keep"),
        Section("text", token_type_id=1, group_global=GlobalToken(5),
                segment_global=GlobalToken(1)),
    ], long_length=8, global_length=8)
    engine({"question": one_segment(tf.ragged.constant([[51, 52]])),
            "text": tf.ragged.constant([[[[61, 62]], [[71], [72]]]])})

    long_token_ids              51 52 61 62 71 72  0  0
    long_token_type_ids          3  3  1  1  1  1  0  0
    long_sentence_ids            0  1  3  3  5  6 -1 -1
    long_paragraph_ids          -1 -1  2  2  4  4 -1 -1
    long_paragraph_breakpoints   0  1  0  1  0  1  0  0
    global_token_ids             3  3  5  1  5  1  1  0
    global_paragraph_breakpoints 0  1  0  1  0  0  1  0

Source: paper, sections 3.3, 3.4 and Appendices C and D.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import layout_units
from etcmodel.feature_utils.etc_features import GLOBAL_FEATURES
from etcmodel.feature_utils.etc_features import LONG_FEATURES
from etcmodel.feature_utils.layout_spec import CUTS
from etcmodel.feature_utils.layout_spec import GlobalToken
from etcmodel.feature_utils.layout_spec import Link
from etcmodel.feature_utils.layout_spec import Section
from etcmodel.feature_utils.layout_spec import constant_tokens
from etcmodel.feature_utils.layout_spec import groups_of_one
from etcmodel.feature_utils.layout_spec import one_group
from etcmodel.feature_utils.layout_spec import one_segment
from etcmodel.feature_utils.layout_units import Counts

__all__ = [
    "Counts",
    "GlobalToken",
    "Layout",
    "LayoutEngine",
    "Link",
    "Section",
    "constant_tokens",
    "groups_of_one",
    "one_group",
    "one_segment",
]

# A budget that is never used up.
_UNLIMITED = 2**31 - 1


class Layout(NamedTuple):
    """What the engine makes.

    Attributes:
        features: the EtcFeatures, <int32>[batch, long_length] and
            <int32>[batch, global_length], with the features of other links.
        long_sources: where each long token comes from, before any cutting:
            its section, its group in the section, its segment in the group and
            its index in the segment. <int32>[batch, long_length, 4], padding
            -1.
        global_sources: likewise for the global tokens; -1 at the levels below
            the token's own. <int32>[batch, global_length, 4].
        counts: what was cut, for every section.
    """

    features: dict[str, tf.Tensor]
    long_sources: tf.Tensor
    global_sources: tf.Tensor
    counts: dict[str, Counts]


class _Placed(NamedTuple):
    """A section after cutting, with the places of its units.

    Positions are those in the record's inputs; -1 for a unit without one.

    Attributes:
        units: the flat units.
        token_source: <int64>[kept], which of the tokens were kept.
        token_segment: <int64>[kept], their segments.
        token_index: <int64>[kept], their indices in the segments.
        long_positions: <int64>[kept].
        long_ends: <bool>[kept], whether it is the last one of its group.
        global_positions: for each level <int64>[groups], [segments] and
            [kept].
        group_ends: <int64>[groups], the last global position of a group.
    """

    units: layout_units.Units
    token_source: tf.Tensor
    token_segment: tf.Tensor
    token_index: tf.Tensor
    long_positions: tf.Tensor
    long_ends: tf.Tensor
    global_positions: dict[str, tf.Tensor]
    group_ends: tf.Tensor


def _place(
    units: layout_units.Units,
    kept: layout_units.Kept,
    costs: layout_units.Costs,
    long_start: tf.Tensor,
    global_start: tf.Tensor,
) -> _Placed:
    """Gives every kept unit its position in both inputs."""
    row_segments = units.row_segment_splits[:-1]
    # The kept tokens, as a flat list.
    before = layout_units.cumulative(kept.lengths)
    segment = tf.repeat(tf.range(tf.size(kept.lengths, tf.int64)), kept.lengths)
    place = tf.range(tf.size(segment, tf.int64))
    # [kept]
    index = place - tf.gather(before, segment)
    source = tf.gather(units.token_splits, segment) + index
    group = tf.gather(units.segment_group, segment)
    row = tf.gather(units.segment_row, segment)
    row_before = tf.gather(before, row_segments)
    long_positions = place + tf.gather(long_start - row_before, row)
    end = tf.gather(before, units.segment_splits[1:]) - 1
    long_ends = tf.equal(place, tf.gather(end, group))

    # Global positions: tokens of groups and of segments before each unit.
    segment_sums = layout_units.cumulative(
        tf.cast(kept.segments, tf.int64) * costs.segment_global
        + kept.lengths * costs.token_global
    )
    group_sums = layout_units.cumulative(
        tf.cast(kept.groups, tf.int64) * costs.group_global
    )
    row_sums = tf.gather(segment_sums, row_segments) + tf.gather(
        group_sums, units.group_splits[:-1]
    )
    shift = global_start - row_sums
    # [groups]
    group_shift = tf.gather(shift, units.group_row)
    group_positions = (
        group_sums[:-1]
        + tf.gather(segment_sums, units.segment_splits[:-1])
        + group_shift
    )
    group_ends = (
        group_sums[1:]
        + tf.gather(segment_sums, units.segment_splits[1:])
        + group_shift
        - 1
    )
    # [segments]
    segment_positions = (
        tf.gather(group_sums[1:], units.segment_group)
        + segment_sums[:-1]
        + tf.gather(shift, units.segment_row)
    )
    # [kept]
    token_positions = (
        tf.gather(segment_positions, segment) + costs.segment_global + index
    )

    def only(condition, positions, cost):
        """Positions of the units that do have a global token."""
        if not cost:
            return tf.fill(tf.shape(positions), tf.constant(-1, tf.int64))
        if condition is None:
            return positions
        return tf.where(condition, positions, -1)

    return _Placed(
        units=units,
        token_source=source,
        token_segment=segment,
        token_index=index,
        long_positions=long_positions,
        long_ends=long_ends,
        global_positions={
            "group": only(kept.groups, group_positions, costs.group_global),
            "segment": only(
                kept.segments, segment_positions, costs.segment_global
            ),
            "token": only(None, token_positions, costs.token_global),
        },
        group_ends=group_ends,
    )


class _Columns:
    """Collects values of tokens of all sections and makes dense tensors."""

    def __init__(self, pads: Mapping[str, int]):
        self._pads = {**pads, **{f"source_{i}": -1 for i in range(4)}}
        # Not without any: a specification may have no global tokens.
        self._places = [tf.zeros([0, 2], tf.int64)]
        self._values = [tf.zeros([0, len(self._pads)], tf.int32)]

    def add(self, row, position, sources, **values):
        """Adds tokens at positions of rows; positions of -1 are left out."""
        values.update({f"source_{i}": x for i, x in enumerate(sources)})
        size = tf.shape(position)
        # [tokens, columns]
        columns = tf.stack(
            [
                tf.broadcast_to(tf.cast(values.get(name, pad), tf.int32), size)
                for name, pad in self._pads.items()
            ],
            axis=1,
        )
        # [tokens, 2]
        self._places.append(tf.stack([row, position], axis=1))
        self._values.append(columns)

    def dense(self, batch, length):
        """The columns as <int32>[batch, length] each, and the sources."""
        shape = tf.stack([batch, tf.cast(length, tf.int64)])
        pads = tf.constant(list(self._pads.values()), tf.int32)
        # [batch, length, columns]
        table = tf.tensor_scatter_nd_update(
            tf.broadcast_to(pads, tf.concat([shape, [len(self._pads)]], 0)),
            tf.concat(self._places, axis=0),
            tf.concat(self._values, axis=0),
        )
        static = length if isinstance(length, int) else None
        table = tf.ensure_shape(table, [None, static, len(self._pads)])
        columns = dict(zip(self._pads, tf.unstack(table, axis=2), strict=True))
        for i in range(4):
            del columns[f"source_{i}"]
        # [batch, length, 4]
        return columns, table[:, :, -4:]


class LayoutEngine:
    """Lays out ragged content as EtcFeatures; see the module's docstring.

    Nothing is ever too long: what exceeds the lengths is cut as the sections
    say, and counted. A record's result does not depend on its batch.
    """

    def __init__(
        self,
        sections: Sequence[Section],
        long_length: int | None,
        global_length: int | None,
    ):
        """Checks the specification.

        Args:
            sections: what there is, in the order of both inputs.
            long_length: length of the long input; None for as long as the
                longest of the batch needs.
            global_length: length of the global input; likewise.

        Raises:
            ValueError: there are no sections, two have one name, or a length
                is negative.
        """
        names = [section.name for section in sections]
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"Sections must have different names, got {names}."
            )
        for length in (long_length, global_length):
            if length is not None and length < 0:
                raise ValueError(f"A length is negative: {length}.")
        self.sections = tuple(sections)
        self.long_length = long_length
        self.global_length = global_length

    # There is nothing in it for AutoGraph, which would make tracing slow.
    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        contents: Mapping[str, tf.RaggedTensor],
        links: Sequence[Link] = (),
    ) -> Layout:
        """Lays out a batch.

        Args:
            contents: token ids of each section, <int>[batch, (groups),
                (segments), (tokens)]. See `one_segment`, `one_group` and
                `groups_of_one` for content of a lower rank.
            links: further ties of long tokens to global tokens.

        Returns:
            The layout.

        Raises:
            ValueError: contents do not match the sections, or a link names
                what does not exist.
            tf.errors.InvalidArgumentError: when run, if contents differ in the
                number of records, or a link's targets are not one a token.
        """
        self._check(contents, links)
        units = {
            section.name: layout_units.flatten(contents[section.name])
            for section in self.sections
        }
        batch = contents[self.sections[0].name].nrows(tf.int64)
        for section in self.sections:
            tf.debugging.assert_equal(
                tf.size(units[section.name].group_splits, tf.int64) - 1,
                batch,
                f"Records of the content of {section.name!r}, expected as many "
                f"as of {self.sections[0].name!r}.",
            )
        for link in links:
            tf.debugging.assert_equal(
                tf.size(link.targets.flat_values),
                tf.size(units[link.section].tokens),
                f"Targets of a link of {link.section!r}, expected one for each "
                "of its tokens.",
            )
        kept = self._cut(units, batch)

        placed = {}
        long_used = global_used = tf.zeros([batch], tf.int64)
        counts = {}
        for section in self.sections:
            u, k = units[section.name], kept[section.name]
            placed[section.name] = _place(
                u, k, section.costs, long_used, global_used
            )
            long, global_ = layout_units.used(u, k, section.costs)
            long_used += long
            global_used += global_
            counts[section.name] = layout_units.count(u, k)
        links_of = self._resolve(links, placed, units)

        long_pads = dict(LONG_FEATURES)
        long_pads.update({link.feature: -1 for link in links})
        long_columns = _Columns(long_pads)
        global_columns = _Columns(GLOBAL_FEATURES)
        for index, section in enumerate(self.sections):
            place = placed[section.name]
            if section.in_long:
                _add_long(
                    long_columns, index, section, place, links_of[section.name]
                )
            _add_global(global_columns, index, section, place)
        features, long_sources = long_columns.dense(
            batch, _length(self.long_length, long_used)
        )
        global_features, global_sources = global_columns.dense(
            batch, _length(self.global_length, global_used)
        )
        features.update(global_features)
        for name, used in (
            ("long_paragraph_breakpoints", long_used),
            ("global_paragraph_breakpoints", global_used),
        ):
            # The last token always ends a paragraph.
            positions = tf.range(tf.shape(features[name], tf.int64)[1])
            last = tf.equal(positions, used[:, tf.newaxis] - 1)
            features[name] = tf.maximum(features[name], tf.cast(last, tf.int32))
        return Layout(features, long_sources, global_sources, counts)

    def _check(self, contents, links):
        """Compares what is given with the specification."""
        names = {section.name for section in self.sections}
        if set(contents) != names:
            raise ValueError(
                f"Expected contents for {sorted(names)}, got "
                f"{sorted(contents)}."
            )
        for name, content in contents.items():
            if (
                not isinstance(content, tf.RaggedTensor)
                or content.ragged_rank != 3
                or content.shape.rank != 4
            ):
                raise ValueError(
                    f"The content of {name!r} must be ragged, [batch, "
                    "(groups), (segments), (tokens)], got "
                    f"{getattr(content, 'shape', content)}. See one_segment, "
                    "one_group and groups_of_one."
                )
        for link in links:
            if not {link.section, link.target_section} <= names:
                raise ValueError(
                    f"A link ties {link.section!r} to {link.target_section!r}, "
                    f"expected two of {sorted(names)}."
                )

    def _cut(self, units, batch):
        """Shares the budgets among the sections, the first in rank first."""
        long_left, global_left = (
            tf.fill([batch], tf.constant(_limit(length), tf.int64))
            for length in (self.long_length, self.global_length)
        )
        kept = {}
        for section in sorted(self.sections, key=lambda x: x.rank):
            long_budget = long_left
            if section.max_tokens is not None:
                long_budget = tf.minimum(long_left, section.max_tokens)
            budget = layout_units.Budget(
                long_budget, global_left, section.max_segments
            )
            u = units[section.name]
            kept[section.name] = CUTS[section.cut](u, section.costs, budget)
            long, global_ = layout_units.used(
                u, kept[section.name], section.costs
            )
            long_left -= long
            global_left -= global_
        return kept

    def _resolve(self, links, placed, units):
        """For each section the values of its kept tokens in link features."""
        result = {section.name: {} for section in self.sections}
        for link in links:
            target = placed[link.target_section]
            flat = units[link.target_section]
            positions = target.global_positions[link.target_level]
            if link.target_level == "group":
                starts = flat.group_splits
            elif link.target_level == "segment":
                starts = flat.row_segment_splits
            else:
                starts = flat.row_token_splits
                # Positions of all tokens, those that were cut as well.
                # [tokens]
                positions = tf.tensor_scatter_nd_update(
                    tf.fill(tf.shape(flat.tokens), tf.constant(-1, tf.int64)),
                    target.token_source[:, tf.newaxis],
                    positions,
                )
            source = placed[link.section]
            # [kept]
            index = tf.gather(
                tf.cast(link.targets.flat_values, tf.int64),
                source.token_source,
            )
            row = tf.gather(source.units.segment_row, source.token_segment)
            index = tf.where(index >= 0, index + tf.gather(starts, row), -1)
            # The first place is for tokens that are tied to nothing.
            padded = tf.pad(positions, [[1, 0]], constant_values=-1)
            value = tf.gather(padded, index + 1)
            values = result[link.section]
            if link.feature in values:
                value = tf.where(value < 0, values[link.feature], value)
            values[link.feature] = value
        return result


def _limit(length: int | None) -> int:
    """The budget for a length."""
    return _UNLIMITED if length is None else length


def _length(length: int | None, used: tf.Tensor) -> int | tf.Tensor:
    """The length asked for, or what the longest record of a batch needs."""
    if length is not None:
        return length
    return tf.reduce_max(tf.concat([used, [0]], axis=0))


def _add_long(columns, index, section, place, links):
    """Adds a section's tokens to the long input."""
    units = place.units
    segment = place.token_segment
    group = tf.gather(units.segment_group, segment)
    segment_index = tf.gather(units.segment_index(), segment)
    types = section.token_type_id
    if section.first_segment_token_type_id is not None:
        types = tf.where(
            tf.equal(segment_index, 0),
            section.first_segment_token_type_id,
            types,
        )
    sentences = paragraphs = -1
    if section.link_sentences:
        if section.token_global is not None:
            sentences = place.global_positions["token"]
        else:
            sentences = tf.gather(place.global_positions["segment"], segment)
    if section.link_paragraphs:
        paragraphs = tf.gather(place.global_positions["group"], group)
    columns.add(
        tf.gather(units.segment_row, segment),
        place.long_positions,
        (
            index,
            tf.gather(units.index_in_row("group"), group),
            segment_index,
            place.token_index,
        ),
        long_token_ids=tf.gather(units.tokens, place.token_source),
        long_token_type_ids=types,
        long_sentence_ids=sentences,
        long_paragraph_ids=paragraphs,
        long_paragraph_breakpoints=(place.long_ends if section.breaks else 0),
        **links,
    )


def _add_global(columns, index, section, place):
    """Adds the global tokens of a section's units."""
    units = place.units
    group_index = units.index_in_row("group")
    segment_index = units.segment_index()
    token_group = tf.gather(units.segment_group, place.token_segment)
    for level, token, row, group, sources in (
        (
            "group",
            section.group_global,
            units.group_row,
            tf.range(tf.size(units.group_row, tf.int64)),
            (index, group_index, -1, -1),
        ),
        (
            "segment",
            section.segment_global,
            units.segment_row,
            units.segment_group,
            (
                index,
                tf.gather(group_index, units.segment_group),
                segment_index,
                -1,
            ),
        ),
        (
            "token",
            section.token_global,
            tf.gather(units.segment_row, place.token_segment),
            token_group,
            (
                index,
                tf.gather(group_index, token_group),
                tf.gather(segment_index, place.token_segment),
                place.token_index,
            ),
        ),
    ):
        if token is None:
            continue
        positions = place.global_positions[level]
        used = tf.where(positions >= 0)[:, 0]

        def pick(value, used=used):
            """Values of the units that were kept."""
            return tf.gather(value, used) if tf.is_tensor(value) else value

        ends = 0
        if section.breaks:
            ends = tf.equal(positions, tf.gather(place.group_ends, group))
        columns.add(
            pick(row),
            pick(positions),
            tuple(pick(value) for value in sources),
            global_token_ids=token.token_id,
            global_token_type_ids=token.token_type_id,
            global_paragraph_breakpoints=pick(ends),
        )
