"""Specification of a layout as data: sections, links and values.

An element is a group, a unit or a token. The classes raise a `ValueError` if
their attributes conflict.
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

    `token_id` is an id, or a name in the engine's `special_ids`, such as
    "sentence".
    """

    token_id: int | str
    token_type_id: int = 0


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a model's input, such as the question, and its layout.

    Attributes:
        name: name of the section.
        token_type_id: token type of the section's tokens in the long input.
        first_unit_token_type_id: token type of the first unit of every group,
            such as a title; by default `token_type_id`.
        group_global: global token of every group; None for none.
        unit_global: global token of every unit; None for none.
        token_global: global token of every token; None for none.
        in_long: whether the tokens are in the long input.
        link_sentences: whether `long_sentence_ids` link a token to its own
            global token, or else to the global token of its unit.
        link_paragraphs: whether `long_paragraph_ids` link a token to the global
            token of its group.
        breaks: whether every group ends a paragraph, in both inputs. Local
            attention does not cross the end of a paragraph. The last token of
            an input always ends one.
        cut: truncation when the input is full. "keep" drops tokens from the end
            of the section; "tail" drops whole elements from the end; "fit"
            skips elements that do not fit; "balanced" drops the last unit of
            the group with the most units. With "tail" and "balanced", a unit
            longer than the whole budget of the section is cropped first.
            "windows" drops nothing: each row has a window over the tokens, in
            the space that other sections leave, and a record has one row per
            window. (Tokens without room in a row's global input are cropped, as
            with "keep". Without any room in the long input, the record has one
            row.) Only one section can have windows.
        whole: the elements that "tail" and "fit" keep or drop as a whole:
            "unit" or "group".
        stride: number of tokens from the start of a window to the start of the
            next, at most the size of a window; None for windows that do not
            overlap.
        share_last_global: whether units of a window share the last global token
            if the global input has no room for more. Otherwise tokens without
            room are cropped, as with "keep".
        priority: sections with a lower number get space first. Among equal
            numbers, the earlier section comes first. By default 0 for "keep",
            otherwise 1; windows come last.
        max_units: maximum number of units per record.
        max_tokens: maximum number of tokens per record, or per window.
        tokens: ids or names (see `GlobalToken`) of tokens that every record
            has, such as [CLS]. The engine expects no content for such a
            section.
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
                f"Section {self.name!r}: cut is {self.cut!r}, expected one of "
                f"{kinds or LEVELS[:2]} for whole={self.whole!r}."
            )
        if not self.in_long and self.max_tokens is not None:
            raise ValueError(
                f"Section {self.name!r}: max_tokens limits tokens of the long "
                "input, but in_long is False. Leave out max_tokens."
            )
        if self.cut == WINDOWS:
            if (
                not self.in_long
                or self.max_units is not None
                or self.priority is not None
            ):
                raise ValueError(
                    f"Section {self.name!r}: cut={WINDOWS!r} needs "
                    "in_long=True. Leave out priority and max_units."
                )
            if self.stride is not None and self.stride < 1:
                raise ValueError(
                    f"Section {self.name!r}: stride is {self.stride}, expected "
                    "at least 1."
                )
            if self.share_last_global and [*self.global_tokens] != ["unit"]:
                raise ValueError(
                    f"Section {self.name!r}: share_last_global needs "
                    "unit_global. Leave out group_global and token_global."
                )
        elif self.stride is not None or self.share_last_global:
            raise ValueError(
                f"Section {self.name!r}: stride and share_last_global need "
                f"cut={WINDOWS!r}, but cut is {self.cut!r}. Leave them out."
            )

    @property
    def global_tokens(self) -> dict[str, GlobalToken]:
        """The section's global tokens, by level."""
        tokens = {level: getattr(self, f"{level}_global") for level in LEVELS}
        return {level: x for level, x in tokens.items() if x is not None}

    @property
    def costs(self) -> flat_content.Costs:
        """Number of tokens that an element of a level adds to an input."""
        return flat_content.Costs(
            token_long=int(self.in_long),
            token_global=int(self.token_global is not None),
            unit_global=int(self.unit_global is not None),
            group_global=int(self.group_global is not None),
        )

    @property
    def rank(self) -> float:
        """The priority, or its default; windows come last."""
        if self.cut == WINDOWS:
            return float("inf")
        if self.priority is not None:
            return self.priority
        return 0 if self.cut == "keep" else 1


@dataclasses.dataclass(frozen=True)
class Link:
    """Links tokens of a section to global tokens of any section.

    A link can, for example, connect the mentions of an entity. The engine's
    `targets` have one entry for every element of the section's level, before
    truncation: `<int>[batch, (groups), (units), (tokens)]`, down to the level,
    or `[..., number]` with a `number` above 1. An entry is the index of an
    element of the target section within the record. Units are counted across
    groups. An index out of range, such as -1, means no target.

    Attributes:
        name: name of the link in the engine's `targets`.
        section: the section whose tokens are linked.
        target_section: the section with the global tokens.
        target_level: level of the targets: "group", "unit" or "token".
        level: level of the elements that have targets: "group", "unit" or
            "token".
        source: "long" to link all long tokens of an element to its target;
            "global" to link the element's own global token.
        feature: the feature that holds the index of the global token, by
            default the link's name. If two links of a feature apply to a token,
            the later link wins.
        number: maximum number of targets of an element. The feature `FEATURE_2`
            holds the second target, and so on.
        label: name of a separate relative label for linked tokens. By default,
            linked tokens have the label of a token and its sentence.
        back_label: name of the label from a target back to the global token
            that is linked to it; by default `label`. Requires
            `source="global"`.
        opens_hard_masks: whether linked long and global tokens attend to each
            other despite a hard mask.
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
                f"Link {self.name!r}: target_level is {self.target_level!r}, "
                f"expected one of {LEVELS}."
            )
        if self.number < 1:
            raise ValueError(
                f"Link {self.name!r}: number is {self.number}, expected at "
                "least 1."
            )
        if self.source == "long" and self.back_label is not None:
            raise ValueError(
                f"Link {self.name!r}: back_label needs source='global'; long "
                "and global tokens have the same label in both directions."
            )
        if self.source == "global" and self.opens_hard_masks:
            raise ValueError(
                f"Link {self.name!r}: opens_hard_masks needs source='long'."
            )

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Shape of the targets of one element."""
        return (self.number,) * (self.number > 1)

    @property
    def features(self) -> tuple["LinkFeature", ...]:
        """The features that hold the targets."""
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
    """Values that belong to tokens, units or groups, such as font sizes.

    The engine's `values` have one value for every element of the section's
    level, before truncation: `<dtype>[batch, (groups), (units), (tokens),
    ...]`, down to the level.

    Attributes:
        name: name of the value in the engine's `values`.
        section: name of the section.
        level: level of the elements that have a value: "group", "unit" or
            "token".
        source: "long" to give the value to all long tokens of an element;
            "global" to give it to the element's own global token.
        feature: the feature that holds the values, by default the name. Values
            of several sections can share a feature.
        dtype: any dtype, or its name.
        shape: shape of one value.
        pad: value of all other tokens; 0, False or "" by default.
        embed: whether the encoder adds a projection of the values to the
            embeddings of their tokens (ETC paper, section 4.1: OpenKP's visual
            features). Instead of True, a tuple of the inputs to which it is
            added: a global token's value can be added to the long tokens that
            `long_sentence_ids` link to the global token, too. With `()`, only
            the model's heads read the values.
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
        # Embedded values must be vectors. Heads can read single numbers, too.
        rank = len(self.shape)
        if rank > 1 or self.dtype == tf.string or (added_to and not rank):
            raise ValueError(
                f"Value {self.name!r} is <{self.dtype.name}>"
                f"{list(self.shape)}. Expected a vector of numbers for embed, "
                "or also one number for embed=()."
            )
        if self.pad is not None:
            raise ValueError(
                f"Value {self.name!r}: embed needs values padded with 0. Leave "
                "out pad."
            )
        possible = INPUTS if self.source == "global" else ("long",)
        if not {*added_to} <= {*possible}:
            raise ValueError(
                f"Value {self.name!r}: embed is {list(added_to)}. Expected "
                f"inputs from {list(possible)} for source={self.source!r}."
            )

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Shape of one value."""
        return tuple(self.shape)

    @property
    def added_to(self) -> tuple[str, ...] | None:
        """The inputs that the value is added to; None if no model reads it."""
        if isinstance(self.embed, bool):
            return (self.source,) if self.embed else None
        return tuple(self.embed)

    @property
    def kind(self) -> tuple:
        """Attributes that all values of a feature must have in common."""
        return self.source, self.dtype, self.shape, self.pad, self.added_to

    @property
    def padding(self) -> tf.Tensor:
        """The value of all other tokens, `<dtype>[]`."""
        if self.pad is None:
            return tf.zeros([], self.dtype)
        return tf.constant(self.pad, self.dtype)


class LinkFeature(NamedTuple):
    """A link among the inputs of an encoder; see `Link`."""

    name: str
    source: str = "long"
    label: str | None = None
    back_label: str | None = None
    opens_hard_masks: bool = False


class ValueFeature(NamedTuple):
    """Values among the inputs of an encoder; see `Value`."""

    name: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    added_to: tuple[str, ...]


# The link whose feature is one of the EtcFeatures.
DEFAULT_LINK = LinkFeature("l2g_linked_ids")


class EncoderInputs(NamedTuple):
    """Inputs of an encoder besides the EtcFeatures.

    If several links apply to a pair of tokens, the last link wins.
    """

    links: tuple[LinkFeature, ...] = (DEFAULT_LINK,)
    values: tuple[ValueFeature, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Names of the labels and back labels of all links, in order."""
        names = [
            label
            for link in self.links
            for label in (link.label, link.back_label)
            if label is not None
        ]
        return list(dict.fromkeys(names))


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Global tokens for blocks of `size` long tokens, across all sections.

    `long_sentence_ids` link every token to the global token of its block.
    """

    size: int
    global_token: GlobalToken


@dataclasses.dataclass(frozen=True)
class LayoutSpec:
    """The structure of a model's input, for `LayoutEngine` and `build_encoder`.

    Sections follow each other in this order in both inputs. With `blocks`,
    global tokens belong to blocks instead of sections.
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
                raise ValueError(
                    f"{what} must have different names, got {names}."
                )
        by_name = {section.name: section for section in self.sections}
        if all(section.tokens for section in self.sections):
            raise ValueError(
                "A layout needs at least one section without constant tokens. "
                "Add one."
            )
        if [x.cut for x in self.sections].count(WINDOWS) > 1:
            raise ValueError(
                f"Several sections have cut={WINDOWS!r}, expected at most one."
            )
        if self.blocks is not None:
            owners = [x.name for x in self.sections if x.global_tokens]
            if owners or self.blocks.size < 1:
                raise ValueError(
                    "blocks need a size of at least 1, and sections without "
                    f"global tokens. Got the size {self.blocks.size} and "
                    f"sections with global tokens: {owners}."
                )
        for part in (*self.links, *self.values):
            for section, level in _places(part):
                if section not in by_name:
                    raise ValueError(
                        f"{type(part).__name__} {part.name!r}: the section "
                        f"{section!r} does not exist, expected one of "
                        f"{list(by_name)}."
                    )
                if level and level not in by_name[section].global_tokens:
                    raise ValueError(
                        f"{type(part).__name__} {part.name!r}: a {level} of "
                        f"{section!r} has no global token. Set "
                        f"{level}_global."
                    )
            if part.source == "long" and not by_name[part.section].in_long:
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: {part.section!r} "
                    "is not in the long input. Set source='global'."
                )
        # Feature -> its attributes. Links and values cannot have the names of
        # EtcFeatures, except the default link's name.
        features = {x: None for x in FEATURES if x != DEFAULT_LINK.name}
        for part, name, kind in (
            *((x, y.name, y) for x in self.links for y in x.features),
            *((x, x.feature or x.name, x.kind) for x in self.values),
        ):
            if not re.fullmatch(r"\w+", name):
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: the feature "
                    f"name {name!r} may contain only letters, digits and _."
                )
            if features.setdefault(name, kind) != kind:
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: the feature "
                    f"{name!r} already exists with other attributes. Choose "
                    "another name."
                )
            if name == DEFAULT_LINK.name and (
                part.source == "global" or isinstance(part, Value)
            ):
                raise ValueError(
                    f"{type(part).__name__} {part.name!r}: {name} must be a "
                    "link of the long input."
                )

    def index(self, name: str) -> int:
        """Returns the index of a section by name, or raises a `ValueError`."""
        names = [section.name for section in self.sections]
        if name not in names:
            raise ValueError(
                f"The section {name!r} does not exist, expected one of {names}."
            )
        return names.index(name)

    def with_section(self, name: str, **changes: Any) -> "LayoutSpec":
        """Returns a copy with one section changed."""
        sections = list(self.sections)
        index = self.index(name)
        sections[index] = dataclasses.replace(sections[index], **changes)
        return dataclasses.replace(self, sections=sections)

    def with_blocks(self, size: int, token: GlobalToken) -> "LayoutSpec":
        """Returns a copy in which blocks, not sections, have global tokens."""
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
        """The inputs of the encoder besides the EtcFeatures."""
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
    """Returns pairs (section, level) that a link or value refers to.

    The section must have a global token at this level. The level is None if no
    global token is needed.
    """
    own = (part.section, part.level if part.source == "global" else None)
    if isinstance(part, Value):
        return [own]
    return [own, (part.target_section, part.target_level)]


def _check_place(part: Link | Value) -> None:
    """Raises a `ValueError` if the level or source does not exist."""
    for name, value, allowed in (
        ("level", part.level, LEVELS),
        ("source", part.source, INPUTS),
    ):
        if value not in allowed:
            raise ValueError(
                f"{type(part).__name__} {part.name!r}: {name} is {value!r}, "
                f"expected one of {allowed}."
            )
