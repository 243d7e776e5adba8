"""Documents to segments that are stored."""

import dataclasses
import zlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etcmodel.datasets.documents import Document
from etcmodel.datasets.documents import check_documents
from etcmodel.feature_utils import random_masks
from etcmodel.feature_utils import segments
from etcmodel.feature_utils.entity_masking import UNKNOWN_ENTITY
from etcmodel.feature_utils.text import mention_finder
from etcmodel.feature_utils.text.tokenizer_settings import TokenizerSettings
from etcmodel.pipeline import example_writer
from etcmodel.pipeline import packing
from etcmodel.pipeline.preprocessor import make_builder
from etcmodel.pipeline.preprocessor import pad
from etcmodel.pipeline.preprocessor import to_bytes
from etcmodel.pipeline.spec import TaskSpec

# What is stored, by the number of values of a segment.
BLOCK_FEATURES = ("block_ids", "block_pos")
TOKEN_FEATURES = ("token_ids", "is_continuation")
ANNOTATION_FEATURES = (
    "annotation_begins",
    "annotation_ends",
    "annotation_labels",
)

_STRINGS = tf.TensorSpec([None], tf.string)
_INTS = tf.TensorSpec([None], tf.int32)
_BOOLS = tf.TensorSpec([None], tf.bool)


@dataclasses.dataclass(frozen=True)
class PretrainFeatureConfig(segments.SegmentConfig):
    """Sizes of what is stored.

    Attributes:
        num_blocks_per_example: segments of an example.
        documents: what a document is in files of plain text: "blank_lines" for
            empty lines between them, "file" if each file is one, "wikitext"
            for articles of the WikiText corpora; "auto" for "wikitext" if a
            heading of such an article comes first, otherwise "blank_lines".
    """

    num_blocks_per_example: int = 128
    documents: str = "auto"

    def __post_init__(self):
        super().__post_init__()
        check_documents(self.documents)


class PretrainFeatureBuilder(segments.SegmentBuilder):
    """Turns documents into segments; finds mentions where none are given."""

    def __init__(self, config: PretrainFeatureConfig, tokenizer, name=None):
        """See the base class.

        Raises:
            ValueError: the vocabulary has no token for what is masked.
        """
        super().__init__(config, tokenizer, name=name)
        random_masks.check_can_mask(tokenizer)

    def build_all(self, texts, finds, begins, ends, names, numbers):
        """Builds the segments of a batch of documents; graph code.

        Args:
            texts: `<string>[documents]`.
            finds: `<bool>[documents]`, whether mentions are to be found.
            begins: `<int32>[mentions]` first byte of each given mention, of
                all documents one after the other.
            ends: `<int32>[mentions]` the byte behind the last.
            names: `<string>[mentions]` its entity, empty if unknown.
            numbers: `<int32>[documents]` how many mentions each has.

        Returns:
            `segments.Segments`.
        """

        def rows(values):
            """`<any>[documents, (mentions)]`."""
            return tf.RaggedTensor.from_row_lengths(
                values, tf.cast(numbers, tf.int64), validate=False
            )

        given = segments.Mentions(
            rows(begins), rows(ends), rows(segments.entity_labels(names))
        )
        # Nothing is found in an empty text.
        found = mention_finder.find_mentions(tf.where(finds, texts, ""))
        mentions = segments.Mentions(
            *(
                tf.concat([x, y], axis=1)
                for x, y in zip(given, found, strict=True)
            )
        )
        return self.build(texts, mentions)


class PretrainEncoder(example_writer.RecordEncoder):
    """Turns documents into serialized segments."""

    def __init__(
        self,
        spec: TaskSpec,
        config: PretrainFeatureConfig,
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
        builder = make_builder(
            PretrainFeatureBuilder, config, vocab_file, settings
        )
        super().__init__(spec, builder)
        self._build = tf.function(
            builder.build_all,
            input_signature=[_STRINGS, _BOOLS, _INTS, _INTS, _STRINGS, _INTS],
        )

    def build(self, documents: Sequence[Document]) -> segments.Segments:
        """Builds the segments of a batch of documents.

        Args:
            documents: the documents.

        Returns:
            The segments, as arrays.
        """
        mentions = [_byte_spans(document) for document in documents]
        begins, ends, names = (
            [mention[i] for row in mentions for mention in row]
            for i in range(3)
        )
        output = self._build(
            pad([x.text for x in documents], _STRINGS),
            np.array([x.mentions is None for x in documents]),
            np.array(begins, np.int32),
            np.array(ends, np.int32),
            pad(names, _STRINGS),
            np.array([len(row) for row in mentions], np.int32),
        )
        return segments.Segments(*(x.numpy() for x in output))

    def encode(self, records, split):
        """See `RecordEncoder`."""
        del split  # Both are stored alike.
        built = self.build(records)
        encoded = []
        for index, document in enumerate(records):
            chosen = segments.Segments(
                *(x[built.documents == index] for x in built)
            )
            encoded.append(self._encode(document, chosen))
        return encoded

    def _encode(self, document, chosen) -> example_writer.EncodedRecord:
        """Serializes the segments of one document."""
        size = self.config.num_blocks_per_example
        number = len(chosen.documents)
        examples = []
        for part, start in enumerate(range(0, number, size)):
            rows = slice(start, min(start + size, number))
            count = rows.stop - rows.start
            # Documents are told apart by a number; also in a batch of several
            # examples.
            name = f"{document.source.path}\n{document.id}\n{part}".encode()
            values = {
                "block_ids": [zlib.crc32(name) % (2**31 - 1) + 1] * count,
                "block_pos": range(1, count + 1),
            }
            for field in TOKEN_FEATURES + ANNOTATION_FEATURES:
                values[field] = getattr(chosen, field)[rows].reshape(-1)
            examples.append(example_writer.serialize(values))
        labels = chosen.annotation_labels
        return example_writer.EncodedRecord(
            examples,
            {
                "tokens": int(np.count_nonzero(chosen.token_ids)) - number,
                "segments": number,
                "mentions": int(np.count_nonzero(labels)),
                "mentions_of_unknown_entities": int(
                    np.count_nonzero(labels == UNKNOWN_ENTITY)
                ),
                "mentions_cut": int(chosen.mentions_cut.sum()),
                "documents_divided": int(len(examples) > 1),
            },
        )

    def make_packer(self):
        """Puts several documents into each example."""
        return packing.ExamplePacker(
            {"block_ids": self.config.num_blocks_per_example}, fill="block_ids"
        )


def _byte_spans(document: Document) -> list[tuple[int, int, str]]:
    """The given mentions of a document by bytes: begin, end and entity.

    "Ján in Brno" with a mention from 7 to 11 gives one from 8 to 12.
    """
    mentions = document.mentions or ()
    if document.text.isascii():
        return [(x.start, x.end, x.entity or "") for x in mentions]
    # [characters + 1]
    places = np.cumsum([0, *(len(to_bytes(x)) for x in document.text)])
    return [
        (int(places[x.start]), int(places[x.end]), x.entity or "")
        for x in mentions
    ]
