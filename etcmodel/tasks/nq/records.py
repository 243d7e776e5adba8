"""Reads the official Natural Questions files, original and simplified.

Source: https://ai.google.com/research/NaturalQuestions; Kwiatkowski et al.,
"Natural Questions: a Benchmark for Question Answering Research", 2019.

Both formats are JSON lines, and a record's fields tell them apart. The original
one has the list `document_tokens`; in the simplified one they are joined by
single spaces to `document_text`. Only the fields that `NQRecord` is made of are
read: `document_html`, byte offsets, `annotation_id`, `candidate_index` and the
like may be absent.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator

from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import show
from etcmodel.tasks.json_stream import read_json_lines
from etcmodel.tasks.record_fields import Fields
from etcmodel.tasks.record_fields import RecordFields

SPLITS = ("train", "dev", "predict")

_FORMAT = (
    'a Natural Questions record {"example_id": 1, "question_text": "...", '
    '"document_tokens": [{"token": "...", "html_token": false}, ...] or '
    '"document_text": "...", "long_answer_candidates": [{"start_token": 0, '
    '"end_token": 9, "top_level": true}, ...], "annotations": '
    '[{"long_answer": {"start_token": 0, "end_token": 9}, "short_answers": '
    '[{"start_token": 1, "end_token": 2}], "yes_no_answer": "NONE"}]}'
)
_YES_NO = {"NONE": "none", "YES": "yes", "NO": "no"}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A part of the page that may be the long answer.

    Attributes:
        start: its first token.
        end: the token after its last one.
        top_level: whether it lies inside no other candidate.
    """

    start: int
    end: int
    top_level: bool


@dataclasses.dataclass(frozen=True)
class Annotation:
    """What one person answered.

    Attributes:
        long_start: first token of the long answer; -1 if there is none.
        long_end: the token after its last one; -1 if there is none.
        short_answers: first token, and the token after the last one, of every
            piece of the short answer.
        yes_no: `"yes"`, `"no"`, or `"none"` if the answer is neither.
    """

    long_start: int
    long_end: int
    short_answers: tuple[tuple[int, int], ...]
    yes_no: str


@dataclasses.dataclass(frozen=True)
class NQRecord:
    """One question about a Wikipedia page.

    Attributes:
        id: unique within its file.
        question: the question.
        tokens: the words of the page, and its HTML tags.
        is_html: for every token whether it is an HTML tag.
        candidates: the parts of the page that may be the long answer.
        annotations: the answers; None if the file does not tell.
        index: position of the record in its file, from 0.
    """

    id: str
    question: str
    tokens: tuple[str, ...]
    is_html: tuple[bool, ...]
    candidates: tuple[Candidate, ...]
    annotations: tuple[Annotation, ...] | None = None
    index: int = 0

    @property
    def top_level_candidates(self) -> tuple[Candidate, ...]:
        """The candidates that lie inside no other one."""
        return tuple(
            candidate for candidate in self.candidates if candidate.top_level
        )


def _original_tokens(fields: RecordFields) -> tuple[list[str], list[bool]]:
    items = fields.items("document_tokens", "a list of JSON objects")
    # A page may have 150,000 tokens: look closer only if one of them is wrong.
    try:
        tokens = [item["token"] for item in items]
        is_html = [item["html_token"] for item in items]
        good = {str}.issuperset(map(type, tokens)) and {bool}.issuperset(
            map(type, is_html)
        )
    except (KeyError, TypeError):
        good = False
    if not good:
        for token in fields.mappings("document_tokens"):
            token.string("token")
            token.boolean("html_token")
        raise AssertionError("a wrong token was not found again")
    return tokens, is_html


def _simplified_tokens(fields: RecordFields) -> tuple[list[str], list[bool]]:
    # By single spaces alone: some tokens are, or have, other white space.
    tokens = fields.string("document_text").split(" ")
    return tokens, [token[:1] == "<" and token[-1:] == ">" for token in tokens]


def _tokens(
    fields: RecordFields,
) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    if "document_text" in fields and "document_tokens" not in fields:
        field = "document_text"
        tokens, is_html = _simplified_tokens(fields)
    else:
        field = "document_tokens"
        tokens, is_html = _original_tokens(fields)
    if not any(map(str.strip, tokens)):
        raise fields.error(
            "no tokens",
            field=field,
            problem="it has no text, expected the page",
        )
    # Every word is kept in memory once, however often it comes.
    words: dict[str, str] = {}
    return tuple(map(words.setdefault, tokens, tokens)), tuple(is_html)


def _span(fields: Fields, num_tokens: int, what: str) -> tuple[int, int]:
    """The token span of a candidate or an answer."""
    start = fields.integer("start_token")
    end = fields.integer("end_token")
    if not 0 <= start < end <= num_tokens:
        raise fields.error(
            f"{what} that is no span of the page",
            problem=(
                f"got start_token {show(start)} and end_token {show(end)}, "
                "expected 0 <= start_token < end_token <= number of tokens, "
                f"here {num_tokens}"
            ),
        )
    return start, end


def _long_answer(fields: Fields, num_tokens: int) -> tuple[int, int]:
    start = fields.integer("start_token")
    end = fields.integer("end_token")
    if (start, end) == (-1, -1):
        return start, end
    if -1 in (start, end):
        raise fields.error(
            "half a long answer",
            problem=(
                f"got start_token {show(start)} and end_token {show(end)}, "
                "expected both to be -1 (no long answer) or none of them"
            ),
        )
    return _span(fields, num_tokens, "a long answer")


def _annotation(fields: Fields, num_tokens: int) -> Annotation:
    long_start, long_end = _long_answer(
        fields.mapping("long_answer"), num_tokens
    )
    short_answers = tuple(
        _span(answer, num_tokens, "a short answer")
        for answer in fields.mappings("short_answers")
    )
    yes_no = fields.string("yes_no_answer")
    if yes_no not in _YES_NO:
        raise fields.error(
            "unknown yes_no_answer",
            field="yes_no_answer",
            problem=f"got {show(yes_no)}, expected one of {list(_YES_NO)}",
        )
    return Annotation(long_start, long_end, short_answers, _YES_NO[yes_no])


def _parse(
    path: str, index: int, value: object, split: str, seen: set[str]
) -> NQRecord:
    fields = RecordFields(path, index, value, _FORMAT, id_field="example_id")
    record_id = fields.identifier("example_id", seen, integer=True)
    question = fields.string("question_text")
    if not question.strip():
        raise fields.error(
            "empty question", field="question_text", problem="it is empty"
        )
    tokens, is_html = _tokens(fields)
    candidates = tuple(
        Candidate(
            *_span(candidate, len(tokens), "a candidate"),
            candidate.boolean("top_level"),
        )
        for candidate in fields.mappings("long_answer_candidates")
    )
    annotations = None
    if "annotations" in fields:
        annotations = tuple(
            _annotation(annotation, len(tokens))
            for annotation in fields.mappings("annotations")
        )
    if split != "predict" and not annotations:
        missing = "missing" if annotations is None else "empty"
        raise fields.error(
            "no annotations",
            field="annotations",
            problem=f"it is {missing}, but the split {split!r} needs it",
            advice="If this file has no answers use --split=predict",
        )
    return NQRecord(
        id=record_id,
        question=question,
        tokens=tokens,
        is_html=is_html,
        candidates=candidates,
        annotations=annotations,
        index=index,
    )


def read_records(
    path: str,
    split: str = "train",
    bad_records: BadRecords | None = None,
    on_position: Callable[[int], None] | None = None,
) -> Iterator[NQRecord]:
    """Yields the records of an official Natural Questions file one by one.

    Args:
        path: one record a line, in the original or the simplified format;
            plain or gzipped.
        split: `"train"` or `"dev"` if every record must have an annotation,
            `"predict"` if not. Annotations that are there are read in any
            case.
        bad_records: what to do with records that cannot be used; raise, by
            default.
        on_position: called with the number of bytes read so far.

    Yields:
        The usable records in the order of the file.

    Raises:
        RecordError: a record is not a Natural Questions record: no object, a
            field is missing or of a wrong type, an id twice, an empty
            question, no tokens, a candidate or an answer that is no span of
            the page, half a long answer, an unknown `yes_no_answer`, bytes
            that are not UTF-8, or no annotations where the split needs them.
        UserError: the file cannot be read, or is not JSON lines.
        ValueError: unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
    bad_records = bad_records or BadRecords()
    seen: set[str] = set()
    for index, value in read_json_lines(path, on_position):
        try:
            record = _parse(path, index, value, split, seen)
        except RecordError as error:
            bad_records.report(error)
            continue
        # As JSON, a long page takes many times the memory of the record.
        del value
        yield record
