"""Preprocesses users' own documents, given as titled paragraphs.

A request holds the titles and the texts of a document's paragraphs. The long
input is a CLS token, the query and the paragraphs. The global input is a CLS
token, one token for each text (or word piece) of the query, and, for each
paragraph, its own token followed by one for its title and for each sentence
(ETC paper, Figure 5).
"""

import abc
import dataclasses
import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.feature_utils import layout
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import sentences
from etcmodel.feature_utils.text import texts
from etcmodel.feature_utils.text import tokenizers
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import count_cut
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.readers.sectioned import DocumentRecord
from etcmodel.tasks.documents.document_options import UNITS as UNITS

# Global tokens of a question's tokens or texts, of paragraphs and of sentences.
QUESTION_TOKEN = layout.GlobalToken("question", token_types.QUESTION_GLOBAL)
PARAGRAPH_TOKEN = layout.GlobalToken("paragraph", token_types.PARAGRAPH_GLOBAL)
SENTENCE_TOKEN = layout.GlobalToken("sentence", token_types.GLOBAL)
# The section with the CLS token, which has its own global token.
CLS = layout.Section(
    "cls",
    token_type_id=token_types.SENTENCE,
    unit_global=layout.GlobalToken("cls", token_types.CLS_GLOBAL),
    link_sentences=False,
    cut="keep",
    tokens=("cls",),
)
# Marks that can end a sentence. This is an approximation: `sentences` also
# checks the text after the mark.
_MARKS = set(".!?…。！？।؟")
_MARKS_ALONE = re.compile("[。！？।]")
# The lookbehind matches a run of marks only once, so that time is linear.
_PUNCTUATION = re.compile(r"(?<![^\w\s])[^\w\s]+(?=\s|$)")


class Units(NamedTuple):
    """The texts of a batch's units, and their numbers.

    Attributes:
        texts: `<string>[batch, (paragraphs), (units)]`.
        numbers: `<int32>[batch, (paragraphs), (units)]`, the index of each unit
            in its paragraph, from 0; -1 for a title. For "texts", empty texts
            also count.
    """

    texts: tf.RaggedTensor
    numbers: tf.RaggedTensor


def find_units(
    titles: tf.Tensor | tf.RaggedTensor,
    contents: tf.Tensor | tf.RaggedTensor,
    kind: str,
) -> Units:
    """Finds the units of paragraphs; graph code.

    Example: the title `["Oslo"]` and texts `[["It rains. It snows.", "Why?"]]`
    give the "sentences" `[["Oslo", "It rains.", "It snows.", "Why?"]]`,
    numbered `[[-1, 0, 1, 2]]`, and the "paragraphs" `[["Oslo", "It rains. It
    snows. Why?"]]`, numbered `[[-1, 0]]`. Empty texts are left out.

    Titles are `<string>[batch, paragraphs]`, contents `<string>[batch,
    paragraphs, texts]`, padded with "" or ragged; `kind` is one of `UNITS`.
    """
    if kind in ("paragraphs", "blocks"):
        # [batch, paragraphs]
        joined = tf.strings.strip(
            tf.strings.reduce_join(contents, axis=2, separator=" ")
        )
        contents = tf.expand_dims(joined, 2)
        if isinstance(joined, tf.RaggedTensor):
            # [all paragraphs, (1)]
            each = tf.RaggedTensor.from_tensor(joined.values[:, tf.newaxis])
            contents = joined.with_values(each)
    # [batch, (paragraphs), (1 + texts)]
    given = tokenizers.sanitize(
        texts.without_padding(
            tf.concat([tf.expand_dims(titles, 2), contents], axis=2)
        )
    )
    # [all paragraphs, (1 + texts)]
    rows = given.values
    # [all titles and texts]
    index = tf.cast(
        ragged_rows.index_in(ragged_rows.owners_in(rows), rows.row_splits),
        tf.int32,
    )
    values = tf.strings.strip(rows.values)
    is_whole = tf.equal(index, 0) | (kind != "sentences")
    is_unit = is_whole & tf.not_equal(values, "")
    # [all titles and texts, (units)]
    found = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(values, is_unit), tf.cast(is_unit, tf.int64)
    )
    if kind == "sentences":
        split = sentences.split_sentences(tf.where(is_whole, "", values))
        found = tf.concat([found, split], axis=1)

    def by_paragraph(values):
        """Groups values: `[batch, (paragraphs), (units)]`."""
        return given.with_values(
            ragged_rows.merge(rows.with_values(found.with_values(values)))
        )

    # [all units]
    index = tf.gather(index, ragged_rows.owners_in(found)) - 1
    if kind == "sentences":
        paragraph = by_paragraph(index).values
        owner = ragged_rows.owners_in(paragraph)
        number = ragged_rows.index_in(owner, paragraph.row_splits)
        # [all paragraphs]: 1 if the paragraph has a title; sentences are
        # numbered without it.
        titles = ragged_rows.sum_rows(tf.equal(index, -1), paragraph.row_splits)
        index = tf.cast(number - tf.gather(titles, owner), tf.int32)
    return Units(by_paragraph(found.values), by_paragraph(index))


def make_layout(
    kind: str, query_level: str, values: Sequence[layout.Value] = ()
) -> layout.LayoutSpec:
    """Makes the layout of documents with units of a kind, one of `UNITS`.

    `query_level` and `values` are attributes of `DocumentPreprocessor`.
    """
    has_paragraphs = kind in ("sentences", "texts")
    return layout.LayoutSpec(
        sections=(
            CLS,
            layout.Section(
                "query",
                token_type_id=token_types.QUESTION,
                cut="keep",
                **{f"{query_level}_global": QUESTION_TOKEN},
            ),
            layout.Section(
                "document",
                token_type_id=token_types.SENTENCE,
                group_global=PARAGRAPH_TOKEN if has_paragraphs else None,
                unit_global=SENTENCE_TOKEN,
            ),
        ),
        values=values,
    )


class DocumentPreprocessor(EtcPreprocessor):
    """Turns a query and the paragraphs of a document into features.

    Attributes:
        QUERY_LEVEL: which parts of a query get a global token: each "unit"
            (text) or each "token".
        VALUES: values to lay out with the tokens.
    """

    QUERY_LEVEL: ClassVar[str] = "unit"
    VALUES: ClassVar[Sequence[layout.Value]] = ()

    INPUTS = {
        "query": RawInput(tf.string, ("records", "query texts")),
        "titles": RawInput(tf.string, ("records", "paragraphs")),
        "texts": RawInput(tf.string, ("records", "paragraphs", "texts")),
    }
    REQUEST = {
        "query": np.array([[b"Where does Jan Novak live?"]], dtype=object),
        "titles": np.array([[b"Jan Novak", b""]], dtype=object),
        "texts": np.array(
            [
                [
                    [b"Jan Novak is a cook. He lives in Krakow."],
                    [b"Krakow is a city in Poland."],
                ]
            ],
            dtype=object,
        ),
    }

    TEXT_REQUEST = {
        "query": np.array([b"Where does Jan Novak live?"], dtype=object),
        "text": np.array(
            [
                b"# Jan Novak\nJan Novak is a cook. He lives in Krakow.\n\n"
                b"Krakow is a city in Poland."
            ],
            dtype=object,
        ),
    }

    NEEDS_QUERY = False

    @staticmethod
    def of_text(query, text):
        """Splits a text into paragraphs and titles, and adds the query."""
        titles, paragraphs = plain_documents.split_paragraphs(text)
        return {
            "query": tf.expand_dims(query, 1),
            "titles": titles,
            # [records, (paragraphs), (1)]
            "texts": paragraphs.with_values(
                tf.RaggedTensor.from_row_lengths(
                    paragraphs.values, tf.ones_like(paragraphs.values, tf.int64)
                )
            ),
        }, {}

    @property
    def kind(self) -> str:
        """The kind of the units; see `UNITS`."""
        # Training records resolve "auto"; without records units are sentences.
        return "sentences" if self.config.units == "auto" else self.config.units

    def layout_spec(self):
        """Makes the layout of the configured units; see `make_layout`."""
        return make_layout(self.kind, self.QUERY_LEVEL, self.VALUES)

    def build(
        self,
        query: tf.Tensor | tf.RaggedTensor,
        titles: tf.Tensor | tf.RaggedTensor,
        texts: tf.Tensor | tf.RaggedTensor,
    ) -> Encoded:
        """Builds the features of a batch of `INPUTS`, padded or ragged."""
        return self.encode(query, find_units(titles, texts, self.kind))

    @abc.abstractmethod
    def encode(
        self, query: tf.Tensor | tf.RaggedTensor, units: Units
    ) -> Encoded:
        """Builds the features of queries and units; graph code."""

    def lay_out(
        self,
        query: tf.Tensor | tf.RaggedTensor,
        token_ids: tf.RaggedTensor,
        **values: tf.RaggedTensor,
    ) -> layout.Layout:
        """Lays out a query and the tokens of units; graph code.

        Token ids are `<int32>[batch, (paragraphs), (units), (tokens)]`.
        """
        query = tokenizers.sanitize(texts.without_padding(query))
        query_ids = layout.one_group(self.tokenizer.tokenize(query))
        return self.engine(
            {"query": query_ids, "document": token_ids}, values=values
        )

    @staticmethod
    def raw(record):
        """Converts a record; a section's title goes to its first paragraph.

        If a section has no paragraphs, its title is put before the next title.
        At the end of the document, the title gets an empty paragraph.
        """
        paragraphs, titles = [], []
        for section in record.sections:
            if section.title:
                titles.append(section.title)
            for texts_ in section.paragraphs:
                paragraphs.append((" ".join(titles), texts_))
                titles = []
        if titles:
            paragraphs.append((" ".join(titles), ()))
        return {
            "query": list(record.query),
            "titles": [title for title, _ in paragraphs],
            "texts": [list(texts_) for _, texts_ in paragraphs],
        }

    @staticmethod
    def count(
        record: DocumentRecord,
        view: RecordView,
        names: tuple[str | None, str | None] = ("paragraphs", "units"),
    ) -> dict[str, int]:
        """Counts cut units (see `count_cut`) and records without a query."""
        return {
            **record.counts,
            **count_cut(view, {"document": names}),
            "records_without_query": int(not record.query),
        }

    def describe(self, record):
        """Lists the names and values that `inspect` shows."""
        return [("query", ", ".join(record.query) or "none")]

    def name_global(self, record, section, group, unit):
        """Names a global token: `[CLS]`, `query 0`, `par 2` or `unit 2.0`."""
        if section == "cls":
            return "[CLS]"
        if section == "query":
            return f"query {unit}"
        return f"par {group}" if unit < 0 else f"unit {group}.{unit}"


def to_blocks(token_ids: tf.RaggedTensor, size: int) -> tf.RaggedTensor:
    """Cuts the tokens of documents into blocks; graph code.

    `<int32>[batch, (paragraphs), (units), (tokens)]` becomes `[batch, (blocks),
    (1), (tokens)]`. Example: in blocks of two, the paragraph of two units
    `[[[[7], [8, 9]]]]` becomes `[[[[7, 8]], [[9]]]]`.
    """
    # [batch, (tokens)]
    tokens = ragged_rows.merge(ragged_rows.merge(token_ids))
    size = tf.constant(size, tf.int64)
    lengths = tf.cast(tokens.row_lengths(), tf.int64)
    blocks = tf.math.floordiv(lengths + size - 1, size)
    # [all blocks]
    record = tf.repeat(tf.range(tokens.nrows()), blocks)
    splits = ragged_rows.cumulative(blocks)
    index = ragged_rows.index_in(record, splits)
    sizes = tf.minimum(size, tf.gather(lengths, record) - size * index)
    return layout.groups_of_one(
        tf.RaggedTensor.from_row_splits(
            tf.RaggedTensor.from_row_lengths(
                tokens.values, sizes, validate=False
            ),
            splits,
            validate=False,
        )
    )


def complete_units(config: Any, records: Iterable[Any]) -> Any:
    """Resolves a configuration's `units="auto"` from the records."""
    finder = UnitsFinder(config.units, config.HAS_BLOCKS)
    for record in records:
        finder.see(record)
    return dataclasses.replace(config, units=finder.found)


def _has_sentence_end(text: str) -> bool:
    """Returns whether a text has punctuation that can end a sentence."""
    return bool(_MARKS_ALONE.search(text)) or any(
        not _MARKS.isdisjoint(x[0]) for x in _PUNCTUATION.finditer(text)
    )


class UnitsFinder:
    """Resolves `units="auto"` from the structure of all records.

    Args:
        kind: the configured kind of units; "auto" is resolved.
        has_blocks: whether units may be blocks.
    """

    def __init__(self, kind: str, has_blocks: bool = True):
        self._kind = kind
        self._has_blocks = has_blocks
        self._given = self._structured = self._total = 0

    def see(self, record):
        """Counts how a record is structured, and returns it."""
        self._total += 1
        self._given += record.has_units
        texts_ = [t for s in record.sections for p in s.paragraphs for t in p]
        has_sentences = any(map(_has_sentence_end, texts_))
        self._structured += len(texts_) > 1 or has_sentences
        return record

    @property
    def found(self) -> str:
        """The kind of units, determined from the counted records.

        Raises a `UserError` if paragraphs are lists of texts in only some of
        the records.
        """
        if self._kind != "auto":
            return self._kind
        if self._given == self._total > 0:
            return "texts"
        if self._given:
            raise UserError(
                f"In {self._given} of {self._total} records, paragraphs are "
                "lists of texts, in the others strings. Use one form, or set "
                "`units=texts` or `units=sentences`."
            )
        # Needs half of the records to be without structure, since structured
        # data may also have some records of a single sentence.
        if self._has_blocks and 2 * self._structured <= self._total:
            return "blocks"
        return "sentences"
