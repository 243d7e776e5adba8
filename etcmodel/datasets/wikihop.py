"""WikiHop (part of QAngaroo): official files and accuracy.

Source: https://qangaroo.cs.ucl.ac.uk; Welbl et al., "Constructing Datasets for
Multi-hop Reading Comprehension Across Documents", 2018.
"""

from collections.abc import Mapping

from etcmodel.datasets.normalized_texts import normalize
from etcmodel.datasets.predictions import write_predictions as write_predictions
from etcmodel.errors import show
from etcmodel.readers.json_stream import read_json_array
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Text


class WikiHopRecord(Record, frozen=True):
    """One question about a set of documents, with candidate answers.

    Attributes:
        query: the question, such as `"country_of_citizenship jan novak"`.
        supports: the documents.
        candidates: the candidate answers as written in the file.
        answer: the right candidate as written in the file; None if the file has
            none.
    """

    id: Text
    query: Text
    supports: tuple[str, ...]
    candidates: tuple[Text, ...]
    answer: str | None = None

    @property
    def answer_index(self) -> int | None:
        """Index of the candidate that is the answer; None if there is none.

        This is the first candidate that equals the answer by the official
        metric, or else the first that equals it after normalization (see
        `normalized_texts`).
        """
        if self.answer is None:
            return None
        for compared in (
            normalize_answer,
            lambda x: normalize_answer(normalize(x)),
        ):
            candidates = list(map(compared, self.candidates))
            if compared(self.answer) in candidates:
                return candidates.index(compared(self.answer))
        return None


def normalize_answer(text: str) -> str:
    """Normalizes an answer: `" The Hague "` becomes `"the hague"`."""
    return text.strip().lower()


def _check(record: WikiHopRecord, split: str) -> None:
    if split == "predict":
        return
    if not record.candidates:
        raise record.error(
            "empty 'candidates'",
            field="candidates",
            problem="it is empty, expected a list of at least one string",
        )
    if split == "train" and not any(x.strip() for x in record.supports):
        raise record.error(
            "no documents with text",
            field="supports",
            problem=(
                f"none of its {len(record.supports)} documents has any text, "
                "expected at least one"
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
    """Returns the right answer; None if the file has none.

    Returns the answer as written in the file if it equals the right candidate
    by the official metric, and otherwise the candidate.
    """
    index = record.answer_index
    if index is None:
        return record.answer
    candidate = record.candidates[index]
    is_same = normalize_answer(candidate) == normalize_answer(record.answer)
    return record.answer if is_same else candidate


def score(
    predictions: Mapping[str, str], gold: Mapping[str, str]
) -> dict[str, float]:
    """Computes the official metric: `accuracy`, the share of right answers.

    Case and surrounding spaces are ignored. The result is 0 without questions.
    """
    correct = sum(
        normalize_answer(predictions[name]) == normalize_answer(answer)
        for name, answer in gold.items()
        if name in predictions
    )
    return {"accuracy": correct / max(len(gold), 1)}
