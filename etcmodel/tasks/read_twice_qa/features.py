"""A question and a document to segments, and where answers stand in them."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import tensorflow as tf

from etcmodel.datasets.answer_spans import Occurrence
from etcmodel.datasets.answer_spans import find_answers
from etcmodel.datasets.narrativeqa import oracle
from etcmodel.datasets.narrativeqa import records as narrativeqa
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils import segments
from etcmodel.feature_utils.text import mention_finder
from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text import word_cuts
from etcmodel.pipeline import example_schema
from etcmodel.pipeline import preprocessor

# Between the parts of a document that have segments of their own.
PART_SEPARATOR = "\n\n"
# Answer types, as numbered in records and in `option_logits`.
OPTIONS = ("span", "yes", "no")


@dataclasses.dataclass(frozen=True)
class QuestionFeatureConfig(segments.SegmentConfig):
    """Sizes; the defaults are the paper's.

    Attributes:
        block_overlap: the most tokens of the document that a segment shares
            with the one before it.
        max_question_length: the most tokens of a question.
        num_blocks_per_example: segments of an example: the most that are read
            together. A longer document is divided.
    """

    block_overlap: int = dataclasses.field(
        default=128, metadata={"min_value": 0}
    )
    max_question_length: int = 128
    num_blocks_per_example: int = 128

    def __post_init__(self):
        super().__post_init__()
        # The CLS, the separator, and one token that is new.
        needed = self.max_question_length + self.block_overlap + 3
        if self.block_length < needed:
            raise ValueError(
                f"block_length is {self.block_length}, but a question of "
                f"max_question_length={self.max_question_length} tokens and "
                f"block_overlap={self.block_overlap} need {needed}."
            )


@dataclasses.dataclass(frozen=True)
class NarrativeQAFeatureConfig(QuestionFeatureConfig):
    """Sizes for NarrativeQA.

    Attributes:
        data_split: questions of which set are read: "train", "valid", "test"
            or "all".
        min_rouge_l_oracle_score: the least ROUGE-L, from 0 to 1, that a span
            has with an answer that it is to be learned as.
    """

    data_split: str = "all"
    min_rouge_l_oracle_score: float = 0.35

    def __post_init__(self):
        super().__post_init__()
        if self.data_split not in narrativeqa.SETS:
            raise ValueError(
                f"data_split is {self.data_split!r}, expected one of "
                f"{', '.join(narrativeqa.SETS)}."
            )
        if not 0 <= self.min_rouge_l_oracle_score <= 1:
            raise ValueError(
                "min_rouge_l_oracle_score is "
                f"{self.min_rouge_l_oracle_score}, expected 0 to 1."
            )


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


class QuestionBuilder(tf.Module):
    """Turns questions and documents into segments; graph code.

    The same code for preprocessing and for serving.

    Attributes:
        INPUTS: the raw inputs: name -> `RawInput`.
        REQUEST: a small request of one record.
        SCHEMA: the fields of stored examples that are texts.
        PARTS: whether parts of a document, with an empty line between them,
            have segments of their own.
        SENTENCE_CASE: whether answers may begin with a capital that tells
            nothing; see `find_answers`.
        config: the sizes.
        tokenizer: the tokenizer.
    """

    INPUTS: ClassVar[Mapping[str, preprocessor.RawInput]] = {
        "question": preprocessor.RawInput(tf.string, ("records",)),
        "document": preprocessor.RawInput(tf.string, ("records",)),
    }
    REQUEST: ClassVar[Mapping[str, Any]] = {
        "question": ["Who lives in Brno?"],
        "document": ["Jan Novak lives in Brno."],
    }
    SCHEMA = example_schema.Schema(
        document=example_schema.Field("one", example_schema.TEXT, tf.string)
    )
    PARTS: ClassVar[bool] = False
    SENTENCE_CASE: ClassVar[bool] = True

    def __init__(
        self, config: QuestionFeatureConfig, tokenizer, name: str | None = None
    ):
        """Creates the builder.

        Args:
            config: the sizes.
            tokenizer: the tokenizer; it is exported along.
            name: name of the module.
        """
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer

    @preprocessor.builds_features
    def build(self, question: tf.Tensor, document: tf.Tensor) -> Passages:
        """Builds the segments of a batch.

        Args:
            question: `<string>[batch]`.
            document: `<string>[batch]`.

        Returns:
            The segments; none of a document without tokens.

        Raises:
            tf.errors.InvalidArgumentError: when run, if the inputs do not fit
                together; see `builds_features`.
        """
        config, special = self.config, self.tokenizer.special_ids
        document = tokenizers.sanitize(document)
        # [batch, (tokens)]
        whole_ids = self.tokenizer.tokenize(question)
        question_ids = whole_ids[:, : config.max_question_length]
        one = tf.ones([question_ids.nrows(), 1], tf.int32)
        prefixes = tf.concat(
            [special["cls"] * one, question_ids, special["separator"] * one], 1
        )
        if self.PARTS:
            # [batch, (parts)]
            texts = tf.strings.split(document, PART_SEPARATOR)
            sizes = texts.with_values(
                tf.strings.length(texts.values) + len(PART_SEPARATOR)
            )
            offsets = tf.cumsum(sizes.values, exclusive=True) - tf.gather(
                tf.cumsum(tf.reduce_sum(sizes, axis=1), exclusive=True),
                ragged_rows.owners_in(sizes),
            )
            of_part = tf.cast(ragged_rows.owners_in(texts), tf.int32)
            first_parts = tf.cast(texts.row_starts(), tf.int32)
            texts = texts.values
        else:
            texts, of_part = document, tf.range(tf.size(document))
            offsets, first_parts = tf.zeros_like(of_part), of_part
        # [parts, (tokens)]
        prefixes = tf.gather(prefixes, of_part)
        ids, starts, ends = self.tokenizer.tokenize_with_offsets(texts)
        if self.tokenizer.kind == "sentencepiece":
            starts = skip_space(texts, starts, ends)
        lengths = tf.cast(prefixes.row_lengths(), tf.int32)
        windows = segments.find_windows(
            tf.cast(self.tokenizer.is_continuation(ids), tf.int32),
            config.block_length - lengths,
            config.block_overlap,
        )
        mentions = mention_finder.find_mentions(texts)
        first_tokens, last_tokens = segments.locate_spans(
            starts, ends, mentions.begins, mentions.ends
        )
        prefix_length = tf.gather(lengths, windows.texts)
        *annotations, mentions_cut = segments.lay_out_mentions(
            first_tokens,
            last_tokens,
            mentions.labels,
            windows,
            prefix_length,
            config.max_num_annotations,
        )
        nowhere = prefixes.with_values(-tf.ones_like(prefixes.values))
        # [segments]
        documents = tf.gather(of_part, windows.texts)
        firsts = tf.searchsorted(documents, tf.range(tf.size(document)))
        return Passages(
            segments.lay_out_tokens(
                ids, windows, prefixes, config.block_length
            ),
            prefix_length,
            documents,
            windows.texts - tf.gather(first_parts, documents),
            1 + tf.range(tf.size(documents)) - tf.gather(firsts, documents),
            *annotations,
            *(
                segments.lay_out_tokens(
                    x.with_values(
                        x.values + tf.gather(offsets, ragged_rows.owners_in(x))
                    ),
                    windows,
                    nowhere,
                    config.block_length,
                    fill=-1,
                )
                for x in (starts, ends)
            ),
            segments.lay_out_tokens(
                word_cuts.find_word_cuts(self.tokenizer, ids),
                windows,
                prefixes.with_values(tf.zeros_like(prefixes.values)),
                config.block_length,
            ),
            mentions_cut,
            tf.cast(
                whole_ids.row_lengths() - question_ids.row_lengths(), tf.int32
            ),
        )

    @staticmethod
    def texts(document: tf.Tensor) -> dict[str, tf.Tensor]:
        """What answers are cut from; graph code.

        Args:
            document: `<string>[batch]`.

        Returns:
            The schema's text.
        """
        return {"document": tokenizers.sanitize(document)}

    @staticmethod
    def raw(record: Any) -> Mapping[str, Any]:
        """A record as `INPUTS`."""
        return {"question": record.question, "document": record.text}

    def find(self, record: Any) -> list[Occurrence]:
        """What is learned: the places of a text where an answer stands.

        Args:
            record: the record, with its answers.

        Returns:
            The places, in order, each once.
        """
        return find_answers([record.text], record.answers, self.SENTENCE_CASE)

    def option(self, record: Any) -> tuple[int, Sequence[int] | None]:
        """The type of the answer, and the parts that tell it.

        Args:
            record: the record, with its answers.

        Returns:
            Its number in `OPTIONS`, and the indices of the parts; None for all
            of them.
        """
        del record
        return 0, None


class HotpotQABuilder(QuestionBuilder):
    """Every paragraph has segments of its own; answers may be yes or no."""

    PARTS = True
    # Answers are copied from the text.
    SENTENCE_CASE = False

    def option(self, record):
        """See `QuestionBuilder`."""
        # As in the official baseline, whatever their case.
        answer = record.answers[0].strip().lower()
        number = OPTIONS.index(answer) if answer in OPTIONS[1:] else 0
        return number, record.supporting_parts

    def find(self, record):
        """Nothing for yes and no, which are no text."""
        return [] if self.option(record)[0] else super().find(record)


# The questions of a story stand together.
@functools.lru_cache(maxsize=4)
def _words(text: str) -> oracle.Words:
    return oracle.Words(text)


class NarrativeQABuilder(QuestionBuilder):
    """Answers are what is most like those that people gave."""

    def find(self, record):
        """The answers, and wherever the spans with the best ROUGE-L stand."""
        words = _words(record.text)
        # As they are compared, in any case.
        answers = [x.strip().rstrip(" .") for x in record.answers]
        similar = [
            record.text[x.start : x.end]
            for answer in answers
            for x in oracle.find_approximate_answers(
                words, answer, self.config.min_rouge_l_oracle_score
            )
        ]
        found = (
            find_answers([record.text], x, self.SENTENCE_CASE)
            for x in (answers, similar)
        )
        return sorted({*itertools.chain(*found)})
