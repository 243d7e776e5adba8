"""Options of tasks for users' own documents, without using TensorFlow."""

import dataclasses
from typing import ClassVar

UNITS = ("sentences", "texts", "paragraphs", "blocks")


@dataclasses.dataclass(frozen=True)
class DocumentPreprocessingConfig:
    """Options for reading documents.

    Attributes:
        long_length: length of the long input.
        global_length: length of the global input.
        units: the parts of a document that get a global token: "sentences",
            which the package finds, and paragraphs; "texts" as given, and
            paragraphs; only "paragraphs"; or, to classify, only "blocks" of
            `block_size` tokens. "auto" is "texts" if paragraphs are lists in
            the data, "blocks" if half of the records or more have neither
            paragraphs nor sentences, otherwise "sentences".
        block_size: number of tokens of a block.
        text_field: the field with the document, if it is not "text",
            "document", "paragraphs", "sections" or "context".
        title_field: the field with the document's title, such as the subject of
            a mail; it is read before the text. By default, none.
        query_field: the field with the question or the candidate labels, if it
            is not "query" or "question".
        id_field: the field with the record's id.
        label_field: the field with the gold answer, if it does not have the
            task's default name.
        HAS_BLOCKS: whether units may be blocks.
    """

    HAS_BLOCKS: ClassVar[bool] = True

    long_length: int = 4096
    global_length: int = 512
    units: str = "auto"
    block_size: int = 64
    text_field: str | None = None
    title_field: str | None = None
    query_field: str | None = None
    id_field: str | None = None
    label_field: str | None = None

    def __post_init__(self):
        known = ["auto", *UNITS]
        if not self.HAS_BLOCKS:
            known.remove("blocks")
        if self.units not in known:
            raise ValueError(
                f"units is {self.units!r}, expected one of {', '.join(known)}."
            )


# Fields that only affect how files are read.
READING = (
    "text_field",
    "query_field",
    "id_field",
    "label_field",
    "title_field",
)
