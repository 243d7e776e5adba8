"""Documents as segments with entity mentions: the input of ReadTwice.

A document is cut into segments of a fixed number of tokens, each of which
begins with the CLS token. Mentions are spans of the text; in a segment they are
spans of tokens. All is graph code.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils.entity_masking import UNKNOWN_ENTITY

_NUM_ENTITIES = 2**31 - 3
_LAYOUT = layout.LayoutSpec(
    sections=(
        layout.Section("cls", cut="keep", tokens=("cls",)),
        layout.Section("text", cut=layout.WINDOWS),
    ),
    values=(layout.Value("is_continuation", "text"),),
)


class Mentions(NamedTuple):
    """Spans of documents.

    Attributes:
        begins: `<int32>[documents, (mentions)]` first byte of each, in order.
        ends: `<int32>[documents, (mentions)]` the byte behind the last.
        labels: `<int32>[documents, (mentions)]` entity of each, 1 for an
            unknown one.
    """

    begins: tf.RaggedTensor
    ends: tf.RaggedTensor
    labels: tf.RaggedTensor


@dataclasses.dataclass(frozen=True)
class SegmentConfig:
    """Sizes of segments.

    Attributes:
        block_length: tokens of a segment, with the CLS.
        max_num_annotations: mentions of a segment; more are left out.
    """

    block_length: int = 512
    max_num_annotations: int = 32

    def __post_init__(self):
        if self.block_length < 2:
            raise ValueError(
                f"block_length is {self.block_length}, expected at least 2: "
                "the CLS and a token of text."
            )
        if self.max_num_annotations < 1:
            raise ValueError(
                f"max_num_annotations is {self.max_num_annotations}, expected "
                "at least 1."
            )


class Segments(NamedTuple):
    """Segments of all documents, one after the other.

    Attributes:
        token_ids: `<int32>[segments, block_length]`, 0 behind the last token.
        is_continuation: `<int32>[segments, block_length]`, 1 for tokens that
            continue a word.
        documents: `<int32>[segments]` index of the document of each.
        block_pos: `<int32>[segments]` its number in the document, from 1.
        annotation_begins: `<int32>[segments, max_num_annotations]` first token
            of each mention.
        annotation_ends: `<int32>[segments, max_num_annotations]` its last.
        annotation_labels: `<int32>[segments, max_num_annotations]` its entity,
            0 for padding.
        mentions_cut: `<int32>[segments]` mentions for which there was no room.
    """

    token_ids: tf.Tensor
    is_continuation: tf.Tensor
    documents: tf.Tensor
    block_pos: tf.Tensor
    annotation_begins: tf.Tensor
    annotation_ends: tf.Tensor
    annotation_labels: tf.Tensor
    mentions_cut: tf.Tensor


def entity_labels(names: tf.Tensor) -> tf.Tensor:
    """Numbers of entities, the same everywhere for the same name.

    Args:
        names: `<string>[...]` ids of entities, such as "Q42"; empty if unknown.

    Returns:
        `<int32>[...]`, 1 for unknown entities, hashes from 2 on for others.
    """
    hashes = tf.strings.to_hash_bucket_fast(names, _NUM_ENTITIES) + 2
    return tf.where(
        tf.equal(names, ""), UNKNOWN_ENTITY, tf.cast(hashes, tf.int32)
    )


def locate_spans(starts, ends, span_begins, span_ends):
    """Tokens that spans of text touch.

    The tokens of "Jan lives in Brno" are at 0-3, 4-9, 10-12 and 13-17. A span
    from 10 to 17 gives the tokens 2 to 3, one from 1 to 2 token 0 to 0, and one
    from 3 to 4, the space, 1 to 0: none.

    Args:
        starts: `<int32>[documents, (tokens)]` first byte of each token.
        ends: `<int32>[documents, (tokens)]` the byte behind the last.
        span_begins: `<int32>[documents, (spans)]`.
        span_ends: `<int32>[documents, (spans)]`, exclusive.

    Returns:
        First and last token of each span, two `<int32>[documents, (spans)]`;
        the last is less than the first if there is none.
    """
    # Bytes are counted through all documents, so that one search does.
    limit = tf.cast(
        tf.maximum(
            tf.reduce_max(tf.concat([[0], ends.values], 0)),
            tf.reduce_max(tf.concat([[0], span_ends.values], 0)),
        ),
        tf.int64,
    )

    def count(ragged):
        """`<int64>[all of the documents]`."""
        row = tf.cast(ragged.value_rowids(), tf.int64)
        return tf.cast(ragged.values, tf.int64) + row * (limit + 1)

    # [spans]
    first = tf.searchsorted(count(ends), count(span_begins), side="right")
    last = tf.searchsorted(count(starts), count(span_ends), side="left") - 1
    base = tf.gather(
        tf.cast(starts.row_starts(), tf.int32), span_begins.value_rowids()
    )
    return (
        span_begins.with_values(first - base),
        span_begins.with_values(last - base),
    )


def cut_into_segments(
    token_ids: tf.RaggedTensor,
    is_continuation: tf.RaggedTensor,
    first_tokens: tf.RaggedTensor,
    last_tokens: tf.RaggedTensor,
    labels: tf.RaggedTensor,
    cls_id: int,
    config: SegmentConfig,
) -> Segments:
    """Cuts documents into segments.

    With segments of 4 tokens, one document of the tokens 11, 12, 13, 14 with a
    mention of the tokens 2 to 3 gives `[[cls, 11, 12, 13], [cls, 14, 0, 0]]`;
    the mention is cut to the segment in which it begins, from 3 to 3.

    Args:
        token_ids: `<int32>[documents, (tokens)]`.
        is_continuation: `<int32>[documents, (tokens)]`.
        first_tokens: `<int32>[documents, (mentions)]`, in order.
        last_tokens: `<int32>[documents, (mentions)]`; less than the first for
            mentions without a token, which are left out.
        labels: `<int32>[documents, (mentions)]`.
        cls_id: the token that each segment begins with.
        config: sizes.

    Returns:
        The segments; none of a document without tokens.
    """
    engine = layout.LayoutEngine(
        _LAYOUT, config.block_length, 0, {"cls": cls_id}
    )
    made = engine(
        {"text": layout.one_segment(token_ids)},
        values={"is_continuation": layout.one_segment(is_continuation)},
    )
    room = config.block_length - 1
    # [documents]
    lengths = tf.cast(token_ids.row_lengths(), tf.int32)
    numbers = -(-lengths // room)
    # A document without tokens has a window, but no segment.
    is_there = made.windows["sizes"].values > 0
    documents = tf.boolean_mask(made.owner, is_there)
    starts = tf.boolean_mask(made.windows["starts"].values, is_there)

    # [mentions]
    document = tf.cast(first_tokens.value_rowids(), tf.int32)
    first, last = first_tokens.values, last_tokens.values
    has_tokens = tf.logical_and(
        last >= first, first < tf.gather(lengths, document)
    )
    document, first, last, label = (
        tf.boolean_mask(x, has_tokens)
        for x in (document, first, last, labels.values)
    )
    begin_of_document = tf.gather(tf.cumsum(numbers, exclusive=True), document)
    segment = first // room
    begins = first - segment * room + 1
    ends = tf.minimum(last - segment * room + 1, room)

    # [segments, (mentions)]
    ragged = tf.RaggedTensor.from_value_rowids(
        begins,
        begin_of_document + segment,
        nrows=tf.cast(tf.size(documents), tf.int32),
        validate=False,
    )

    def table(values):
        """`<int32>[segments, max_num_annotations]`."""
        return ragged.with_values(values).to_tensor(
            shape=[None, config.max_num_annotations]
        )

    return Segments(
        token_ids=tf.boolean_mask(made.features["long_token_ids"], is_there),
        is_continuation=tf.boolean_mask(
            made.values["is_continuation"], is_there
        ),
        documents=documents,
        block_pos=tf.cast(starts // room, tf.int32) + 1,
        annotation_begins=table(begins),
        annotation_ends=table(ends),
        annotation_labels=table(label),
        mentions_cut=tf.maximum(
            tf.cast(ragged.row_lengths(), tf.int32)
            - config.max_num_annotations,
            0,
        ),
    )


class SegmentBuilder(tf.Module):
    """Turns documents into segments with mentions.

    Attributes:
        config: sizes.
        tokenizer: what cuts text into tokens.
    """

    def __init__(self, config: SegmentConfig, tokenizer, name=None):
        """Creates the builder.

        Args:
            config: sizes.
            tokenizer: a tokenizer of `tokenizers`.
            name: name of the module.
        """
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer

    def build(self, texts: tf.Tensor, mentions: Mentions) -> Segments:
        """Builds the segments of a batch of documents.

        Args:
            texts: `<string>[documents]`.
            mentions: their mentions, by bytes of the texts.

        Returns:
            The segments.
        """
        ids, starts, ends = self.tokenizer.tokenize_with_offsets(texts)
        first, last = locate_spans(starts, ends, mentions.begins, mentions.ends)
        return cut_into_segments(
            ids,
            self.tokenizer.is_continuation(ids),
            first,
            last,
            mentions.labels,
            self.tokenizer.special_ids["cls"],
            self.config,
        )
