"""Reads the official WikiHop (QAngaroo) JSON files.

Source: https://qangaroo.cs.ucl.ac.uk; Welbl et al., "Constructing Datasets for
Multi-hop Reading Comprehension Across Documents", 2018.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator

from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import show
from etcmodel.tasks.json_stream import read_json_array
from etcmodel.tasks.record_fields import RecordFields

SPLITS = ("train", "predict")

_FORMAT = (
    'a WikiHop record {"id": "...", "query": "...", "supports": ["...", ...], '
    '"candidates": ["...", ...], "answer": "..."}'
)


@dataclasses.dataclass(frozen=True)
class WikiHopRecord:
    """One question about a set of documents, with candidate answers.

    Attributes:
        id: unique within its file.
        query: the question, such as `"country_of_citizenship jan novak"`.
        supports: the documents.
        candidates: the candidate answers as they stand in the file.
        answer: the right candidate as it stands in the file; None if the file
            does not tell.
        index: position of the record in its file, from 0.
    """

    id: str
    query: str
    supports: tuple[str, ...]
    candidates: tuple[str, ...]
    answer: str | None = None
    index: int = 0

    @property
    def answer_index(self) -> int | None:
        """Index of the first candidate that equals the answer; None if none."""
        if self.answer is None:
            return None
        answer = normalize_answer(self.answer)
        for index, candidate in enumerate(self.candidates):
            if normalize_answer(candidate) == answer:
                return index
        return None


def normalize_answer(text: str) -> str:
    """What is compared when answers are compared.

    Args:
        text: an answer or a candidate.

    Returns:
        The text in lower case without surrounding space:
        `" The Hague "` -> `"the hague"`.
    """
    return text.strip().lower()


def _parse(
    path: str, index: int, value: object, split: str, seen: set[str]
) -> WikiHopRecord:
    fields = RecordFields(path, index, value, _FORMAT)
    record = WikiHopRecord(
        id=fields.identifier("id", seen),
        query=fields.string("query"),
        supports=fields.strings("supports"),
        candidates=fields.strings("candidates"),
        answer=fields.string("answer") if "answer" in fields else None,
        index=index,
    )
    if not record.query.strip():
        raise fields.error("empty query", field="query", problem="it is empty")
    if not record.candidates:
        raise fields.error(
            "no candidates",
            field="candidates",
            problem="it is empty, expected at least one candidate answer",
        )
    for position, candidate in enumerate(record.candidates):
        if not candidate.strip():
            raise fields.error(
                "empty candidate",
                field=f"candidates[{position}]",
                problem=f"got {show(candidate)}, expected some text",
            )
    if not any(document.strip() for document in record.supports):
        raise fields.error(
            "no documents with text",
            field="supports",
            problem=(
                f"none of its {len(record.supports)} documents has any text"
            ),
        )
    if split != "predict":
        if record.answer is None:
            raise fields.error(
                "no answer",
                field="answer",
                problem="it is missing, but training needs it",
                advice="If this file has no answers use --split=predict",
            )
        if record.answer_index is None:
            raise fields.error(
                "answer is not a candidate",
                field="answer",
                problem=(
                    f"got {show(record.answer)}, expected one of its "
                    f"{len(record.candidates)} candidates "
                    f"{show(list(record.candidates))}"
                ),
            )
    return record


def read_records(
    path: str,
    split: str = "train",
    bad_records: BadRecords | None = None,
    on_position: Callable[[int], None] | None = None,
) -> Iterator[WikiHopRecord]:
    """Yields the records of an official WikiHop file one by one.

    Args:
        path: a JSON array of records, plain or gzipped.
        split: `"train"` if every record must have an answer among its
            candidates (compared in lower case, without surrounding space),
            `"predict"` if not.
        bad_records: what to do with records that cannot be used; raise, by
            default.
        on_position: called with the number of bytes read so far.

    Yields:
        The usable records in the order of the file.

    Raises:
        RecordError: a record is not a WikiHop record: no object, a field is
            missing or of a wrong type, an id twice, no candidates, an empty
            candidate, no text in any document, bytes that are not UTF-8, or an
            answer that is missing or not among the candidates.
        UserError: the file cannot be read, or is no JSON array.
        ValueError: unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
    bad_records = bad_records or BadRecords()
    seen: set[str] = set()
    for index, value in read_json_array(path, on_position):
        try:
            record = _parse(path, index, value, split, seen)
        except RecordError as error:
            bad_records.report(error)
            continue
        yield record
