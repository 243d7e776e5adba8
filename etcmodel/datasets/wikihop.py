"""WikiHop (QAngaroo): official files and accuracy.

Source: https://qangaroo.cs.ucl.ac.uk; Welbl et al., "Constructing Datasets for
Multi-hop Reading Comprehension Across Documents", 2018.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import IO

from etcmodel.datasets.json_stream import read_json_array
from etcmodel.datasets.records import Format
from etcmodel.datasets.records import Record
from etcmodel.datasets.records import Text
from etcmodel.errors import show


class WikiHopRecord(Record, frozen=True):
    """One question about a set of documents, with candidate answers.

    Attributes:
        id: unique within its file.
        query: the question, such as `"country_of_citizenship jan novak"`.
        supports: the documents.
        candidates: the candidate answers as they stand in the file.
        answer: the right candidate as it stands in the file; None if the file
            does not tell.
    """

    id: Text
    query: Text
    supports: tuple[str, ...]
    candidates: tuple[Text, ...]
    answer: str | None = None

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


def _check(record: WikiHopRecord, split: str) -> None:
    if split == "predict":
        return
    if not record.candidates:
        raise record.error(
            "empty 'candidates'",
            field="candidates",
            problem="it is empty, expected a list of strings, at least one",
        )
    if not any(document.strip() for document in record.supports):
        raise record.error(
            "no documents with text",
            field="supports",
            problem=(
                f"none of its {len(record.supports)} documents has any text"
            ),
        )
    if record.answer is None:
        raise record.missing_answer("answer", "answer", None, split)
    if record.answer_index is None:
        raise record.error(
            "answer is not a candidate",
            field="answer",
            problem=(
                f"got {show(record.answer)}, expected one of its "
                f"{len(record.candidates)} candidates "
                f"{show(list(record.candidates))}"
            ),
        )


FORMAT = Format(
    WikiHopRecord,
    'a WikiHop record {"id": "...", "query": "...", "supports": ["...", ...], '
    '"candidates": ["...", ...], "answer": "..."}',
    read_json_array,
    _check,
)


def gold(record: WikiHopRecord) -> str | None:
    """The right answer; None if the file does not tell.

    Args:
        record: the record.

    Returns:
        The answer.
    """
    return record.answer


def write_predictions(predictions: Mapping[str, str], stream: IO[str]) -> None:
    """Writes `{id: answer}`, the official submission format.

    Args:
        predictions: record id -> answer.
        stream: what to write to.
    """
    json.dump(predictions, stream, indent=0, ensure_ascii=False)
    stream.write("\n")


@dataclasses.dataclass(frozen=True)
class WikiHopScore:
    """How many questions were answered right.

    Attributes:
        correct: number of right answers.
        total: number of questions that have an answer.
        missing: number of questions among them that were not answered; they
            count as wrong.
    """

    correct: int
    total: int
    missing: int

    @property
    def accuracy(self) -> float:
        """Share of right answers, from 0 to 1; 0 if there are no questions."""
        return self.correct / self.total if self.total else 0.0


def score_predictions(
    predictions: Mapping[str, str], answers: Mapping[str, str]
) -> WikiHopScore:
    """Compares predictions with the right answers, as the official script does.

    An answer is right if it equals the true one in lower case, without
    surrounding space:

        score_predictions({"a": "Oslo ", "b": "Rome"},
                          {"a": "oslo", "b": "paris", "c": "bonn"})
        -> WikiHopScore(correct=1, total=3, missing=1)

    Args:
        predictions: record id -> answer, as in a submission.
        answers: record id -> the true answer.

    Returns:
        The counts.
    """
    correct = missing = 0
    for record_id, answer in answers.items():
        if record_id not in predictions:
            missing += 1
        elif normalize_answer(predictions[record_id]) == normalize_answer(
            answer
        ):
            correct += 1
    return WikiHopScore(correct=correct, total=len(answers), missing=missing)


def score(
    predictions: Mapping[str, str], gold: Mapping[str, str]
) -> dict[str, float]:
    """The official metric.

    Args:
        predictions: record id -> answer.
        gold: record id -> the true answer.

    Returns:
        `accuracy`, from 0 to 1.
    """
    return {"accuracy": score_predictions(predictions, gold).accuracy}
