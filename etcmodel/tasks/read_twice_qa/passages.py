"""Segments of documents, and how documents are divided; graph code."""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows


class Passages(NamedTuple):
    """The segments of all documents, one after the other.

    Attributes:
        token_ids: `<int32>[segments, block_length]`, the question first.
        prefix_length: `<int32>[segments]` how many tokens it takes.
        documents: `<int32>[segments]` index of the document of each.
        parts: `<int32>[segments]` index of the part of the document.
        block_pos: `<int32>[segments]` its number in the document, from 1.
        annotation_begins: `<int32>[segments, mentions]` first token of each
            mention.
        annotation_ends: `<int32>[segments, mentions]` its last.
        annotation_labels: `<int32>[segments, mentions]` its entity, 0 for
            padding.
        token_starts: `<int32>[segments, block_length]` first byte of each token
            in the document, -1 for those of the question and for padding.
        token_ends: `<int32>[segments, block_length]` the byte behind its last.
        word_cuts: `<int32>[segments, block_length]` whether it begins or ends
            inside a word, see `feature_utils.word_cuts`; 0 for padding.
        mentions_cut: `<int32>[segments]` mentions for which there was no room.
        tokens_cut: `<int32>[batch]` tokens of the question for which there was
            none.
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
        """The segments of one document.

        Args:
            index: which document of the batch.

        Returns:
            The same of it alone. Eager, or of arrays.
        """
        rows = self.documents == index
        *segments_, tokens_cut = self
        return Passages(
            *(x[rows] for x in segments_), tokens_cut[index : index + 1]
        )


class Parts(NamedTuple):
    """The parts of documents that have segments of their own, tokenized.

    Attributes:
        numbers: `<int32>[documents, (parts)]` number of each part.
        offsets: `<int32>[parts]` first byte of the part in its document.
        token_ids: `<int32>[parts, (tokens)]`.
        is_continuation: `<int32>[parts, (tokens)]`.
        starts: `<int32>[parts, (tokens)]` first byte of each token in the
            document.
        ends: `<int32>[parts, (tokens)]` the byte behind its last.
        cuts: `<int32>[parts, (tokens)]` see `word_cuts`.
        mention_begins: `<int32>[parts, (mentions)]` first token of each.
        mention_ends: `<int32>[parts, (mentions)]` its last token.
        mention_labels: `<int32>[parts, (mentions)]` its entity.
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
        """Repeats parts for questions about the same document.

        Args:
            documents: `<int32>[questions]` index of each question's document.

        Returns:
            The same for a document of each question.
        """
        numbers = tf.gather(self.numbers, documents)
        _, *values = self
        return Parts(
            numbers.with_values(tf.range(tf.size(numbers.values))),
            *(tf.gather(x, numbers.values) for x in values),
        )


def skip_space(
    texts: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Where tokens start without the white space before them; graph code.

    That is a part of SentencePiece's tokens. Example: of the text "in  Brno"
    the tokens from 0 to 2 and from 2 to 8 start at 0 and 4.

    Args:
        texts: `<string>[texts]`.
        starts: `<int32>[texts, (tokens)]` first byte of each token.
        ends: `<int32>[texts, (tokens)]` the byte behind its last.

    Returns:
        `<int32>[texts, (tokens)]`, at most the end: of a token of nothing else.
    """
    # Bytes are counted through all texts.
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


def part_size(number, most: int):
    """How long the parts are that a document is read in; also graph code.

    They are few and equal, but for the last one. Example: 10 segments of which
    4 can be read together are those from 0 to 4, from 4 to 8 and from 8 to 10;
    6 are two parts of 3.

    Args:
        number: how many segments there are, at least 1; `<int>[...]`.
        most: how many can be read together.

    Returns:
        How many segments a part has, `<int>[...]`.
    """
    return -(-number // -(-number // most))


def number_blocks(
    documents: tf.Tensor, block_pos: tf.Tensor, most: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Divides documents into parts that can be read together; graph code.

    Example: with at most 2 segments, a document of 3 and one of 1 have the
    parts `[1, 1, 2, 3]`, and their segments the numbers `[1, 2, 1, 1]`.

    Args:
        documents: `<int32>[segments]`, ascending.
        block_pos: `<int32>[segments]` number in the document, from 1.
        most: the most segments of a part.

    Returns:
        `block_ids` `<int32>[segments]` the part of each, from 1, and
        `block_pos` `<int32>[segments]` its number there, from 1. See
        `part_size`.
    """
    # [segments]
    number = tf.gather(tf.math.segment_max(block_pos, documents), documents)
    own_pos = (block_pos - 1) % part_size(number, most) + 1
    return tf.cumsum(tf.cast(tf.equal(own_pos, 1), tf.int32)), own_pos
