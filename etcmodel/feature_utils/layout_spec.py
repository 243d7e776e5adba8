"""What a layout is made of: sections, links, and how to lift their content.

See `layout.py` for what is made of them.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.feature_utils import layout_units

CUTS = {
    "keep": layout_units.cut_keep,
    "tail": layout_units.cut_tail,
    "fit": layout_units.cut_fit,
    "balanced": layout_units.cut_balanced,
}
LEVELS = ("group", "segment", "token")


@dataclasses.dataclass(frozen=True)
class GlobalToken:
    """The global token that every unit of a level gets.

    Attributes:
        token_id: its token id.
        token_type_id: its token type.
    """

    token_id: int
    token_type_id: int = 0


@dataclasses.dataclass(frozen=True)
class Section:
    """What is done with one kind of content.

    Attributes:
        name: name of the content.
        token_type_id: token type of its tokens in the long input.
        first_segment_token_type_id: that of the first segment of every group,
            such as a title, where it is another.
        group_global: global token of every group, None for none.
        segment_global: global token of every segment, None for none.
        token_global: global token of every token, None for none.
        in_long: whether the tokens are in the long input.
        link_sentences: whether `long_sentence_ids` tie a token to its own
            global token or else to its segment's.
        link_paragraphs: whether `long_paragraph_ids` tie it to its group's.
        breaks: whether every group ends a paragraph, in both inputs: local
            attention stops there. The last token of an input always does.
        cut: what gives way when the budget is full: with "keep" tokens from
            the end of the section, with "tail" whole segments from the end,
            with "fit" those segments for which there is no room, with
            "balanced" the last segment of the group that has the most. With
            "tail" and "balanced", a segment longer than the whole budget of
            the section is cropped to it beforehand.
        priority: sections of a lower number take from the budget first, among
            equals the earlier one. By default 0 for "keep", otherwise 1.
        max_segments: the most segments of a record.
        max_tokens: the most tokens of a record.
    """

    name: str
    token_type_id: int = 0
    first_segment_token_type_id: int | None = None
    group_global: GlobalToken | None = None
    segment_global: GlobalToken | None = None
    token_global: GlobalToken | None = None
    in_long: bool = True
    link_sentences: bool = True
    link_paragraphs: bool = True
    breaks: bool = True
    cut: str = "tail"
    priority: int | None = None
    max_segments: int | None = None
    max_tokens: int | None = None

    def __post_init__(self):
        if self.cut not in CUTS:
            raise ValueError(
                f"Section {self.name!r}: cut={self.cut!r}, expected one of "
                f"{sorted(CUTS)}."
            )
        if not self.in_long and self.max_tokens is not None:
            raise ValueError(
                f"Section {self.name!r}: max_tokens limits tokens of the long "
                "input, in which the section is not."
            )

    @property
    def costs(self) -> layout_units.Costs:
        """What a unit of each level takes from the budgets."""
        return layout_units.Costs(
            token_long=int(self.in_long),
            token_global=int(self.token_global is not None),
            segment_global=int(self.segment_global is not None),
            group_global=int(self.group_global is not None),
        )

    @property
    def rank(self) -> int:
        """The priority that holds."""
        if self.priority is not None:
            return self.priority
        return 0 if self.cut == "keep" else 1


@dataclasses.dataclass(frozen=True)
class Link:
    """Ties any long tokens to any global tokens, such as mentions.

    Attributes:
        section: name of the section whose tokens are tied.
        targets: for every token of that section, before any cutting, which
            unit of the target section it is tied to: the unit's index within
            the record (segments are counted through all groups), or -1.
            <int>[batch, (groups), (segments), (tokens)].
        target_section: name of the section with the global tokens.
        target_level: "group", "segment" or "token".
        feature: the feature that gets the index of the global token. Where
            two links hold for a token, the later one wins.

    Raises:
        ValueError: the target level is unknown.
    """

    section: str
    targets: tf.RaggedTensor
    target_section: str
    target_level: str = "segment"
    feature: str = "l2g_linked_ids"

    def __post_init__(self):
        if self.target_level not in LEVELS:
            raise ValueError(
                f"A link's target_level is {self.target_level!r}, expected "
                f"one of {LEVELS}."
            )


def one_segment(tokens: tf.RaggedTensor) -> tf.RaggedTensor:
    """One group of one segment: a question.

    Example: `[[7, 8], []]` gives `[[[[7, 8]]], [[[]]]]`.

    Args:
        tokens: <int>[batch, (tokens)].

    Returns:
        <int>[batch, (1), (1), (tokens)].
    """
    return one_group(_nest(tokens))


def one_group(segments: tf.RaggedTensor) -> tf.RaggedTensor:
    """One group of segments: the sentences of a text.

    Example: `[[[7, 8], [9]]]` gives `[[[[7, 8], [9]]]]`.

    Args:
        segments: <int>[batch, (segments), (tokens)].

    Returns:
        <int>[batch, (1), (segments), (tokens)].
    """
    return _nest(segments)


def groups_of_one(segments: tf.RaggedTensor) -> tf.RaggedTensor:
    """Groups of one segment each: candidate answers.

    Example: `[[[7, 8], [9]]]` gives `[[[[7, 8]], [[9]]]]`.

    Args:
        segments: <int>[batch, (groups), (tokens)].

    Returns:
        <int>[batch, (groups), (1), (tokens)].
    """
    segments = segments.with_row_splits_dtype(tf.int64)
    return segments.with_values(_nest(segments.values))


def constant_tokens(token_ids: Sequence[int], batch: tf.Tensor):
    """The same tokens for every record: a [CLS].

    Args:
        token_ids: the ids.
        batch: <int>[], number of records.

    Returns:
        <int32>[batch, (tokens)]: lift it with `one_segment`.
    """
    ids = tf.constant(token_ids, tf.int32)
    # [batch, tokens]
    tokens = tf.tile(ids[tf.newaxis], [batch, 1])
    return tf.RaggedTensor.from_tensor(tokens, row_splits_dtype=tf.int64)


def _nest(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
    """Makes a row of its own of everything in the first dimension."""
    ragged = ragged.with_row_splits_dtype(tf.int64)
    splits = tf.range(ragged.nrows() + 1)
    return tf.RaggedTensor.from_row_splits(ragged, splits, validate=False)
