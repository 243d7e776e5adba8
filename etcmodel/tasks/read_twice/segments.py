"""Splits documents into segments with entity mentions; graph code.

A document is cut into segments of a fixed number of tokens. Each segment starts
with the same tokens: the CLS token, or the CLS and a question. Segments may
overlap. Mentions are given as spans of the text and returned as spans of tokens
in a segment.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.entity_masking import UNKNOWN_ENTITY
from etcmodel.tasks.read_twice import mention_selection

_NUM_ENTITIES = 2**31 - 3


class Mentions(NamedTuple):
    """The mentions in documents, in order: `<int32>[documents, (mentions)]`.

    Begins and exclusive ends are bytes; labels are entities, 1 if unknown.
    """

    begins: tf.RaggedTensor
    ends: tf.RaggedTensor
    labels: tf.RaggedTensor


@dataclasses.dataclass(frozen=True)
class SegmentConfig:
    """Sizes of segments.

    Fields of type `int` are at least 1, or the `min_value` of their metadata.

    Attributes:
        block_length: number of tokens of a segment: the CLS and at least one
            token of text.
        max_num_annotations: maximum number of mentions of a segment. Mentions
            of different entities are kept, spread over the segment, before
            repeated ones.
    """

    block_length: int = dataclasses.field(
        default=512, metadata={"min_value": 2}
    )
    max_num_annotations: int = 32

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            min_value = field.metadata.get("min_value", 1)
            if field.type is int and value < min_value:
                raise ValueError(
                    f"{field.name} is {value}, expected at least {min_value}."
                )


class Segments(NamedTuple):
    """Segments of all documents, in order.

    Attributes:
        token_ids: `<int32>[segments, block_length]`, 0 after the last token.
        is_continuation: same shape, 1 for tokens that continue a word.
        documents: `<int32>[segments]`, index of each segment's document.
        block_pos: `<int32>[segments]`, its position in the document, from 1.
        annotation_begins: `<int32>[segments, max_num_annotations]`, first token
            of each mention.
        annotation_ends: same shape, the mention's last token.
        annotation_labels: same shape, the mention's entity, 0 for padding.
        mentions_cut: `<int32>[segments]`, number of mentions that did not fit.
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
    """Hashes the names of entities; equal names always get equal labels.

    Maps names or ids such as "Q42", `<string>[...]`, to `<int32>[...]`: 1 for
    "", hashes from 2 on for others.
    """
    hashes = tf.strings.to_hash_bucket_fast(names, _NUM_ENTITIES) + 2
    return tf.where(
        tf.equal(names, ""), UNKNOWN_ENTITY, tf.cast(hashes, tf.int32)
    )


def locate_spans(starts, ends, span_begins, span_ends):
    """Finds the first and last token of each span; last < first if none.

    All are `<int32>[documents, (tokens)]` or `[documents, (spans)]`, in bytes;
    ends are exclusive. Example: the tokens of "Jan lives in Brno" are at 0-3,
    4-9, 10-12 and 13-17. The span 10-17 gives the tokens 2 to 3, the span 1-2
    the tokens 0 to 0, and the span 3-4, a space, 1 to 0, which is none.
    """
    # Bytes are counted across all documents, for a single search.
    limit = tf.cast(
        tf.maximum(
            tf.reduce_max(tf.concat([[0], ends.values], 0)),
            tf.reduce_max(tf.concat([[0], span_ends.values], 0)),
        ),
        tf.int64,
    )

    def count(ragged):
        """Makes bytes unique across documents, `<int64>[all values]`."""
        row = ragged_rows.owners_in(ragged)
        return tf.cast(ragged.values, tf.int64) + row * (limit + 1)

    # [spans]
    first = tf.searchsorted(count(ends), count(span_begins), side="right")
    last = tf.searchsorted(count(starts), count(span_ends), side="left") - 1
    base = tf.gather(
        tf.cast(starts.row_starts(), tf.int32),
        ragged_rows.owners_in(span_begins),
    )
    return (
        span_begins.with_values(first - base),
        span_begins.with_values(last - base),
    )


class Windows(NamedTuple):
    """Each segment's text number, first token and end, `<int32>[segments]`."""

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


def find_windows(
    is_continuation: tf.RaggedTensor, room: tf.Tensor, overlap: int = 0
) -> Windows:
    """Cuts texts into windows that may overlap; empty texts give no windows.

    A window of `room` tokens (`<int32>[texts]`) starts with the last `overlap`
    tokens of the previous one, or fewer, so that it starts with a whole word.
    Example: in a text of 8 tokens, the first four are one word. With room for 5
    and an overlap of 3, its windows are from 0 to 5 and from 4 to 8.
    """
    # Tokens are counted across all texts.
    offsets = tf.cast(is_continuation.row_starts(), tf.int32)
    limits = tf.cast(is_continuation.row_limits(), tf.int32)
    (word_starts,) = tf.unstack(
        tf.where(tf.equal(is_continuation.values, 0)), axis=1
    )
    # [words + 1], the last one after all tokens
    word_starts = tf.concat(
        [
            tf.cast(word_starts, tf.int32),
            tf.fill([1], tf.shape(is_continuation.values)[0]),
        ],
        axis=0,
    )

    def next_starts(starts, ends):
        """Returns the start of the next windows, `<int32>[texts]`."""
        shared = tf.maximum(ends - overlap, starts)
        next_word = tf.gather(word_starts, tf.searchsorted(word_starts, shared))
        return tf.minimum(next_word, ends)

    def step(number, starts, ends, all_starts, all_ends):
        all_starts = all_starts.write(number, starts)
        all_ends = all_ends.write(number, ends)
        starts = next_starts(starts, ends)
        # Texts that have ended get empty windows.
        starts = tf.where(ends < limits, starts, limits)
        return (
            number + 1,
            starts,
            tf.minimum(starts + room, limits),
            all_starts,
            all_ends,
        )

    # Runs at least once, so that the arrays have the number of texts.
    number, _, _, all_starts, all_ends = tf.while_loop(
        lambda number, starts, *_: (
            tf.equal(number, 0) | tf.reduce_any(starts < limits)
        ),
        step,
        (
            0,
            offsets,
            tf.minimum(offsets + room, limits),
            *(
                tf.TensorArray(
                    tf.int32, 0, dynamic_size=True, element_shape=[None]
                )
                for _ in range(2)
            ),
        ),
        parallel_iterations=1,
    )
    shape = [number, tf.shape(offsets)[0]]
    # [texts, windows]
    starts = tf.transpose(tf.reshape(all_starts.stack(), shape))
    ends = tf.transpose(tf.reshape(all_ends.stack(), shape))
    # [segments, 2]
    places = tf.where(starts < ends)
    texts = tf.cast(places[:, 0], tf.int32)
    offset = tf.gather(offsets, texts)
    return Windows(
        texts,
        tf.gather_nd(starts, places) - offset,
        tf.gather_nd(ends, places) - offset,
    )


def lay_out_tokens(
    values: tf.RaggedTensor,
    windows: Windows,
    prefixes: tf.RaggedTensor,
    length: int,
    fill: int = 0,
) -> tf.Tensor:
    """Lays out values of segments' tokens, `<int32>[segments, length]`.

    `values` belong to the texts' tokens, `prefixes` precede them in each
    segment, both `<int32>[texts, (tokens)]`; `fill` pads the end.
    """
    offsets = tf.gather(tf.cast(values.row_starts(), tf.int32), windows.texts)
    # [segments, (tokens)]
    places = tf.ragged.range(offsets + windows.starts, offsets + windows.ends)
    own = places.with_values(tf.gather(values.values, places.values))
    return tf.concat(
        [
            tf.gather(prefixes, windows.texts),
            own.with_row_splits_dtype(prefixes.row_splits.dtype),
        ],
        axis=1,
    ).to_tensor(fill, shape=[None, length])


def lay_out_mentions(
    first_tokens: tf.RaggedTensor,
    last_tokens: tf.RaggedTensor,
    labels: tf.RaggedTensor,
    windows: Windows,
    shift: tf.Tensor,
    max_mentions: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Lays out the mentions that begin in each segment.

    `first_tokens` (in order), `last_tokens` and `labels` are `<int32>[texts,
    (mentions)]`. Mentions without a token (last < first) are left out; mentions
    that extend beyond their segment are cut. `shift`, `<int32>[segments]`, is
    the number of tokens before a segment's own. If a segment has more than
    `max_mentions`, `mention_selection` selects some.

    Returns:
        First token, last token and label (0 for padding) of each mention,
        `<int32>[segments, max_mentions]`, and the number of mentions that
        did not fit, `<int32>[segments]`.
    """
    has_tokens = last_tokens.values >= first_tokens.values
    text, first, last, label = (
        tf.boolean_mask(x, has_tokens)
        for x in (
            ragged_rows.owners_in(first_tokens),
            first_tokens.values,
            last_tokens.values,
            labels.values,
        )
    )
    # Tokens are counted across all texts, for a single search.
    size = tf.cast(
        tf.reduce_max(tf.concat([[0], first, windows.ends], 0)), tf.int64
    )

    def count(texts, tokens):
        return tf.cast(texts, tf.int64) * (size + 1) + tf.cast(tokens, tf.int64)

    places = count(text, first)
    # [segments, (mentions)]
    found = tf.ragged.range(
        tf.searchsorted(places, count(windows.texts, windows.starts)),
        tf.searchsorted(places, count(windows.texts, windows.ends)),
    )
    num_found = tf.cast(found.row_lengths(), tf.int32)
    selected = mention_selection.select_mentions(
        found.with_values(tf.gather(label, found.values)), max_mentions
    )
    found = ragged_rows.keep(found, selected.values)
    segment = ragged_rows.owners_in(found)
    shift = shift - windows.starts

    def table(values):
        """Pads values: `<int32>[segments, max_mentions]`."""
        return found.with_values(values).to_tensor(shape=[None, max_mentions])

    return (
        table(tf.gather(first, found.values) + tf.gather(shift, segment)),
        table(
            tf.minimum(
                tf.gather(last, found.values),
                tf.gather(windows.ends, segment) - 1,
            )
            + tf.gather(shift, segment)
        ),
        table(tf.gather(label, found.values)),
        tf.maximum(num_found - max_mentions, 0),
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
    """Cuts documents into segments; a document without tokens has none.

    Tokens are `<int32>[documents, (tokens)]`, mentions as for
    `lay_out_mentions`. Example: with segments of 4 tokens, the tokens 11, 12,
    13, 14 with a mention of the tokens 2 to 3 give `[[cls, 11, 12, 13],
    [cls, 14, 0, 0]]`; the mention is cut to the segment in which it begins,
    from 3 to 3.
    """
    room = config.block_length - 1
    # [documents, 1]
    ones = tf.RaggedTensor.from_uniform_row_length(
        tf.ones([token_ids.nrows()], tf.int32), 1
    )
    windows = find_windows(is_continuation, room * ones.values)
    begins, ends, labels, cut = lay_out_mentions(
        first_tokens,
        last_tokens,
        labels,
        windows,
        tf.ones_like(windows.texts),
        config.max_num_annotations,
    )
    return Segments(
        token_ids=lay_out_tokens(
            token_ids, windows, cls_id * ones, config.block_length
        ),
        is_continuation=lay_out_tokens(
            is_continuation, windows, 0 * ones, config.block_length
        ),
        documents=windows.texts,
        block_pos=windows.starts // room + 1,
        annotation_begins=begins,
        annotation_ends=ends,
        annotation_labels=labels,
        mentions_cut=cut,
    )


class SegmentBuilder(tf.Module):
    """Turns documents into segments with mentions."""

    def __init__(self, config: SegmentConfig, tokenizer, name=None):
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer

    def build(self, texts: tf.Tensor, mentions: Mentions) -> Segments:
        """Builds the segments of `<string>[documents]` and their mentions."""
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
