"""What a layout is made of: sections, links, values; a specification as data.

An element is a group, a unit or a token. Classes raise a `ValueError` if their
attributes do not go together.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils.etc_features import FEATURES
from etcmodel.feature_utils.layout import cuts
from etcmodel.feature_utils.layout import flat_content

WINDOWS = "windows"
CUTS = {
    ("keep", "unit"): cuts.cut_keep,
    ("tail", "unit"): cuts.cut_tail,
    ("tail", "group"): cuts.cut_tail_groups,
    ("fit", "unit"): cuts.cut_fit,
    ("fit", "group"): cuts.cut_fit_groups,
    ("balanced", "unit"): cuts.cut_balanced,
    (WINDOWS, "unit"): cuts.cut_keep,
}
LEVELS = ("group", "unit", "token")
INPUTS = ("long", "global")


@dataclasses.dataclass(frozen=True)
class GlobalToken:
    """The global token that every element of a level gets.

    `token_id` is an id, or a name that the engine is told the id of, such as
    "sentence" of a tokenizer's `special_ids`.
    """

    token_id: int | str
    token_type_id: int = 0


@dataclasses.dataclass(frozen=True)
class Section:
    """What is done with one kind of content.

    Attributes:
        name: name of the content.
        token_type_id: token type of its tokens in the long input.
        first_unit_token_type_id: that of the first unit of every group, such as
            a title, where it is another.
        group_global: global token of every group, None for none.
        unit_global: global token of every unit.
        token_global: global token of every token.
        in_long: whether the tokens are in the long input.
        link_sentences: whether `long_sentence_ids` tie a token to its own
            global token or else to its unit's.
        link_paragraphs: whether `long_paragraph_ids` tie it to its group's.
        breaks: whether every group ends a paragraph, in both inputs: local
            attention stops there. The last token of an input always does.
        cut: what gives way when the budget is full. "keep": tokens from the end
            of the section; "tail": whole elements from the end; "fit": those
            for which there is no room; "balanced": the last unit of the group
            that has the most. With "tail" and "balanced", a unit longer than
            the whole budget of the section is cropped to it beforehand.
            "windows": nothing. What the other sections leave is a window over
            the tokens, and the record has as many rows as it takes to show all
            of them. (What the global input of a row has no room for is cropped,
            as with "keep"; if the others leave no room at all, there is one
            row.) One section can have them.
        whole: what "tail" and "fit" keep whole or not at all: "unit" or
            "group".
        stride: tokens from the start of a window to that of the next, at most
            as many as it shows; None for windows that do not overlap.
        share_last_global: whether, in a window, units for which the global
            input has no room share the global token of the last that has.
            Otherwise they are cropped, as with "keep".
        priority: sections of a lower number take from the budget first, among
            equals the earlier one. By default 0 for "keep", otherwise 1;
            windows come last.
        max_units: of a record.
        max_tokens: of a record, or of a window.
        tokens: the same for every record, such as a CLS: ids, or names as of
            global tokens. No content is given for such a section.
    """

    name: str
    token_type_id: int = 0
    first_unit_token_type_id: int | None = None
    group_global: GlobalToken | None = None
    unit_global: GlobalToken | None = None
    token_global: GlobalToken | None = None
    in_long: bool = True
    link_sentences: bool = True
    link_paragraphs: bool = True
    breaks: bool = True
    cut: str = "tail"
    whole: str = "unit"
    stride: int | None = None
    share_last_global: bool = False
    priority: int | None = None
    max_units: int | None = None
    max_tokens: int | None = None
    tokens: Sequence[int | str] = ()

    def __post_init__(self):
        if (self.cut, self.whole) not in CUTS:
            kinds = sorted(cut for cut, whole in CUTS if whole == self.whole)
            raise ValueError(
                f"Section {self.name!r}: cut={self.cut!r}, expected one of "
                f"{kinds or LEVELS[:2]} for whole={self.whole!r}."
            )
        if not self.in_long and self.max_tokens is not None:
            raise ValueError(
                f"Section {self.name!r}: max_tokens limits tokens of the long "
                "input, in which the section is not."
            )
        if self.cut == WINDOWS:
            if (
                not self.in_long
                or self.max_units is not None
                or self.priority is not None
            ):
                raise ValueError(
                    f"Section {self.name!r}: windows are of the long input, "
                    "have no priority and no max_units."
                )
            if self.stride is not None and self.stride < 1:
                raise ValueError(
                    f"Section {self.name!r}: stride={self.stride}, expected "
                    "at least 1."
                )
            if self.share_last_global and [*self.global_tokens] != ["unit"]:
                raise ValueError(
                    f"Section {self.name!r}: share_last_global is of units "
                    "with a global token, groups and tokens without."
                )
        elif self.stride is not None or self.share_last_global:
            raise ValueError(
                f"Section {self.name!r}: stride and share_last_global are of "
                f"cut={WINDOWS!r}, but cut={self.cut!r}."
            )

    @property
    def global_tokens(self) -> dict[str, GlobalToken]:
        """The global tokens that there are, by level."""
        tokens = {level: getattr(self, f"{level}_global") for level in LEVELS}
        return {level: x for level, x in tokens.items() if x is not None}

    @property
    def costs(self) -> flat_content.Costs:
        """What an element of each level takes from the budgets."""
        return flat_content.Costs(
            token_long=int(self.in_long),
            token_global=int(self.token_global is not None),
            unit_global=int(self.unit_global is not None),
            group_global=int(self.group_global is not None),
        )

    @property
    def rank(self) -> float:
        """The priority that holds."""
        if self.cut == WINDOWS:
            return float("inf")
        if self.priority is not None:
            return self.priority
        return 0 if self.cut == "keep" else 1


@dataclasses.dataclass(frozen=True)
class Link:
    """Ties tokens of a section to any global tokens, such as mentions.

    The engine's `targets` tell for every element of the section's level, before
    any cutting, the index of an element of the target section within the record
    (units are counted through all groups), or anything else, such as -1, for
    none: `<int>[batch, (groups), (units), (tokens)]`, down to the level; with a
    `number` above 1 `[..., number]`.

    Attributes:
        name: what the targets are called.
        section: the section whose tokens are tied.
        target_section: the section with the global tokens.
        target_level: "group", "unit" or "token".
        level: what a target is told for, likewise.
        source: "long" if tokens of the long input are tied, all of an element
            to its target; "global" if the element's own global token is.
        feature: the feature that holds the index of the global token, the
            link's name by default. Where two links of a feature hold for a
            token, the later one wins.
        number: how many targets an element can have. The second is held by
            `FEATURE_2`, and so on.
        label: name of a relative label of its own that tied tokens have. By
            default it is that of tokens and their sentence.
        back_label: likewise the label from a target to the global token that
            is tied to it; `label` by default. Long tokens have none.
        opens_hard_masks: whether a hard mask lets long tokens and the global
            tokens they are tied to see each other.
    """

    name: str
    section: str
    target_section: str
    target_level: str = "unit"
    level: str = "token"
    source: str = "long"
    feature: str | None = None
    number: int = 1
    label: str | None = None
    back_label: str | None = None
    opens_hard_masks: bool = False

    def __post_init__(self):
        _check_place(self)
        if self.target_level not in LEVELS:
            raise ValueError(
                f"Link {self.name!r}: target_level={self.target_level!r}, "
                f"expected one of {LEVELS}."
            )
        if self.number < 1:
            raise ValueError(
                f"Link {self.name!r}: number={self.number}, expected at least "
                "1."
            )
        if self.source == "long" and self.back_label is not None:
            raise ValueError(
                f"Link {self.name!r}: back_label is of global tokens; between "
                "a long and a global token there is one label."
            )
        if self.source == "global" and self.opens_hard_masks:
            raise ValueError(
                f"Link {self.name!r}: no hard mask is between global tokens."
            )

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Shape of what is told for an element."""
        return (self.number,) * (self.number > 1)

    @property
    def features(self) -> tuple["LinkFeature", ...]:
        """The features that hold it."""
        name = self.feature or self.name
        return tuple(
            LinkFeature(
                name if i == 0 else f"{name}_{i + 1}",
                self.source,
                self.label,
                self.back_label,
                self.opens_hard_masks,
            )
            for i in range(self.number)
        )


@dataclasses.dataclass(frozen=True)
class Value:
    """Values that are laid out with tokens, units or groups.

    The engine's `values` tell one for every element of the section's level,
    before any cutting, `<dtype>[batch, (groups), (units), (tokens), ...]`, down
    to the level.

    Attributes:
        name: what they are called.
        section: name of the section.
        level: "group", "unit" or "token": what a value is told for.
        source: "long" if tokens of the long input have the value, all of an
            element the same; "global" if the element's own global token has it.
        feature: the feature that holds them, the name by default. Several
            sections can have values of one feature.
        dtype: any type, or its name.
        shape: of a value.
        pad: what all other tokens have; 0, False or "" by default.
        embed: whether the encoder adds a projection of them to the embeddings
            of the tokens that have the value (paper, section 4.1: OpenKP's
            visual features). Or the names of the inputs: a value of the global
            input can be added to those long tokens, too, that
            `long_sentence_ids` tie to its token. With none, `()`, only the
            model's heads use them.
    """

    name: str
    section: str
    level: str = "token"
    source: str = "long"
    feature: str | None = None
    dtype: tf.DType | str = tf.int32
    shape: tuple[int, ...] = ()
    pad: Any = None
    embed: bool | Sequence[str] = False

    def __post_init__(self):
        _check_place(self)
        object.__setattr__(self, "dtype", tf.dtypes.as_dtype(self.dtype))
        added_to = self.added_to
        if added_to is None:
            return
        # A number alone can be read by heads.
        rank = len(self.shape)
        if rank > 1 or self.dtype == tf.string or (added_to and not rank):
            raise ValueError(
                f"Value {self.name!r}: vectors of numbers can be embedded, and "
                "numbers be read by heads, not "
                f"<{self.dtype.name}>{list(self.shape)}."
            )
        if self.pad is not None:
            raise ValueError(
                f"Value {self.name!r}: what a model reads is padded with 0, "
                "so that it adds nothing."
            )
        possible = INPUTS if self.source == "global" else ("long",)
        if not {*added_to} <= {*possible}:
            raise ValueError(
                f"Value {self.name!r}: embed={list(added_to)}, but one of the "
                f"{self.source} input can be added to {list(possible)}."
            )

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Shape of what is told for an element."""
        return tuple(self.shape)

    @property
    def added_to(self) -> tuple[str, ...] | None:
        """The inputs it is added to; None if no model reads it."""
        if isinstance(self.embed, bool):
            return (self.source,) if self.embed else None
        return tuple(self.embed)

    @property
    def kind(self) -> tuple:
        """What values of one feature have in common."""
        return self.source, self.dtype, self.shape, self.pad, self.added_to

    @property
    def padding(self) -> tf.Tensor:
        """What all other tokens have, `<dtype>[]`."""
        if self.pad is None:
            return tf.zeros([], self.dtype)
        return tf.constant(self.pad, self.dtype)


class LinkFeature(NamedTuple):
    """What an encoder has to know of a link; see `Link`."""

    name: str
    source: str = "long"
    label: str | None = None
    back_label: str | None = None
    opens_hard_masks: bool = False


class ValueFeature(NamedTuple):
    """What an encoder has to know of values that it reads; see `Value`."""

    name: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    added_to: tuple[str, ...]


# The link of the nine EtcFeatures.
DEFAULT_LINK = LinkFeature("l2g_linked_ids")


class EncoderInputs(NamedTuple):
    """What an encoder reads beside the EtcFeatures; later links win."""

    links: tuple[LinkFeature, ...] = (DEFAULT_LINK,)
    values: tuple[ValueFeature, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Names of all labels of their own, in order."""
        names = [
            label
            for link in self.links
            for label in (link.label, link.back_label)
            if label is not None
        ]
        return list(dict.fromkeys(names))


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Global tokens of runs of `size` long tokens, whatever is in them.

    All tokens are tied to that of their block by `long_sentence_ids`.
    """

    size: int
    global_token: GlobalToken


@dataclasses.dataclass(frozen=True)
class LayoutSpec:
    """A structure as data: what `LayoutEngine` and `build_encoder` need.

    Sections are in the order of both inputs; `blocks` are global tokens instead
    of theirs.
    """

    sections: Sequence[Section]
    links: Sequence[Link] = ()
    values: Sequence[Value] = ()
    blocks: Blocks | None = None

    def __post_init__(self):
        for name in ("sections", "links", "values"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for parts, what in (
            (self.sections, "Sections"),
            (self.links, "Links"),
            (self.values, "Values"),
        ):
            names = [part.name for part in parts]
            if len(set(names)) < len(names):
                raise ValueError(f"{what} must have different names: {names}.")
        by_name = {section.name: section for section in self.sections}
        if all(section.tokens for section in self.sections):
            raise ValueError("A layout needs at least one section of content.")
        if [x.cut for x in self.sections].count(WINDOWS) > 1:
            raise ValueError("Only one section can have windows.")
        if self.blocks is not None:
            owners = [x.name for x in self.sections if x.global_tokens]
            if owners or self.blocks.size < 1:
                raise ValueError(
                    "Blocks have at least one token, and sections no global "
                    f"tokens beside theirs, got {self.blocks.size} and "
                    f"{owners}."
                )
        for part in (*self.links, *self.values):
            for section, level in _places(part):
                if section not in by_name:
                    raise ValueError(
                        f"{type(part).__name__} {part.name!r}: there is no "
                        f"section {section!r}, expected one of "
                        f"{list(by_name)}."
                    )
                if level and level not in by_name[section].global_tokens:
                    raise ValueError(
                        f"{type(part).__name__} {part.name!r}: a {level} of "
                        f"{section!r} has no global token."
                    )
            if part.source == "long" and not by_name[part.section].in_long:
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: {part.section!r} "
                    "is not in the long input; choose source='global'."
                )
        # What each feature is like; the nine are taken.
        features = {x: None for x in FEATURES if x != DEFAULT_LINK.name}
        for part, name, kind in (
            *((x, y.name, y) for x in self.links for y in x.features),
            *((x, x.feature or x.name, x.kind) for x in self.values),
        ):
            if not re.fullmatch(r"\w+", name):
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: the feature "
                    f"{name!r} must be named by letters, digits and _."
                )
            if features.setdefault(name, kind) != kind:
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: the feature "
                    f"{name!r} is there already, with other attributes."
                )
            if name == DEFAULT_LINK.name and (
                part.source == "global" or isinstance(part, Value)
            ):
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: {name} is a link of "
                    "the long input."
                )

    def index(self, name: str) -> int:
        """Which of the sections has a name, or raises a `ValueError`."""
        names = [section.name for section in self.sections]
        if name not in names:
            raise ValueError(f"There is no section {name!r}, only {names}.")
        return names.index(name)

    def with_section(self, name: str, **changes: Any) -> "LayoutSpec":
        """The same with other attributes of a section."""
        sections = list(self.sections)
        index = self.index(name)
        sections[index] = dataclasses.replace(sections[index], **changes)
        return dataclasses.replace(self, sections=sections)

    def with_blocks(self, size: int, token: GlobalToken) -> "LayoutSpec":
        """The same, with global tokens of blocks instead of the sections'."""
        none = {f"{level}_global": None for level in LEVELS}
        return dataclasses.replace(
            self,
            sections=tuple(
                dataclasses.replace(x, **none, share_last_global=False)
                for x in self.sections
            ),
            blocks=Blocks(size, token),
        )

    @property
    def encoder_inputs(self) -> EncoderInputs:
        """What the encoder reads beside the EtcFeatures."""
        links = [x for link in self.links for x in link.features]
        if DEFAULT_LINK.name not in {link.name for link in links}:
            links.insert(0, DEFAULT_LINK)
        values = [
            ValueFeature(
                x.feature or x.name,
                x.source,
                tuple(x.shape),
                x.dtype.name,
                x.added_to,
            )
            for x in self.values
            if x.added_to is not None
        ]
        return EncoderInputs(
            tuple(dict.fromkeys(links)), tuple(dict.fromkeys(values))
        )


def _places(part: Link | Value) -> list[tuple[str, str | None]]:
    """Sections a part names, and the level that must have a global token."""
    own = (part.section, part.level if part.source == "global" else None)
    if isinstance(part, Value):
        return [own]
    return [own, (part.target_section, part.target_level)]


def _check_place(part: Link | Value) -> None:
    """Refuses levels and inputs that do not exist."""
    for name, value, allowed in (
        ("level", part.level, LEVELS),
        ("source", part.source, INPUTS),
    ):
        if value not in allowed:
            raise ValueError(
                f"{type(part).__name__} {part.name!r}: {name}={value!r}, "
                f"expected one of {allowed}."
            )
