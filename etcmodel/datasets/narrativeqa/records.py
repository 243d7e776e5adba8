"""Reads NarrativeQA's official csv files and their stories.

The folders are those of the official repository, whose script downloads the
stories:

    qaps.csv
    stories/72ddeff1fe6bb9841d1c1da4b3031001bf6b1f58.content

Source: https://github.com/google-deepmind/narrativeqa; Kočiský et al., "The
NarrativeQA Reading Comprehension Challenge", 2018.
"""

import collections
import functools
import os
from collections.abc import Iterator
from collections.abc import Mapping
from typing import IO

import msgspec

from etcmodel.datasets.narrativeqa import stories
from etcmodel.datasets.predictions import write_lines
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import files
from etcmodel.readers import json_stream
from etcmodel.readers import json_values
from etcmodel.readers import tables
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.records import Text

_COLUMNS = ("document_id", "set", "question", "answer1", "answer2")
SETS = ("all", "train", "valid", "test")


class NarrativeQARecord(Record, frozen=True):
    """One question about a story.

    Attributes:
        id: `"<document id>: <question>"`. The second of two equal questions
            about a story ends with " (2)", and so on.
        question: the question.
        text: the story; see `stories.clean`.
        answers: one or two human answers; None if the file has none.
    """

    id: str
    question: str
    text: str
    answers: tuple[str, ...] | None = None


class _Row(msgspec.Struct):
    """A row; `problem` is empty, or an error: reason, problem, advice."""

    id: str
    document_id: Text
    question: Text
    answer1: str
    answer2: str
    problem: tuple[str, ...]


def _read_rows(
    path: str,
    on_position: json_stream.OnPosition = None,
    record: type | None = None,
    which: str = "all",
) -> Iterator[tuple[json_stream.Place, object]]:
    """Yields the rows of a set, with their numbers in the whole file."""
    del record
    rows = tables.read_cells(path, on_position, ",")
    _, head = next(rows, (0, []))
    if any(json_values.INVALID_UTF8_MARK in x for x in head):
        raise UserError(
            f"{path}: the first line is not UTF-8. Convert the file to UTF-8."
        )
    missing = [x for x in _COLUMNS if x not in head]
    if missing:
        raise UserError(
            f"{path} lacks the columns {', '.join(missing)}. Expected "
            f"NarrativeQA's qaps.csv, whose first line is {','.join(_COLUMNS)}"
            ",..."
        )
    times = collections.Counter()
    for index, (line, cells) in enumerate(rows):
        row = dict.fromkeys(head, "") | dict(zip(head, cells, strict=False))
        problem = ()
        if len(cells) != len(head):
            # Reported for every set, since the set of such a row is uncertain.
            problem = (
                "wrong number of columns",
                f"it has {len(cells)} columns, expected {len(head)}",
                "Put quotes around cells with commas",
            )
        elif which != "all" and row["set"] not in SETS[1:]:
            problem = (
                "unknown set",
                f"its set is {show(row['set'])}, expected train, valid or test",
                "Correct it, or read all sets",
            )
        elif which not in ("all", row["set"]):
            continue
        name = f"{row['document_id']}: {row['question']}"
        times[name] += 1
        if times[name] > 1:
            name += f" ({times[name]})"
        # Removes the mark of invalid UTF-8 from the id, so that the error names
        # the field that has it.
        name = name.replace(json_values.INVALID_UTF8_MARK, "\ufffd")
        values = {x: row[x] for x in _COLUMNS}
        place = json_stream.Place(index, line)
        yield place, {"id": name, "problem": problem, **values}


# Cached, since the questions of a story are adjacent.
_load_story = functools.lru_cache(maxsize=4)(stories.load)


def _make(row: _Row, source: Source) -> NarrativeQARecord:
    error = functools.partial(source.error, record_id=row.id)
    if row.problem:
        reason, problem, advice = row.problem
        raise error(reason, problem=problem, advice=advice)
    folder = os.path.dirname(files.full_name(source.path))
    path = os.path.join(folder, "stories", f"{row.document_id}.content")
    try:
        if not files.is_below(row.document_id):
            raise UserError(
                f"{show(row.document_id)} points outside the folder `stories`."
            )
        text = _load_story(path)
        if not text:
            raise UserError(f"{path} has no text.")
    except UserError as cause:
        raise error(
            "no story",
            field="document_id",
            problem=f"its story cannot be read: {cause}".removesuffix("."),
            advice=(
                "Download the stories to the folder `stories` beside the csv "
                "file"
            ),
        ) from None
    answers = tuple(x for x in (row.answer1, row.answer2) if x.strip())
    return NarrativeQARecord(
        id=row.id,
        question=row.question,
        text=text,
        answers=answers or None,
        source=source,
    )


def _check(record: NarrativeQARecord, split: str) -> None:
    if split != "predict" and not record.answers:
        raise record.missing_answer("answer", "answer1", "", split)


# Set of questions -> its format.
FORMATS = {
    name: Format(
        _Row,
        "a row of NarrativeQA's qaps.csv",
        functools.partial(_read_rows, which=name),
        _check,
        _make,
    )
    for name in SETS
}
FORMAT = FORMATS["all"]


def make_format(data_split: str) -> Format:
    """Returns the format that reads the questions of one set of `FORMATS`.

    Raises:
        ValueError: the set does not exist.
    """
    if data_split not in FORMATS:
        raise ValueError(
            f"data_split is {data_split!r}, expected one of "
            f"{', '.join(FORMATS)}."
        )
    return FORMATS[data_split]


def gold(record: NarrativeQARecord) -> tuple[str, ...] | None:
    """Returns the human answers; None if the file has none."""
    return record.answers


def write_predictions(predictions: Mapping[str, str], stream: IO[str]) -> None:
    """Writes lines `{"id": "<document id>: <question>", "answer": "..."}`."""
    lines = ({"id": key, "answer": x} for key, x in predictions.items())
    write_lines(lines, stream)
