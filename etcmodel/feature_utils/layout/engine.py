"""The layout engine: turns ragged content and a spec into EtcFeatures.

A task defines its units, the units that get a global token, links between
tokens, and how long input is truncated. A `LayoutSpec` describes all of this.
`LayoutEngine` applies it to a whole batch, in graph code.

A section's content has four dimensions, [batch, (groups), (units), (tokens)]. A
document is a group of sentences; a question is one group of one unit. The
sections follow each other in both inputs. The global tokens of a group are in
depth-first order: the group's global token, then each unit's global token
followed by those of its tokens.

Worked example, a question before two paragraphs of one and two sentences:

    engine = LayoutEngine(LayoutSpec([
        Section("question", token_type_id=3,
                token_global=GlobalToken(3), cut="keep"),
        Section("text", token_type_id=1, group_global=GlobalToken(5),
                unit_global=GlobalToken(1)),
    ]), long_length=8, global_length=8)
    engine({"question": one_unit(tf.ragged.constant([[51, 52]])),
            "text": tf.ragged.constant([[[[61, 62]], [[71], [72]]]])})

    long_token_ids              51 52 61 62 71 72  0  0
    long_token_type_ids          3  3  1  1  1  1  0  0
    long_sentence_ids            0  1  3  3  5  6 -1 -1
    long_paragraph_ids          -1 -1  2  2  4  4 -1 -1
    long_paragraph_breakpoints   0  1  0  1  0  1  0  0
    global_token_ids             3  3  5  1  5  1  1  0
    global_paragraph_breakpoints 0  1  0  1  0  0  1  0

Source: ETC (Ainslie et al., 2020), sections 3.3 and 3.4, Appendices C and D.
"""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils.etc_features import GLOBAL_FEATURES
from etcmodel.feature_utils.etc_features import LONG_FEATURES
from etcmodel.feature_utils.layout import flat_content
from etcmodel.feature_utils.layout.contents import constant_tokens
from etcmodel.feature_utils.layout.contents import one_unit
from etcmodel.feature_utils.layout.contents import record_splits
from etcmodel.feature_utils.layout.cuts import Budget
from etcmodel.feature_utils.layout.flat_content import Counts
from etcmodel.feature_utils.layout.lookup import look_up
from etcmodel.feature_utils.layout.lookup import resolve
from etcmodel.feature_utils.layout.spec import CUTS
from etcmodel.feature_utils.layout.spec import INPUTS
from etcmodel.feature_utils.layout.spec import LEVELS
from etcmodel.feature_utils.layout.spec import WINDOWS
from etcmodel.feature_utils.layout.spec import LayoutSpec
from etcmodel.feature_utils.layout.tables import SOURCES
from etcmodel.feature_utils.layout.tables import PlacedSection
from etcmodel.feature_utils.layout.tables import Table
from etcmodel.feature_utils.layout.tables import add_blocks
from etcmodel.feature_utils.layout.tables import add_global
from etcmodel.feature_utils.layout.tables import add_long
from etcmodel.feature_utils.layout.tables import place

# A budget that is never exhausted.
_UNLIMITED = 2**31 - 1


class Layout(NamedTuple):
    """The engine's result. A row is a record, or a window of a record.

    Attributes:
        features: the EtcFeatures and the features of links, each `<int32>[rows,
            length]`.
        values: the features of values, each `<dtype>[rows, length, ...]`.
        long_sources: indices of each long token before truncation: its section,
            its group, its unit in the group, and its index in the unit; -1 for
            padding. `<int32>[rows, long_length, 4]`.
        global_sources: these indices for each global token, `<int32>[rows,
            global_length, 4]`. The global token of a group or unit has -1 for
            the levels below.
        counts: section -> numbers of its elements before and after truncation.
        owner: index of each row's record, `<int32>[rows]`.
        windows: `starts`, the token offset of each window in its record, and
            `sizes`, its number of tokens, both `<int64>[batch, (rows)]`. Empty
            if no section has windows.
    """

    features: dict[str, tf.Tensor]
    values: dict[str, tf.Tensor]
    long_sources: tf.Tensor
    global_sources: tf.Tensor
    counts: dict[str, Counts]
    owner: tf.Tensor
    windows: dict[str, tf.RaggedTensor]


class LayoutEngine:
    """Lays out ragged content as EtcFeatures; see the module's docstring.

    Content that exceeds the lengths is truncated according to each section's
    `cut`, and `Layout.counts` reports it. The result for a record does not
    depend on other records in the batch. If a length is None, the input is as
    long as the batch needs. `special_ids` maps the token names in the
    specification to ids.

    Raises:
        ValueError: a length is negative, a window has no `long_length`, or a
            token name has no id.
    """

    def __init__(
        self,
        spec: LayoutSpec,
        long_length: int | None,
        global_length: int | None,
        special_ids: Mapping[str, int] | None = None,
    ):
        special_ids = special_ids or {}
        for length in (long_length, global_length):
            if length is not None and length < 0:
                raise ValueError(
                    f"A length is {length}, expected 0 or more, or None."
                )
        self.spec = spec
        self.long_length = long_length
        self.global_length = global_length
        self._has_windows = any(x.cut == WINDOWS for x in spec.sections)
        if long_length is None and self._has_windows:
            raise ValueError(
                f"long_length is None. Set it, since cut={WINDOWS!r} needs it."
            )
        tokens = [x for s in spec.sections for x in s.global_tokens.values()]
        tokens += [spec.blocks.global_token] if spec.blocks else []
        self._ids = {}
        for name in (
            *(token.token_id for token in tokens),
            *(token for section in spec.sections for token in section.tokens),
        ):
            if isinstance(name, str) and name not in special_ids:
                raise ValueError(
                    f"The layout names the token {name!r}, expected an id or "
                    f"one of {sorted(special_ids)}."
                )
            named = isinstance(name, str)
            self._ids[name] = special_ids[name] if named else name

    # AutoGraph would slow down tracing and change nothing.
    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        contents: Mapping[str, tf.RaggedTensor],
        targets: Mapping[str, tf.RaggedTensor] | None = None,
        values: Mapping[str, tf.RaggedTensor] | None = None,
    ) -> Layout:
        """Lays out a batch.

        Args:
            contents: section name -> token ids, `<int>[batch, (groups),
                (units), (tokens)]`, for sections without constant `tokens`.
                `one_unit`, `one_group` and `groups_of_one` add missing
                dimensions.
            targets: name of a link -> its targets; see `Link`.
            values: name of a value -> its values; see `Value`.

        Raises:
            ValueError: an argument does not match the specification.
            tf.errors.InvalidArgumentError: when the graph runs, if contents
                have different numbers of records, or the number of targets or
                values differs from the number of elements.
        """
        targets, values = dict(targets or {}), dict(values or {})
        self._check(contents, targets, values)
        batch = next(iter(contents.values())).nrows(tf.int64)
        contents = {
            section.name: one_unit(
                constant_tokens([self._ids[x] for x in section.tokens], batch)
            )
            if section.tokens
            else contents[section.name]
            for section in self.spec.sections
        }
        sections = {
            spec.name: PlacedSection(
                spec,
                index,
                tf.cast(contents[spec.name].flat_values, tf.int32),
                original := flat_content.flatten(contents[spec.name]),
                original,
            )
            for index, spec in enumerate(self.spec.sections)
        }
        self._check_sizes(sections, batch, targets, values)
        sections, windows = self._cut(sections, batch)
        rows = tf.size(windows.owner, tf.int64)
        sections, features, marks = self._lay_out(sections, rows)
        features.update(
            resolve(self.spec, sections, marks, targets, windows.owner)
        )
        return Layout(
            features=features,
            values=look_up(self.spec, marks, values),
            **{
                f"{source}_sources": tf.stack(
                    [marks[source][name] for name in SOURCES], axis=2
                )
                for source in INPUTS
            },
            counts={
                name: flat_content.count(section.original, section.content)
                for name, section in sections.items()
            },
            owner=tf.cast(windows.owner, tf.int32),
            windows={
                name: tf.RaggedTensor.from_value_rowids(
                    getattr(windows, name),
                    windows.owner,
                    nrows=batch,
                    validate=False,
                )
                for name in (("starts", "sizes") if self._has_windows else ())
            },
        )

    def _lay_out(self, sections, rows):
        """Lays out sections and makes the features of both inputs."""
        sections = dict(sections)
        long_used = global_used = tf.zeros([rows], tf.int64)
        for name, section in sections.items():
            sections[name] = place(section, long_used, global_used)
            long, global_ = sections[name].used()
            long_used += long
            global_used += global_
        blocks = self.spec.blocks
        if blocks is not None:
            global_used = -(-long_used // blocks.size)
        tables = {
            "long": Table(LONG_FEATURES),
            "global": Table(GLOBAL_FEATURES),
        }
        for section in sections.values():
            add_long(tables["long"], section)
            add_global(tables["global"], section, self._ids)
        if blocks is not None:
            add_blocks(tables["global"], blocks, self._ids, global_used)
        features, marks = {}, {}
        for source, length, used in (
            ("long", self.long_length, long_used),
            ("global", self.global_length, global_used),
        ):
            table = tables[source]
            made, marks[source] = table.dense(rows, _length(length, used))
            name = f"{source}_paragraph_breakpoints"
            # The last token of an input always ends a paragraph.
            positions = tf.range(tf.shape(made[name], tf.int64)[1])
            last = tf.equal(positions, used[:, tf.newaxis] - 1)
            made[name] = tf.maximum(made[name], tf.cast(last, tf.int32))
            features.update(made)
        if blocks is not None:
            # [long_length]
            position = tf.range(tf.shape(features["long_token_ids"])[1])
            features["long_sentence_ids"] = tf.where(
                marks["long"]["section"] >= 0, position // blocks.size, -1
            )
        return sections, features, marks

    def _check(self, contents, targets, values):
        sections = [x for x in self.spec.sections if not x.tokens]
        for what, given, parts in (
            ("contents", contents, sections),
            ("targets", targets, self.spec.links),
            ("values", values, self.spec.values),
        ):
            names = sorted(part.name for part in parts)
            if sorted(given) != names:
                raise ValueError(
                    f"`{what}` has {sorted(given)}, expected exactly {names}."
                )
        for name, content in contents.items():
            if (
                not isinstance(content, tf.RaggedTensor)
                or content.ragged_rank != 3
                or content.shape.rank != 4
            ):
                raise ValueError(
                    f"The content of {name!r} must be ragged, [batch, "
                    "(groups), (units), (tokens)], got "
                    f"{getattr(content, 'shape', content)}. Use one_unit, "
                    "one_group or groups_of_one to add dimensions."
                )
        for part, given in self._told(targets, values):
            inner = part.inner_shape
            rank = LEVELS.index(part.level) + 1
            if (
                not isinstance(given, tf.RaggedTensor)
                or given.ragged_rank != rank
                or not given.flat_values.shape[1:].is_compatible_with(inner)
            ):
                raise ValueError(
                    f"{type(part).__name__} {part.name!r} must be given for "
                    f"every {part.level} of {part.section!r}, ragged in {rank} "
                    f"dimensions with {list(inner)} inside, got "
                    f"{getattr(given, 'shape', given)}."
                )

    def _told(self, targets, values):
        """Pairs links with their targets, and each `Value` with its values."""
        pairs = [(x, targets[x.name]) for x in self.spec.links]
        return pairs + [(x, values[x.name]) for x in self.spec.values]

    def _check_sizes(self, sections, batch, targets, values):
        """Checks the numbers of records and elements when the graph runs."""
        for name, section in sections.items():
            tf.debugging.assert_equal(
                tf.size(section.original.group_splits, tf.int64) - 1,
                batch,
                f"The content of {name!r} has another number of records, "
                "expected the same number in all contents.",
            )
        for part, given in self._told(targets, values):
            content = sections[part.section].content
            splits = given.with_row_splits_dtype(tf.int64).nested_row_splits
            # Each record's row splits: of the targets or values, and of the
            # content.
            pair = (
                record_splits(splits),
                content.splits(part.level),
            )
            size = tf.reduce_min([tf.size(x) for x in pair])
            tf.debugging.assert_equal(
                [tf.size(pair[0]), 0],
                [
                    tf.size(pair[1]),
                    tf.math.count_nonzero(
                        pair[0][:size] - pair[1][:size], dtype=tf.int32
                    ),
                ],
                f"{type(part).__name__} {part.name!r}: expected one entry for "
                f"each {part.level} of {part.section!r}.",
            )

    def _cut(self, sections, batch):
        """Truncates sections, in the order of their rank, to the space left."""
        long_limit = _limit(self.long_length)
        global_limit = _limit(self.global_length)
        if self.spec.blocks is not None:
            # Each block needs a global token.
            long_limit = min(long_limit, global_limit * self.spec.blocks.size)
        long_left, global_left = (
            tf.fill([batch], tf.constant(limit, tf.int64))
            for limit in (long_limit, global_limit)
        )
        sections = dict(sections)
        nothing = tf.zeros([batch], tf.int64)
        windows = flat_content.Windows(tf.range(batch), nothing, nothing)
        for name, section in sorted(
            sections.items(), key=lambda x: x[1].spec.rank
        ):
            spec, content = section.spec, section.original
            long_budget = long_left
            if spec.max_tokens is not None:
                long_budget = tf.minimum(long_left, spec.max_tokens)
            if spec.cut == WINDOWS:
                # Windows have the last rank, so all other sections have been
                # cut.
                windows = flat_content.make_windows(
                    content.row_sizes("token"), long_budget, spec.stride
                )
                sections = {
                    other: x._replace(
                        content=flat_content.repeat(x.content, windows.owner)
                    )
                    for other, x in sections.items()
                }
                long_budget, global_left = (
                    tf.gather(x, windows.owner)
                    for x in (long_budget, global_left)
                )
                if spec.share_last_global:
                    # Without room for a global token that units can share,
                    # windows are empty.
                    windows = windows._replace(
                        sizes=tf.where(global_left > 0, windows.sizes, 0)
                    )
                content = flat_content.cut_windows(content, windows)
            # Windows fit the long input by construction, so they are cut only
            # if the global input may be too short.
            if spec.cut != WINDOWS or (
                spec.global_tokens and not spec.share_last_global
            ):
                budget = Budget(long_budget, global_left)
                if spec.max_units is not None:
                    budget = budget._replace(max_units=spec.max_units)
                kept = CUTS[spec.cut, spec.whole](content, spec.costs, budget)
                content = flat_content.select(content, kept)
            section = section._replace(
                content=content,
                max_shared=global_left if spec.share_last_global else None,
            )
            sections[name] = section
            if spec.cut == WINDOWS:
                # The global input may have cropped the windows.
                windows = windows._replace(sizes=content.row_sizes("token"))
            else:
                long, global_ = flat_content.used(content, spec.costs)
                long_left -= long
                global_left -= global_
        in_order = {x.name: sections[x.name] for x in self.spec.sections}
        return in_order, windows


def _limit(length: int | None) -> int:
    return _UNLIMITED if length is None else length


def _length(length: int | None, used: tf.Tensor) -> int | tf.Tensor:
    if length is not None:
        return length
    return tf.reduce_max(tf.concat([used, [0]], axis=0))
