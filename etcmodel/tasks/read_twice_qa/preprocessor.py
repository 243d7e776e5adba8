"""Turns questions and documents into segments, and labels answers in them."""

import dataclasses
import functools
import itertools
import types
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np
import tensorflow as tf

from etcmodel.datasets.answer_spans import Occurrence
from etcmodel.datasets.answer_spans import find_answers
from etcmodel.datasets.narrativeqa import oracle
from etcmodel.datasets.narrativeqa import records as narrativeqa
from etcmodel.errors import show
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.text import tokenizers
from etcmodel.feature_utils.text import word_cuts
from etcmodel.ops import shapes
from etcmodel.pipeline.example_schema import CONTEXT
from etcmodel.pipeline.example_schema import DECODING
from etcmodel.pipeline.example_schema import EXAMPLE_ID
from etcmodel.pipeline.example_schema import INPUT
from etcmodel.pipeline.example_schema import LABEL
from etcmodel.pipeline.example_schema import TEXT
from etcmodel.pipeline.example_schema import ExampleSchema
from etcmodel.pipeline.example_schema import Field
from etcmodel.pipeline.example_schema import Packing
from etcmodel.pipeline.options import option
from etcmodel.pipeline.packing import ExamplePacker
from etcmodel.pipeline.preprocessor import Examples
from etcmodel.pipeline.preprocessor import ModelBatch
from etcmodel.pipeline.preprocessor import Preprocessor
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.pipeline.raw_inputs import to_bytes
from etcmodel.pipeline.record_keys import document_number
from etcmodel.tasks.read_twice import mention_finder
from etcmodel.tasks.read_twice import segments
from etcmodel.tasks.read_twice_qa import labels
from etcmodel.tasks.read_twice_qa.passages import Parts
from etcmodel.tasks.read_twice_qa.passages import Passages
from etcmodel.tasks.read_twice_qa.passages import count_documents
from etcmodel.tasks.read_twice_qa.passages import merge_documents
from etcmodel.tasks.read_twice_qa.passages import number_blocks
from etcmodel.tasks.read_twice_qa.passages import part_of_document
from etcmodel.tasks.read_twice_qa.passages import part_size
from etcmodel.tasks.read_twice_qa.passages import skip_space

# Separates the parts of a document, if they have their own segments.
PART_SEPARATOR = "\n\n"
# The model's inputs for a segment, besides its tokens.
BLOCK_FIELDS = ("block_ids", "block_pos", "prefix_length")
ANNOTATION_FIELDS = (
    "annotation_begins",
    "annotation_ends",
    "annotation_labels",
)
LABEL_FIELDS = ("answer_begins", "answer_ends", "answer_labels")
# Places of tokens in the document.
_PLACE_FIELDS = ("token_starts", "token_ends", "word_cuts")


@dataclasses.dataclass(frozen=True)
class QuestionPreprocessingConfig(segments.SegmentConfig):
    """Sizes; the defaults are the paper's.

    Attributes:
        block_overlap: maximum number of tokens of the document that a segment
            shares with the previous one.
        max_question_length: maximum number of tokens of a question.
        num_blocks_per_example: maximum number of segments of an example, which
            are read together. A longer document is divided.
    """

    block_overlap: int = dataclasses.field(
        default=128, metadata={"min_value": 0}
    )
    max_question_length: int = 128
    num_blocks_per_example: int = 128

    def __post_init__(self):
        super().__post_init__()
        # The CLS, the separator, and one new token.
        needed = self.max_question_length + self.block_overlap + 3
        if self.block_length < needed:
            raise ValueError(
                f"block_length is {self.block_length}, but a question of "
                f"max_question_length={self.max_question_length} tokens and "
                f"block_overlap={self.block_overlap} need {needed}. "
                "Raise block_length."
            )


@dataclasses.dataclass(frozen=True)
class NarrativeQAPreprocessingConfig(QuestionPreprocessingConfig):
    """Sizes for NarrativeQA.

    Attributes:
        data_split: set of questions to read: "train", "valid", "test" or
            "all".
        min_rouge_l_oracle_score: minimum ROUGE-L, from 0 to 1, between an
            answer and a span for the span to be labelled.
    """

    data_split: str = option("all", is_noted=False)
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


class QuestionPreprocessor(Preprocessor):
    """Divides documents into segments, each with the question before it.

    Attributes:
        PARTS: whether parts of a document, separated by an empty line, have
            their own segments.
        SENTENCE_CASE: whether the case of an answer's first letter may be
            ignored; see `find_answers`.
    """

    INPUTS: ClassVar[Mapping[str, RawInput]] = {
        "question": RawInput(tf.string, ("records",)),
        "document": RawInput(tf.string, ("records",)),
    }
    REQUEST: ClassVar[Mapping[str, Any]] = {
        "question": np.array([b"Who lives in Brno?"], dtype=object),
        "document": np.array([b"Jan Novak lives in Brno."], dtype=object),
    }
    TEXT_REQUEST: ClassVar[Mapping[str, Any]] = {
        "query": REQUEST["question"],
        "text": REQUEST["document"],
    }
    SCHEMA = ExampleSchema(
        Packing(
            {"block_ids": "num_blocks_per_example"}, "num_blocks_per_example"
        ),
        merge_texts=merge_documents,
        token_ids=Field("block", INPUT, size="block_length"),
        **{name: Field("block", INPUT) for name in BLOCK_FIELDS},
        **{
            name: Field("block", INPUT, size="max_num_annotations")
            for name in ANNOTATION_FIELDS
        },
        **{
            name: Field("block", LABEL, size="max_num_annotations")
            for name in LABEL_FIELDS
        },
        # The answer's type, and whether the segment is in a supporting part.
        option=Field("block", LABEL),
        is_supporting=Field("block", LABEL),
        # Index of the segment in the record, and number of segments that the
        # model reads together, including this one.
        window=Field("block", CONTEXT),
        num_blocks=Field("block", CONTEXT),
        **{
            name: Field(
                "block",
                DECODING,
                size="block_length",
                as_steps=name != "word_cuts",
            )
            for name in _PLACE_FIELDS
        },
        example_id=Field("one", CONTEXT, tf.string),
        # The part of the document for the segments of an example, and its first
        # byte; see `passages.part_of_document`.
        document=Field("one", TEXT, tf.string),
        document_start=Field("one", TEXT),
    )
    # Most books have fewer questions than this, and a batch tokenizes equal
    # documents once.
    RECORDS_AT_ONCE = 32
    PARTS: ClassVar[bool] = False
    SENTENCE_CASE: ClassVar[bool] = True

    @staticmethod
    def of_text(query, text):
        """Turns the inputs of the signature `text` into this task's inputs."""
        return {"question": query, "document": text}, {}

    def build(self, question: tf.Tensor, document: tf.Tensor) -> Passages:
        """Builds the segments of a batch, `<string>[batch]` each.

        Equal documents are tokenized once. A document without tokens has no
        segments.
        """
        config, special = self.config, self.tokenizer.special_ids
        # [batch, (tokens)]
        whole_ids = self.tokenizer.tokenize(question)
        question_ids = whole_ids[:, : config.max_question_length]
        one = tf.ones([question_ids.nrows(), 1], tf.int32)
        prefixes = tf.concat(
            [special["cls"] * one, question_ids, special["separator"] * one], 1
        )
        unique, of_question = tf.unique(tokenizers.sanitize(document))
        parts = self._tokenize(unique).of_questions(of_question)
        # [parts]
        of_part = tf.cast(ragged_rows.owners_in(parts.numbers), tf.int32)
        first_parts = tf.cast(parts.numbers.row_starts(), tf.int32)
        # [parts, (tokens)]
        prefixes = tf.gather(prefixes, of_part)
        lengths = tf.cast(prefixes.row_lengths(), tf.int32)
        windows = segments.find_windows(
            parts.is_continuation,
            config.block_length - lengths,
            config.block_overlap,
        )
        prefix_length = tf.gather(lengths, windows.texts)
        *annotations, mentions_cut = segments.lay_out_mentions(
            parts.mention_begins,
            parts.mention_ends,
            parts.mention_labels,
            windows,
            prefix_length,
            config.max_num_annotations,
        )

        def lay_out(values, prefix, fill=0):
            """Lays out values, `<int32>[segments, block_length]`."""
            return segments.lay_out_tokens(
                values, windows, prefix, config.block_length, fill=fill
            )

        zeros = prefixes.with_values(tf.zeros_like(prefixes.values))
        nowhere = zeros.with_values(zeros.values - 1)
        # [segments]
        documents = tf.gather(of_part, windows.texts)
        firsts = tf.searchsorted(documents, tf.range(tf.size(document)))
        return Passages(
            lay_out(parts.token_ids, prefixes),
            prefix_length,
            documents,
            windows.texts - tf.gather(first_parts, documents),
            1 + tf.range(tf.size(documents)) - tf.gather(firsts, documents),
            *annotations,
            lay_out(parts.starts, nowhere, -1),
            lay_out(parts.ends, nowhere, -1),
            lay_out(parts.cuts, zeros),
            mentions_cut,
            tf.cast(
                whole_ids.row_lengths() - question_ids.row_lengths(), tf.int32
            ),
        )

    def _tokenize(self, document: tf.Tensor) -> Parts:
        number = tf.size(document)
        if self.PARTS:
            # [documents, (parts)]
            texts = tf.strings.split(document, PART_SEPARATOR)
            sizes = texts.with_values(
                tf.strings.length(texts.values) + len(PART_SEPARATOR)
            )
            # [parts]
            offsets = tf.cumsum(sizes.values, exclusive=True) - tf.gather(
                tf.cumsum(tf.reduce_sum(sizes, axis=1), exclusive=True),
                ragged_rows.owners_in(sizes),
            )
        else:
            texts = tf.RaggedTensor.from_row_lengths(
                document, tf.ones([number], tf.int64), validate=False
            )
            offsets = tf.zeros([number], tf.int32)
        numbers = texts.with_values(tf.range(tf.size(texts.values)))
        texts = texts.values
        ids, starts, ends = self.tokenizer.tokenize_with_offsets(texts)
        if self.tokenizer.kind == "sentencepiece":
            starts = skip_space(texts, starts, ends)
        mentions = mention_finder.find_mentions(texts)
        first_tokens, last_tokens = segments.locate_spans(
            starts, ends, mentions.begins, mentions.ends
        )

        def in_document(places):
            return places.with_values(
                places.values
                + tf.gather(offsets, ragged_rows.owners_in(places))
            )

        return Parts(
            numbers,
            ids,
            tf.cast(self.tokenizer.is_continuation(ids), tf.int32),
            in_document(starts),
            in_document(ends),
            word_cuts.find_word_cuts(self.tokenizer, ids),
            first_tokens,
            last_tokens,
            mentions.labels,
        )

    @staticmethod
    def raw(record):
        """Returns the question and the document of a record."""
        return {"question": record.question, "document": record.text}

    def view(self, batch, index):
        """Returns one record of a batch of `build`, as arrays."""
        return batch.of_document(index)

    def examples(self, record, view, split):
        """Returns the examples of a record; divides a long document.

        A document without tokens raises a RecordError in training. In other
        splits, it gets one segment of padding, so that its example keeps the
        gold answer.
        """
        number = len(view.documents)
        if not number and split == "train":
            raise record.error(
                "no tokens",
                problem=(
                    "the vocabulary has no token for its text, "
                    f"{show(record.text)}"
                ),
            )
        answers = None if split == "predict" else record.answers
        answer_type, parts, spans = 0, None, []
        if answers:
            answer_type, parts = self.answer_type(record)
            spans = self.find(record)
        found, answers_cut = labels.label_answers(
            view.token_starts,
            view.token_ends,
            view.word_cuts,
            [(x.start, x.end) for x in spans],
            self.config.max_num_annotations,
        )
        values = {
            name: getattr(view, name)
            for name in (
                "token_ids",
                "prefix_length",
                *ANNOTATION_FIELDS,
                *_PLACE_FIELDS,
            )
        }
        values |= dict(zip(LABEL_FIELDS, found, strict=True))
        values["option"] = np.full([number], answer_type)
        values["is_supporting"] = (
            np.ones([number]) if parts is None else np.isin(view.parts, parts)
        ).astype(np.int64)
        values["window"] = np.arange(number)
        has_any = bool(answer_type) | found[2].any(axis=1)
        if not number:
            values = {
                name: np.zeros([1, *x.shape[1:]], x.dtype)
                for name, x in values.items()
            }
        size = part_size(max(number, 1), self.config.num_blocks_per_example)
        starts = [
            start
            for start in range(0, max(number, 1), size)
            if split != "train" or has_any[start : start + size].any()
        ]
        document = to_bytes(record.text)
        rows = [
            {
                **self._part(record, values, start, size, number),
                **part_of_document(
                    document,
                    values["token_starts"],
                    values["token_ends"],
                    start,
                    size,
                ),
            }
            for start in starts
        ]
        return Examples(
            rows,
            {
                "segments": number,
                "tokens": int((view.token_starts >= 0).sum()),
                "mentions": int(np.count_nonzero(view.annotation_labels)),
                "mentions_cut": int(view.mentions_cut.sum()),
                "question_tokens_cut": int(view.tokens_cut.sum()),
                "answers": int(found[2].sum()),
                "answers_cut": answers_cut,
                "records_without_an_answer_in_the_text": int(
                    bool(answers) and not has_any.any()
                ),
                "records_divided": int(size < number),
                **record.counts,
            },
        )

    def _part(self, record, values, start, size, number) -> dict[str, Any]:
        """Returns the values of up to `size` segments from `start` on."""
        part = {name: x[start : start + size] for name, x in values.items()}
        read = len(part["window"])
        return {
            **part,
            "block_ids": np.full(
                [read], document_number(record, start) if number else 0
            ),
            "block_pos": np.arange(1, read + 1),
            "num_blocks": np.full([read], read if number else 0),
        }

    def find(self, record: Any) -> list[Occurrence]:
        """Finds all places of an answer in the text, in order."""
        return find_answers([record.text], record.answers, self.SENTENCE_CASE)

    def answer_type(self, record: Any) -> tuple[int, Sequence[int] | None]:
        """Returns the answer type and the supporting parts (None for all)."""
        del record
        return 0, None

    def batch_of_raw(self, **inputs):
        """Makes a batch for the model from raw inputs."""
        made = self(**inputs)
        document = tokenizers.sanitize(inputs["document"])
        ids, pos = number_blocks(
            made.documents, made.block_pos, self.config.num_blocks_per_example
        )
        return self._batch(
            {**made._asdict(), "block_ids": ids, "block_pos": pos},
            made.documents,
            {"document": document},
            {"tokens_cut": made.tokens_cut},
        )

    def batch_of_stored(self, serialized):
        """Makes a batch of stored examples; each part gets an answer."""
        inputs, fields = self.SCHEMA.parse(
            serialized,
            dataclasses.asdict(self.config),
            (CONTEXT, DECODING, TEXT),
        )
        values = inputs | {name: fields[name] for name in _PLACE_FIELDS}
        # [examples * segments], documents numbered from 1
        numbers = count_documents(tf.reshape(inputs["block_pos"], [-1]))
        rows = tf.reshape(
            tf.where(tf.reshape(inputs["block_ids"] > 0, [-1])), [-1]
        )
        flat = {
            name: tf.gather(shapes.flatten_dims(x, 0, 1), rows)
            for name, x in values.items()
        }
        flat["block_ids"] = tf.gather(numbers, rows)
        return self._batch(
            flat,
            flat["block_ids"] - 1,
            {x: fields[x].values for x in self.SCHEMA.names(TEXT)},
            {EXAMPLE_ID: fields[EXAMPLE_ID].values},
        )

    def example_of_raw(self, **inputs):
        """Converts the raw inputs of one record to a stored example."""
        record = types.SimpleNamespace(
            id="warm-up",
            text=inputs["document"].numpy()[0].decode("utf-8"),
            answers=None,
            counts={},
            source=types.SimpleNamespace(path=""),
        )
        view = self.view(on_host(self(**inputs)), 0)
        (row, *_) = self.examples(record, view, "predict").rows
        packer = ExamplePacker(self.SCHEMA, dataclasses.asdict(self.config))
        (values,) = [
            *packer.add({EXAMPLE_ID: b"", **row}),
            *packer.flush(),
        ]
        return self.SCHEMA.serialize(values)

    def _batch(self, values, owner, text, outputs) -> ModelBatch:
        """Makes a batch that can be split between documents."""
        ids = values["block_ids"]
        ends = tf.cast(tf.where(ids[1:] > ids[:-1])[:, 0], tf.int32)
        return ModelBatch(
            {name: values[name] for name in self.SCHEMA.names(INPUT)},
            {name: values[name] for name in _PLACE_FIELDS},
            owner,
            text,
            outputs,
            # [documents]: numbers of segments after which one ends.
            tf.concat([ends + 1, [tf.size(ids)]], axis=0),
        )

    @property
    def rows_at_once(self):
        """The number of segments that are read together."""
        return self.config.num_blocks_per_example


class HotpotQAPreprocessor(QuestionPreprocessor):
    """Gives every paragraph its own segments; answers may be yes or no."""

    PARTS = True
    # Answers are copied from the text.
    SENTENCE_CASE = False

    def answer_type(self, record):
        """Returns the answer type and the supporting paragraphs."""
        # Case is ignored, as in the official baseline.
        answer = record.answers[0].strip().lower()
        kinds = labels.ANSWER_TYPES
        number = kinds.index(answer) if answer in kinds[1:] else 0
        return number, record.supporting_parts

    def find(self, record):
        """Finds the spans of an answer; "yes" and "no" have none."""
        return [] if self.answer_type(record)[0] else super().find(record)


# Cached, since the questions about a story are adjacent.
@functools.lru_cache(maxsize=4)
def _words(text: str) -> oracle.Words:
    return oracle.Words(text)


class NarrativeQAPreprocessor(QuestionPreprocessor):
    """Labels spans with the best ROUGE-L, since answers are free text."""

    def find(self, record):
        """Finds places of the answers, and spans with the best ROUGE-L."""
        words = _words(record.text)
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
