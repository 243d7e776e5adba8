"""Questions to segments that are stored, with where their answers stand."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.errors import show
from etcmodel.feature_utils.text import word_cuts
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from etcmodel.pipeline import example_schema
from etcmodel.pipeline import example_writer
from etcmodel.pipeline import packing
from etcmodel.pipeline import preprocessor
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.tasks.read_twice_qa.features import Passages
from etcmodel.tasks.read_twice_qa.features import QuestionFeatureConfig

# What is stored, by the number of values of a segment.
BLOCK_FEATURES = ("block_ids", "block_pos", "prefix_length")
ANNOTATION_FEATURES = (
    "annotation_begins",
    "annotation_ends",
    "annotation_labels",
)
# What the model reads.
MODEL_FEATURES = ("token_ids", *BLOCK_FEATURES, *ANNOTATION_FEATURES)
OFFSET_FEATURES = ("token_starts", "token_ends", "word_cuts")
LABEL_FEATURES = ("answer_begins", "answer_ends", "answer_labels")
# The record of a segment, its number there, how many segments the model reads
# together with it, the answer's type, and whether it is in a supporting part.
RECORD_FEATURES = ("window", "num_blocks", "option", "is_supporting")
# Two numbers that stand for the record.
KEY_FEATURE = "record"


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


def label_answers(
    starts: np.ndarray,
    ends: np.ndarray,
    cuts: np.ndarray,
    spans: Sequence[tuple[int, int]],
    most: int,
) -> tuple[np.ndarray, int]:
    """Makes labels of the answers that are whole in each segment.

    Args:
        starts: `<int32>[segments, length]` first byte of each token, -1 for
            those of the question and for padding.
        ends: `<int32>[segments, length]` the byte behind its last.
        cuts: `<int32>[segments, length]` whether it begins or ends inside a
            word; see `word_cuts`. Labels are whole words.
        spans: first byte of each answer and the one behind its last, in order.
        most: answers of a segment; more are left out.

    Returns:
        `<int32>[3, segments, most]`: first token of each, its last, and 1 for
        an answer; and how many had no room. An answer that is only a part of a
        token or word is left out if there are others that are not.
    """
    labels = np.zeros([3, len(starts), most], np.int32)
    cut = 0
    for row, (own_starts, own_ends) in enumerate(
        zip(starts, ends, strict=True)
    ):
        (tokens,) = np.nonzero(own_starts >= 0)
        own_starts, own_ends = own_starts[tokens], own_ends[tokens]
        found, inexact = [], []
        for start, end in spans:
            if own_starts[0] > start or own_ends[-1] < end:
                continue
            first = np.searchsorted(own_ends, start, side="right")
            last = np.searchsorted(own_starts, end, side="left") - 1
            if first > last:
                continue
            place = tokens[first], tokens[last]
            whole = word_cuts.whole_words(cuts[row], *place)
            is_exact = own_starts[first] == start and own_ends[last] == end
            is_exact &= whole == place
            place = whole
            (found if is_exact else inexact).append(place)
        chosen = list(dict.fromkeys(found or inexact))
        cut += max(len(chosen) - most, 0)
        for i, place in enumerate(chosen[:most]):
            labels[:, row, i] = (*place, 1)
    return labels, cut


def parsed_specs(config: QuestionFeatureConfig) -> dict[str, tf.TensorSpec]:
    """What `parse` gives.

    Args:
        config: the sizes.

    Returns:
        name -> specification, `<int32>[segments, ...]`.
    """
    shapes = {
        **dict.fromkeys(BLOCK_FEATURES + RECORD_FEATURES, []),
        KEY_FEATURE: [2],
        **dict.fromkeys(("token_ids", *OFFSET_FEATURES), [config.block_length]),
        **dict.fromkeys(
            ANNOTATION_FEATURES + LABEL_FEATURES, [config.max_num_annotations]
        ),
    }
    return {
        name: tf.TensorSpec([config.num_blocks_per_example, *shape], tf.int32)
        for name, shape in shapes.items()
    }


def parse(
    serialized: tf.Tensor, config: QuestionFeatureConfig
) -> dict[str, tf.Tensor]:
    """Reads the segments of an example; graph code.

    Args:
        serialized: `<string>[]`.
        config: the sizes.

    Returns:
        name -> `<int32>[segments, ...]`.

    Raises:
        tf.errors.InvalidArgumentError: when run, if the example was not made
            with these sizes.
    """
    specs = parsed_specs(config)
    fields = {
        name: tf.io.FixedLenFeature(spec.shape, tf.int64)
        for name, spec in specs.items()
    }
    # Examples of former versions have none.
    cuts = specs["word_cuts"].shape
    fields["word_cuts"] = tf.io.FixedLenFeature(
        cuts, tf.int64, default_value=np.zeros(cuts)
    )
    parsed = tf.io.parse_single_example(serialized, fields)
    return {name: tf.cast(x, tf.int32) for name, x in parsed.items()}


class QuestionEncoder(example_writer.RecordEncoder):
    """Turns records into serialized segments."""

    def __init__(
        self,
        spec: TaskSpec,
        config: QuestionFeatureConfig,
        vocab_file: str,
        settings: TokenizerSettings | None = None,
    ):
        """Creates the encoder.

        Args:
            spec: the task.
            config: sizes.
            vocab_file: a WordPiece vocabulary or a SentencePiece model.
            settings: counts more than what the files beside the vocabulary
                say; see `tokenizers.make_tokenizer`.

        Raises:
            UserError: the vocabulary cannot be used.
        """
        super().__init__(spec, spec.make_builder(config, vocab_file, settings))
        self._model = spec.make_model()
        self._build = tf.function(
            self.builder.build,
            input_signature=[x.spec for x in self.builder.INPUTS.values()],
            autograph=False,
        )

    def build(self, records: Sequence[Any]) -> Passages:
        """Builds the segments of a batch of records.

        Args:
            records: the records.

        Returns:
            The segments, as arrays.
        """
        inputs = preprocessor.raw_inputs(type(self.builder), records)
        made = self._build(*(tf.constant(x) for x in inputs.values()))
        return Passages(*(x.numpy() for x in made))

    def encode(self, records, split):
        """See `RecordEncoder`."""
        built = self.build(records)
        return [
            self._encode(record, built.of_document(i), split)
            for i, record in enumerate(records)
        ]

    def _encode(
        self, record, made: Passages, split
    ) -> example_writer.EncodedRecord:
        """Serializes the segments of one record.

        One without any has a segment of padding, so that its example tells the
        right answer, and nothing is predicted.

        Raises:
            RecordError: it has none, but is to be learned.
        """
        number = len(made.documents)
        if not number and split == "train":
            raise record.error(
                "no tokens",
                problem=(
                    "the vocabulary has no token of its text, "
                    f"{show(record.text)}"
                ),
            )
        names = ("token_ids", "prefix_length", *ANNOTATION_FEATURES)
        values = {
            **{
                name: getattr(made, name) for name in (*names, *OFFSET_FEATURES)
            },
            "window": np.arange(number),
            KEY_FEATURE: np.tile(
                record_keys(tf.constant([record.id])).numpy(), [number, 1]
            ),
        }
        texts = {
            "example_id": [preprocessor.to_bytes(record.id)],
            "document": [preprocessor.to_bytes(record.text)],
        }
        answers = None if split == "predict" else record.answers
        option, parts, spans = 0, None, []
        if answers:
            option, parts = self.builder.option(record)
            spans = self.builder.find(record)
            gold = self.spec.dataset.gold(record)
            reference = self._model.reference(record)
            texts[example_schema.REFERENCE] = [
                example_writer.to_json((gold, reference))
            ]
        labels, answers_cut = label_answers(
            made.token_starts,
            made.token_ends,
            made.word_cuts,
            [(x.start, x.end) for x in spans],
            self.config.max_num_annotations,
        )
        values |= dict(zip(LABEL_FEATURES, labels, strict=True))
        values["option"] = np.full([number], option)
        values["is_supporting"] = (
            np.ones([number]) if parts is None else np.isin(made.parts, parts)
        ).astype(np.int64)
        has_any = bool(option) | labels[2].any(axis=1)
        size = part_size(max(number, 1), self.config.num_blocks_per_example)
        counts = {
            "segments": number,
            "tokens": int((made.token_starts >= 0).sum()),
            "mentions": int(np.count_nonzero(made.annotation_labels)),
            "mentions_cut": int(made.mentions_cut.sum()),
            "question_tokens_cut": int(made.tokens_cut.sum()),
            "answers": int(labels[2].sum()),
            "answers_cut": answers_cut,
            "records_without_an_answer_in_the_text": int(
                bool(answers) and not has_any.any()
            ),
            "records_divided": int(size < number),
            **record.counts,
        }
        if not number:
            values = {
                name: np.zeros([1, *x.shape[1:]], x.dtype)
                for name, x in values.items()
            }
        examples = []
        for start in range(0, max(number, 1), size):
            rows = slice(start, start + size)
            if split == "train" and not has_any[rows].any():
                continue
            own = {name: x[rows].reshape(-1) for name, x in values.items()}
            # Records are told apart by a number; also in a batch of several
            # examples.
            name = f"{record.source.path}\n{record.id}\n{start}".encode()
            key = zlib.crc32(name) % (2**31 - 1) + 1
            read = len(own["window"])
            own["block_ids"] = np.full([read], key if number else 0)
            own["block_pos"] = np.arange(1, read + 1)
            own["num_blocks"] = np.full([read], read if number else 0)
            examples.append(example_writer.serialize({**own, **texts}))
        return example_writer.EncodedRecord(examples, counts)

    def make_packer(self):
        """Puts several records into each example."""
        return packing.ExamplePacker(
            {"block_ids": self.config.num_blocks_per_example},
            fill="block_ids",
        )
