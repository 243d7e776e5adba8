"""Reads the official Natural Questions files, original and simplified.

Source: https://ai.google.com/research/NaturalQuestions; Kwiatkowski et al.,
"Natural Questions: a Benchmark for Question Answering Research", 2019.

Both formats are JSON lines. The original format has a list `document_tokens`.
The simplified format has a string `document_text`: the tokens, joined by single
spaces. Fields that `NQRecord` does not use, such as `document_html`, byte
offsets and `candidate_index`, may be missing.
"""

from typing import Annotated
from typing import Literal

import msgspec

from etcmodel.readers.json_stream import read_json_lines
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.records import Text

_SPAN_FIELDS = {"start": "start_token", "end": "end_token"}
_YES_NO = Literal["NONE", "YES", "NO"]
# Ids are integers in the official files, and strings in Kaggle's test file.
_Id = Annotated[
    int | Text, msgspec.Meta(description="a whole number or a string")
]


class Candidate(msgspec.Struct, frozen=True, rename=_SPAN_FIELDS):
    """A part of the page that may be the long answer, as a span of tokens.

    `top_level` is True if no other candidate contains this one.
    """

    start: int
    end: int
    top_level: bool


class Annotation(msgspec.Struct, frozen=True):
    """The answer of one annotator.

    Attributes:
        long_start: first token of the long answer; -1 if there is none.
        long_end: exclusive end of the long answer; -1 if there is none.
        short_answers: first token and exclusive end of every piece of the short
            answer.
        yes_no: `"yes"`, `"no"`, or `"none"` if the answer is neither.
    """

    long_start: int
    long_end: int
    short_answers: tuple[tuple[int, int], ...]
    yes_no: str


class NQRecord(Record, frozen=True):
    """One question about a Wikipedia page.

    Attributes:
        question: the question.
        tokens: the words and the HTML tags of the page.
        is_html: whether each token is an HTML tag.
        candidates: the parts of the page that may be the long answer.
        annotations: the answers of the annotators; None if the file has none.
    """

    id: str
    question: str
    tokens: tuple[str, ...]
    is_html: tuple[bool, ...]
    candidates: tuple[Candidate, ...]
    annotations: tuple[Annotation, ...] | None = None

    @property
    def top_level_candidates(self) -> tuple[Candidate, ...]:
        """The candidates that no other candidate contains."""
        return tuple(x for x in self.candidates if x.top_level)


class _Token(msgspec.Struct):
    token: str
    html_token: bool


class _Span(msgspec.Struct, rename=_SPAN_FIELDS):
    start: int
    end: int


class _Annotation(msgspec.Struct):
    long_answer: _Span
    short_answers: list[_Span]
    yes_no_answer: _YES_NO


class _Json(msgspec.Struct):
    """A record as JSON, in the original or the simplified format."""

    example_id: _Id
    question_text: Text
    long_answer_candidates: tuple[Candidate, ...]
    document_tokens: list[_Token] | None = None
    document_text: str | None = None
    annotations: list[_Annotation] | None = None


def _make(value: _Json, source: Source) -> NQRecord:
    record_id, field = str(value.example_id), "document_tokens"
    if value.document_tokens is not None:
        tokens = [token.token for token in value.document_tokens]
        is_html = [token.html_token for token in value.document_tokens]
    elif value.document_text is not None:
        field = "document_text"
        # Splits only at single spaces: some tokens contain other white space.
        tokens = value.document_text.split(" ")
        is_html = [x[:1] == "<" and x[-1:] == ">" for x in tokens]
    else:
        raise source.error(
            f"no field {field!r}",
            record_id=record_id,
            field=field,
            problem=f"it is missing; expected {FORMAT.example}",
        )
    if not any(map(str.strip, tokens)):
        raise source.error(
            "no tokens",
            record_id=record_id,
            field=field,
            problem="it has no text, expected the page",
        )
    annotations = value.annotations
    if annotations is not None:
        annotations = tuple(
            Annotation(
                x.long_answer.start,
                x.long_answer.end,
                tuple((span.start, span.end) for span in x.short_answers),
                x.yes_no_answer.lower(),
            )
            for x in annotations
        )
    # Interns words, so that each distinct word is in memory only once.
    words: dict[str, str] = {}
    return NQRecord(
        id=record_id,
        question=value.question_text,
        tokens=tuple(map(words.setdefault, tokens, tokens)),
        is_html=tuple(is_html),
        candidates=value.long_answer_candidates,
        annotations=annotations,
        source=source,
    )


def _check_span(
    record: NQRecord, start: int, end: int, field: str, what: str
) -> None:
    if not 0 <= start < end <= len(record.tokens):
        raise record.error(
            f"{what} is not a span of the page",
            field=field,
            problem=(
                f"got start_token {start} and end_token {end}, expected 0 <= "
                "start_token < end_token <= number of tokens, here "
                f"{len(record.tokens)}"
            ),
        )


def _check(record: NQRecord, split: str) -> None:
    for i, x in enumerate(record.candidates):
        field = f"long_answer_candidates[{i}]"
        _check_span(record, x.start, x.end, field, "a candidate")
    for i, annotation in enumerate(record.annotations or ()):
        field = f"annotations[{i}].long_answer"
        start, end = annotation.long_start, annotation.long_end
        if (start == -1) != (end == -1):
            raise record.error(
                "half a long answer",
                field=field,
                problem=(
                    f"got start_token {start} and end_token {end}, expected "
                    "-1 for both (no long answer) or for neither"
                ),
            )
        if start != -1:
            _check_span(record, start, end, field, "a long answer")
        for j, span in enumerate(annotation.short_answers):
            field = f"annotations[{i}].short_answers[{j}]"
            _check_span(record, *span, field, "a short answer")
    if split != "predict" and not record.annotations:
        raise record.missing_answer(
            "annotations", "annotations", record.annotations, split
        )


FORMAT = Format(
    _Json,
    'a Natural Questions record {"example_id": 1, "question_text": "...", '
    '"document_tokens": [{"token": "...", "html_token": false}, ...] or '
    '"document_text": "...", "long_answer_candidates": [{"start_token": 0, '
    '"end_token": 9, "top_level": true}, ...], "annotations": '
    '[{"long_answer": {"start_token": 0, "end_token": 9}, "short_answers": '
    '[{"start_token": 1, "end_token": 2}], "yes_no_answer": "NONE"}]}',
    read_json_lines,
    _check,
    _make,
    id_field="example_id",
)
