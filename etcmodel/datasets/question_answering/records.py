"""Questions about documents, from the user's rows or from SQuAD's files.

A row has a `question`, a document (see `sectioned`) and `answers` or `answer`:

    {"id": "1", "question": "Where is Brno?", "text": "Brno is in Moravia.",
     "answers": [{"text": "Moravia", "answer_start": 11}]}

The answers are a string, a list of strings, a list like the one above, or
`{"text": [...], "answer_start": [...]}`. For a string or a list of strings, the
row may have the offsets in a field `answer_start`. "yes" and "no" without
`answer_start` are the answers yes and no, not parts of the text. An empty list,
an empty string or `"is_impossible": true` means that the document has no
answer. `"is_impossible": false` without an answer means that the answer is
unknown.
"""

import functools
from typing import Literal

import msgspec

from etcmodel.datasets import unit_positions
from etcmodel.datasets.question_answering import squad
from etcmodel.datasets.question_answering.places import AnswerFinder
from etcmodel.datasets.question_answering.places import Place
from etcmodel.datasets.unit_positions import Position
from etcmodel.errors import show
from etcmodel.readers import row_formats
from etcmodel.readers import sectioned
from etcmodel.readers.records import Format
from etcmodel.readers.sectioned import DocumentRecord
from etcmodel.readers.sectioned import Fields
from etcmodel.readers.sectioned import Row

ANSWER_FIELDS = ("answers", "answer")
EVIDENCE_FIELDS = ("evidence", "supporting_facts")
_QUESTION_FIELDS = ("question", "query")
_START = "answer_start"
_IMPOSSIBLE = "is_impossible"
_ADVICE_NO_ANSWER = (
    "If the document has no answer, write [] and leave out "
    f"{_IMPOSSIBLE!r} or set it to true. {sectioned.NO_LABEL}"
)
_EXPECTED = (
    'a string, a list of strings, or a list of {"text": "...", '
    '"answer_start": 0}; for yes-no questions "yes" or "no"'
)


class Answer(msgspec.Struct, frozen=True):
    """One form of the answer.

    Attributes:
        text: the text in the file.
        place: the answer's place in the document, if the file has an offset: at
            the offset, or else the nearest occurrence. None if the document
            does not contain the answer, or the file has no offset; then
            `answer_spans.find_answers` finds all occurrences.
    """

    text: str
    place: Place | None = None


class QuestionRecord(DocumentRecord, frozen=True):
    """A question about a document; the only item of `query` is the question.

    Attributes:
        answers: the forms of the answer; empty if the document has no answer,
            None if the answer is unknown.
        answer_type: type of the first answer: "span" for a part of the
            document, "yes", "no" or "none".
        evidence: positions of the texts that the answer follows from, like
            `SelectionRecord.selected`; None if they are unknown.
        evidence_texts: the evidence as texts, like
            `SelectionRecord.selected_texts`.
        answers_moved: number of answers found elsewhere than at their offsets.
        answers_not_in_text: number of answers that are not in the document.
    """

    answers: tuple[Answer, ...] | None = None
    answer_type: Literal["span", "yes", "no", "none"] = "none"
    evidence: tuple[Position, ...] | None = None
    evidence_texts: tuple[str, ...] = ()
    answers_moved: int = 0
    answers_not_in_text: int = 0

    @property
    def question(self) -> str:
        """The question, which is the only item of `query`."""
        return self.query[0]

    @property
    def counts(self):
        """Number of moved and of missing answers, reported to the user."""
        return {
            "answers_moved": self.answers_moved,
            "answers_not_in_text": self.answers_not_in_text,
        }


def _question(row: Row) -> tuple[str, ...]:
    name = row.fields.query
    field = row.find(name, _QUESTION_FIELDS)
    if field is None:
        names = (name,) if name else _QUESTION_FIELDS
        raise row.missing(names, "a string with some text", "query_field")
    value = sectioned.given_text(row.values[field])
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return (row.text(field, value, may_be_empty=False, is_cell=True),)


class _AnswerReader:
    def __init__(self, row: Row):
        self._row = row

    def read(self) -> list[tuple[str, int | None]] | None:
        """Returns answers and their offsets; None if they are unknown."""
        row = self._row
        is_impossible = row.values.get(_IMPOSSIBLE)
        if row.flag(_IMPOSSIBLE, is_impossible):
            return []
        field = row.find(row.fields.label, ANSWER_FIELDS)
        if field is None:
            return None
        value = sectioned.given_text(row.values[field])
        start = row.values.get(_START)
        if isinstance(start, list) and len(start) == 1:
            # Treats a list of one offset as a single offset.
            if not isinstance(value, list | dict):
                (start,) = start
        if isinstance(value, str) or sectioned.is_number(value):
            text = row.text(field, value, is_cell=True)
            found = [(text, self._offset(_START, start))]
        elif isinstance(value, dict):
            found = self._columns(field, value)
        elif not isinstance(value, list):
            raise row.wrong(field, value, _EXPECTED)
        elif _has_offsets(value, start):
            found = self._pairs(field, value, _START, start)
        else:
            found = [
                self._item(f"{field}[{i}]", x) for i, x in enumerate(value)
            ]
        answers = [x for x in dict.fromkeys(found) if x[0].strip()]
        # With "is_impossible": false, an answer exists, but the row lacks it.
        is_denied = not answers and is_impossible not in (None, "")
        return None if is_denied else answers

    def _item(self, place: str, value: object) -> tuple[str, int | None]:
        if isinstance(value, str) or sectioned.is_number(value):
            return self._row.text(place, value, is_cell=True), None
        if not isinstance(value, dict) or "text" not in value:
            raise self._row.wrong(
                place, value, 'a string or {"text": "...", "answer_start": 0}'
            )
        return (
            self._row.text(f"{place}.text", value["text"], is_cell=True),
            self._offset(f"{place}.{_START}", value.get(_START)),
        )

    def _columns(self, field: str, value: dict) -> list:
        """Reads answers in Hugging Face's format, a dict of lists."""
        texts, starts = value.get("text"), value.get(_START)
        if isinstance(texts, str):
            return [self._item(field, value)]
        if not isinstance(texts, list):
            raise self._row.wrong(field, value, _EXPECTED)
        return self._pairs(f"{field}.text", texts, f"{field}.{_START}", starts)

    def _pairs(self, text_field, texts, start_field, starts) -> list:
        """Reads a list of texts and the list of their offsets."""
        if starts is None:
            starts = [None] * len(texts)
        if not isinstance(starts, list) and len(texts) == 1:
            starts = [starts]
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise self._row.wrong(
                start_field,
                starts,
                f"a list of {len(texts)} whole numbers, one for each text",
            )
        return [
            (
                self._row.text(f"{text_field}[{i}]", text, is_cell=True),
                self._offset(f"{start_field}[{i}]", start),
            )
            for i, (text, start) in enumerate(zip(texts, starts, strict=True))
        ]

    def _offset(self, place: str, value: object) -> int | None:
        if value is None or value == "":
            return None
        value = sectioned.whole(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._row.wrong(
                place,
                value,
                "a whole number: the position of the answer's first character "
                "in the text, from 0",
            )
        # Some files have -1 for answers with an unknown offset.
        return value if value >= 0 else None


def _has_offsets(answers: list, start: object) -> bool:
    """Returns whether a row has offsets for a list of strings."""
    if start in (None, "") or any(isinstance(x, dict) for x in answers):
        return False
    return bool(answers) or isinstance(start, list)


def _type_of(text: str, start: int | None) -> str:
    word = text.strip().lower()
    return word if start is None and word in ("yes", "no") else "span"


def _make(allow_no_answer: bool, units: str, row: Row) -> QuestionRecord:
    query = _question(row)
    document = row.document()
    found = _AnswerReader(row).read()
    if not found and not allow_no_answer:
        found = None
    answers, finder = [], AnswerFinder(document)
    answer_type = _type_of(*found[0]) if found else "none"
    for text, start in found or ():
        place = None
        if _type_of(text, start) == "span":
            place = finder.find(text, start)
        answers.append(Answer(text, place))
    evidence, evidence_texts = None, ()
    field = row.find(row.fields.evidence, EVIDENCE_FIELDS)
    if field is not None and row.values[field] != "":
        evidence, evidence_texts = unit_positions.read_selected(
            row, field, document, units
        )
    return QuestionRecord(
        id=row.id,
        sections=document.sections,
        query=query,
        has_units=document.has_units,
        answers=None if found is None else tuple(answers),
        answer_type=answer_type,
        evidence=evidence,
        evidence_texts=evidence_texts,
        answers_moved=finder.num_moved,
        answers_not_in_text=finder.num_missing,
        source=row.source,
    )


def _check(field: str, record: QuestionRecord, split: str) -> None:
    if split == "predict":
        return
    if record.answers is None:
        raise record.missing_answer(
            "answer", field, None, split, _ADVICE_NO_ANSWER
        )
    texts = [x.text for x in record.answers]
    if split == "train" and texts and len(texts) == record.answers_not_in_text:
        raise record.error(
            "answer is not in the document",
            field=field,
            problem=(
                f"got {show(texts[0])}, expected a part of the document, "
                '"yes" or "no"'
            ),
        )


def _read_squad(fields: Fields, path: str, on_position):
    if squad.is_squad(path):
        return squad.read_questions(path, on_position, fields)
    return None


def make_format(
    text_field: str | None = None,
    query_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    evidence_field: str | None = None,
    allow_no_answer: bool = True,
    units: str = "auto",
    title_field: str | None = None,
) -> Format:
    """Returns the format of questions, as rows or in SQuAD's files.

    Each `..._field` is the name of a field, instead of the usual names (see
    `sectioned.Fields`). Without `allow_no_answer`, rows without an answer are
    errors, except in the split "predict". `units` sets the units that evidence
    consists of (see `unit_positions.read_selected`).

    Raises:
        ValueError: `units` is unknown.
    """
    unit_positions.check_units(units)
    fields = Fields(
        text=text_field,
        query=query_field,
        id=id_field,
        label=label_field,
        evidence=evidence_field,
        title=title_field,
    )
    field = label_field or ANSWER_FIELDS[0]
    return row_formats.row_format(
        functools.partial(_make, allow_no_answer, units),
        functools.partial(_check, field),
        fields,
        f'"{query_field or "question"}": "...", "{text_field or "text"}": '
        f'"...", "{field}": ["...", ...]',
        ANSWER_FIELDS,
        EVIDENCE_FIELDS,
        (_START, _IMPOSSIBLE),
        read_other=functools.partial(_read_squad, fields),
    )


FORMAT = make_format()
