"""Stores segments of documents, and divides long documents into parts."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import ragged_rows


class Passages(NamedTuple):
    """The segments of all documents, in order.

    Fields are `<int32>`: `[segments, block_length]` for tokens,
    `[segments, mentions]` for annotations, otherwise `[segments]`.

    Attributes:
        token_ids: ids of the tokens; the question comes first.
        prefix_length: number of tokens of the question.
        documents: index of the segment's document.
        parts: index of the segment's part of the document.
        block_pos: position of the segment in the document, from 1.
        annotation_begins: first token of each mention.
        annotation_ends: its last token.
        annotation_labels: its entity, 0 for padding.
        token_starts: first byte of each token in the document, -1 for the
            question and padding.
        token_ends: its exclusive end.
        word_cuts: see `feature_utils.text.word_cuts`; 0 for padding.
        mentions_cut: number of mentions that did not fit.
        tokens_cut: `[batch]`, number of tokens of the question that were cut.
    """

    token_ids: tf.Tensor
    prefix_length: tf.Tensor
    documents: tf.Tensor
    parts: tf.Tensor
    block_pos: tf.Tensor
    annotation_begins: tf.Tensor
    annotation_ends: tf.Tensor
    annotation_labels: tf.Tensor
    token_starts: tf.Tensor
    token_ends: tf.Tensor
    word_cuts: tf.Tensor
    mentions_cut: tf.Tensor
    tokens_cut: tf.Tensor

    def of_document(self, index: int) -> "Passages":
        """Returns the segments of one document; not for graph code."""
        rows = self.documents == index
        *segments_, tokens_cut = self
        return Passages(
            *(x[rows] for x in segments_), tokens_cut[index : index + 1]
        )


class Parts(NamedTuple):
    """Tokenized parts of documents; no segment crosses two parts.

    Fields are `<int32>[parts, (tokens)]` or `[parts, (mentions)]`.

    Attributes:
        numbers: `<int32>[documents, (parts)]` number of each part.
        token_ids: ids of the tokens.
        is_continuation: whether a token continues a word.
        starts: first byte of each token in the document.
        ends: its exclusive end.
        cuts: see `word_cuts`.
        mention_begins: first token of each mention.
        mention_ends: its last token.
        mention_labels: its entity.
    """

    numbers: tf.RaggedTensor
    token_ids: tf.RaggedTensor
    is_continuation: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    cuts: tf.RaggedTensor
    mention_begins: tf.RaggedTensor
    mention_ends: tf.RaggedTensor
    mention_labels: tf.RaggedTensor

    def of_questions(self, documents: tf.Tensor) -> "Parts":
        """Gathers the parts of questions' documents, `<int32>[questions]`."""
        numbers = tf.gather(self.numbers, documents)
        _, *values = self
        return Parts(
            numbers.with_values(tf.range(tf.size(numbers.values))),
            *(tf.gather(x, numbers.values) for x in values),
        )


def skip_space(
    texts: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Moves the start of each token past leading white space; graph code.

    SentencePiece's tokens include the space before a word. The start of a token
    of only white space is its end. Example: in the text "in  Brno", the tokens
    from 0 to 2 and from 2 to 8 get the starts 0 and 4.

    Args:
        texts: `<string>[texts]`.
        starts: `<int32>[texts, (tokens)]` first byte of each token.
        ends: same shape, the exclusive end of each token.
    """
    # Bytes are counted across all texts.
    data = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    lengths = tf.strings.length(texts)
    offsets = tf.gather(
        tf.cumsum(lengths, exclusive=True), ragged_rows.owners_in(starts)
    )
    # [bytes of words]
    places = tf.cast(tf.where(data > ord(" "))[:, 0], tf.int32)
    places = tf.concat([places, [tf.size(data)]], axis=0)
    moved = tf.gather(places, tf.searchsorted(places, starts.values + offsets))
    return starts.with_values(tf.minimum(moved - offsets, ends.values))


def part_size(number, max_size: int):
    """Returns how many segments each part of a document has.

    There are as few parts as possible, all equal except the last one. Example:
    with at most 4 segments per part, 10 segments have parts of 4, 4 and 2, and
    6 segments have two parts of 3. `number` may be a tensor, `<int>[...]`.
    """
    return -(-number // -(-number // max_size))


def count_documents(block_pos: tf.Tensor) -> tf.Tensor:
    """Counts the documents that start up to each segment; graph code.

    Example: positions `[1, 2, 1, 1, 2]` give `[1, 1, 2, 3, 3]`.
    """
    return tf.cumsum(tf.cast(tf.equal(block_pos, 1), tf.int32))


def number_blocks(
    documents: tf.Tensor, block_pos: tf.Tensor, max_size: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Divides documents into parts that can be read together; graph code.

    Example: with at most 2 segments per part, the segments of a document of 3
    and a document of 1 are in the parts `[1, 1, 2, 3]`, numbered
    `[1, 2, 1, 1]`.

    Args:
        documents: `<int32>[segments]`, ascending.
        block_pos: `<int32>[segments]` position in the document, from 1.
        max_size: maximum number of segments of a part.

    Returns:
        The part of each segment and its position in the part, from 1,
        `<int32>[segments]`.
    """
    # [segments]
    number = tf.gather(tf.math.segment_max(block_pos, documents), documents)
    own_pos = (block_pos - 1) % part_size(number, max_size) + 1
    return count_documents(own_pos), own_pos


def part_of_document(
    document: bytes,
    token_starts: np.ndarray,
    token_ends: np.ndarray,
    first: int,
    number: int,
) -> dict[str, Any]:
    """Returns the text of some segments of a document, and its first byte.

    The part extends to the start of the next segments, or farther if they
    overlap. The first part starts at byte 0; the last one ends with the
    document. Example: the first two segments of `b" Jan. Eve."` have the tokens
    `Jan` and `.` (bytes 1 to 5), the third one has `Eve`. The part of the first
    two is bytes 0 to 6, the part of the third is bytes 6 to 10.

    Args:
        document: the text in UTF-8.
        token_starts: first byte of each token, -1 for those of the question and
            padding, `<int>[segments, length]`.
        token_ends: exclusive ends of the tokens, same shape.
        first: number of the first segment.
        number: number of segments.
    """

    def begin(segment):
        starts = token_starts[segment : segment + number]
        starts = starts[starts >= 0]
        return int(starts.min()) if starts.size else len(document)

    start = begin(first) if first else 0
    end = len(document)
    if first + number < len(token_starts):
        own = token_ends[first : first + number]
        end = max(begin(first + number), int(own.max(initial=0)))
    return {"document": document[start:end], "document_start": start}


def merge_documents(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins parts of a document, given in any order; see `part_of_document`.

    Example: `b"Jan. "` from 0 and `b"Eve."` from 5 give `b"Jan. Eve."`.
    """
    document = b""
    for part in sorted(parts, key=lambda x: x["document_start"]):
        document = document[: part["document_start"]] + part["document"]
    return {"document": document, "document_start": 0}
