"""Preprocesses documents for ReadTwice's pre-training."""

import dataclasses

import numpy as np
import tensorflow as tf

from etcmodel.datasets.documents import Document
from etcmodel.datasets.documents import check_documents
from etcmodel.feature_utils import random_masks
from etcmodel.feature_utils.entity_masking import UNKNOWN_ENTITY
from etcmodel.pipeline.example_schema import CONTEXT
from etcmodel.pipeline.example_schema import INPUT
from etcmodel.pipeline.example_schema import ExampleSchema
from etcmodel.pipeline.example_schema import Field
from etcmodel.pipeline.example_schema import Packing
from etcmodel.pipeline.preprocessor import Examples
from etcmodel.pipeline.preprocessor import Preprocessor
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.pipeline.raw_inputs import to_bytes
from etcmodel.pipeline.record_keys import document_number
from etcmodel.tasks.read_twice import mention_finder
from etcmodel.tasks.read_twice import segments

_MENTIONS = ("records", "mentions")
# Stored fields that are copied from `segments.Segments`.
_SEGMENT_FIELDS = (
    "token_ids",
    "is_continuation",
    "annotation_begins",
    "annotation_ends",
    "annotation_labels",
)


@dataclasses.dataclass(frozen=True)
class PretrainPreprocessingConfig(segments.SegmentConfig):
    """Sizes of stored examples.

    Attributes:
        num_blocks_per_example: number of segments of an example.
        documents: how to split plain text files into documents: "blank_lines"
            at empty lines, "file" for one document per file, "wikitext" at
            articles of the WikiText corpora; "auto" for "wikitext" if the file
            starts with a heading of such an article, otherwise "blank_lines".
    """

    num_blocks_per_example: int = 128
    documents: str = "auto"

    def __post_init__(self):
        super().__post_init__()
        check_documents(self.documents)


class PretrainPreprocessor(Preprocessor):
    """Divides documents into segments; finds mentions unless they are given.

    Raises a ValueError if the vocabulary has no mask token.
    """

    INPUTS = {
        "text": RawInput(tf.string, ("records",)),
        # Whether to find mentions.
        "find_mentions": RawInput(tf.bool, ("records",)),
        # First byte and exclusive end of each given mention.
        "mention_starts": RawInput(tf.int32, _MENTIONS),
        "mention_ends": RawInput(tf.int32, _MENTIONS),
        # The mention's entity; empty if it is unknown.
        "mention_entities": RawInput(tf.string, _MENTIONS),
    }
    SCHEMA = ExampleSchema(
        Packing(
            {"block_ids": "num_blocks_per_example"}, "num_blocks_per_example"
        ),
        token_ids=Field("block", INPUT, size="block_length"),
        is_continuation=Field("block", CONTEXT, size="block_length"),
        # Number of the segment's document; 0 for padding.
        block_ids=Field("block", INPUT),
        # Position of the segment in its document, from 1.
        block_pos=Field("block", INPUT),
        annotation_begins=Field("block", INPUT, size="max_num_annotations"),
        annotation_ends=Field("block", INPUT, size="max_num_annotations"),
        annotation_labels=Field("block", INPUT, size="max_num_annotations"),
    )

    def __init__(self, config, tokenizer, name=None):
        random_masks.check_can_mask(tokenizer)
        super().__init__(config, tokenizer, name)
        self.segments = segments.SegmentBuilder(config, tokenizer)

    def build(
        self,
        text: tf.Tensor,
        find_mentions: tf.Tensor,
        mention_starts: tf.Tensor,
        mention_ends: tf.Tensor,
        mention_entities: tf.Tensor,
    ) -> segments.Segments:
        """Builds the segments of a batch of documents; see `INPUTS`."""
        # [documents]
        numbers = tf.math.count_nonzero(mention_starts >= 0, axis=1)

        def rows(values):
            """Groups values by document, `<any>[documents, (mentions)]`."""
            return tf.RaggedTensor.from_tensor(values, numbers)

        entities = rows(mention_entities)
        given = segments.Mentions(
            rows(mention_starts),
            rows(mention_ends),
            entities.with_values(segments.entity_labels(entities.values)),
        )
        # Texts that are not searched are replaced by empty ones.
        found = mention_finder.find_mentions(tf.where(find_mentions, text, ""))
        mentions = segments.Mentions(
            *(
                tf.concat([x, y], axis=1)
                for x, y in zip(given, found, strict=True)
            )
        )
        return self.segments.build(text, mentions)

    @staticmethod
    def raw(record):
        """Returns the text of a record and its given mentions."""
        mentions = _byte_spans(record)
        return {
            "text": record.text,
            "find_mentions": record.mentions is None,
            "mention_starts": [start for start, _, _ in mentions],
            "mention_ends": [end for _, end, _ in mentions],
            "mention_entities": [entity for _, _, entity in mentions],
        }

    def view(self, batch, index):
        """Returns one record of a batch of `build`, as arrays."""
        rows = batch.documents == index
        return segments.Segments(*(x[rows] for x in batch))

    def examples(self, record, view, split):
        """Returns the examples of a document; divides it if it is long."""
        del split
        size = self.config.num_blocks_per_example
        number = len(view.documents)
        parts = []
        for part, start in enumerate(range(0, number, size)):
            count = min(size, number - start)
            parts.append(
                {
                    "block_ids": [document_number(record, part)] * count,
                    "block_pos": range(1, count + 1),
                    **{
                        name: getattr(view, name)[start : start + count]
                        for name in _SEGMENT_FIELDS
                    },
                }
            )
        labels = view.annotation_labels
        return Examples(
            parts,
            {
                "tokens": int(np.count_nonzero(view.token_ids)) - number,
                "segments": number,
                "mentions": int(np.count_nonzero(labels)),
                "mentions_of_unknown_entities": int(
                    np.count_nonzero(labels == UNKNOWN_ENTITY)
                ),
                "mentions_cut": int(view.mentions_cut.sum()),
                "documents_divided": int(len(parts) > 1),
            },
        )


def _byte_spans(document: Document) -> list[tuple[int, int, str]]:
    """Converts the given mentions to bytes: begin, end and entity.

    Example: the mention in "Ján in Brno" from character 7 to 11 is from byte 8
    to 12.
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
