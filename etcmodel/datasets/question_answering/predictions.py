"""Writes predicted answers in SQuAD's format, and scores them."""

from collections.abc import Mapping
from typing import IO
from typing import NamedTuple

from etcmodel.datasets import predictions as answer_files
from etcmodel.datasets import unit_positions
from etcmodel.datasets.question_answering import metrics
from etcmodel.datasets.question_answering.records import QuestionRecord
from etcmodel.datasets.selection import unit_scores
from etcmodel.datasets.unit_positions import Selected
from etcmodel.datasets.unit_positions import Unit


class Gold(NamedTuple):
    """The gold answer and evidence of a question.

    Attributes:
        answers: the forms of the answer, or "yes" or "no"; empty if the
            document has no answer.
        evidence: the texts that the answer follows from; None if the row has
            none.
    """

    answers: tuple[str, ...]
    evidence: Selected | None = None


def gold(record: QuestionRecord) -> Gold | None:
    """Returns the answers and the evidence; None if the row has no answers."""
    if record.answers is None:
        return None
    evidence = record.evidence
    if evidence is not None:
        evidence = Selected(evidence, record.evidence_texts)
    return Gold(tuple(x.text for x in record.answers), evidence)


def stratum(record: QuestionRecord) -> str:
    """Returns the answer type, by which the validation split is stratified."""
    return record.answer_type


def write_predictions(
    predictions: Mapping[str, Mapping], stream: IO[str]
) -> None:
    """Writes `{id: answer}`, SQuAD's format; `""` means no answer."""
    answer_files.write_predictions(
        {key: x["answer"] for key, x in predictions.items()}, stream
    )


def score(
    predictions: Mapping[str, Mapping], gold: Mapping[str, Gold]
) -> dict[str, float]:
    """Scores answers and evidence, from 0 to 1.

    A question without a prediction scores 0.

    Args:
        predictions: record id -> dict with `"answer"`: a text, "yes", "no", or
            "" for no answer. If `gold` has evidence, the dict also has
            `"evidence"`: a list of `[paragraph, text]`. If the evidence in
            `gold` is texts, the list has tuples like `unit_positions.Unit` for
            all units of the document.
        gold: record id -> the right answers.

    Returns:
        `exact_match` and `f1`, means over questions. If some questions have no
        answer, the prefixes `has_ans_` and `no_ans_` mark these metrics for
        questions with and without an answer. If some questions have evidence,
        `evidence_precision`, `evidence_recall` and `evidence_f1` are means over
        these questions.
    """
    scores = {
        key: metrics.answer_scores(predictions[key]["answer"], x.answers)
        if key in predictions
        else (0.0, 0.0)
        for key, x in gold.items()
    }
    groups = {"": list(scores)}
    without = [key for key, x in gold.items() if not x.answers]
    if without:
        groups["has_ans_"] = [key for key, x in gold.items() if x.answers]
        groups["no_ans_"] = without
    result = {}
    for prefix, keys in groups.items():
        if keys or not prefix:
            for i, name in enumerate(("exact_match", "f1")):
                total = sum(scores[key][i] for key in keys)
                result[prefix + name] = total / max(len(keys), 1)
    evidence = [
        _evidence_scores(predictions.get(key), x.evidence)
        for key, x in gold.items()
        if x.evidence is not None
    ]
    if evidence:
        for name in ("precision", "recall", "f1"):
            total = sum(getattr(x, name) for x in evidence)
            result[f"evidence_{name}"] = total / len(evidence)
    return result


def _evidence_scores(prediction: Mapping | None, right: Selected):
    if prediction is None:
        return unit_scores([], {(-1, 0)})
    units = [Unit(*x) for x in prediction.get("evidence", ())]
    return unit_scores(units, unit_positions.right_positions(right, units))
