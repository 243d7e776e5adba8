"""Types of what `predict` returns, all dicts.

In each, `id` is the record's id; without one, its position in the records, as a
string.
"""

import json
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypedDict

import numpy as np

from etcmodel.datasets.unit_positions import Unit

Label = str | int | bool


class Classification(TypedDict):
    """What a `DocumentClassifier` predicts for a document.

    Labels have the type that they have in the training records.

    Attributes:
        id: the record's id.
        label: the label; the list of labels, if there may be several; or the
            number.
        probabilities: label -> probability; empty for numbers.
    """

    id: str
    label: Label | list[Label] | float
    probabilities: dict[Label, float]


class ScoredUnit(TypedDict):
    """What a `SentenceSelector` predicts for a unit of a document.

    Attributes:
        id: the record's id.
        paragraph: position of the paragraph in the document, from 0.
        number: position of the unit in the paragraph, from 0; -1 if it is the
            whole paragraph.
        text: the unit.
        probability: probability that it is relevant.
        is_selected: whether that is at least the threshold.
    """

    id: str
    paragraph: int
    number: int
    text: str
    probability: float
    is_selected: bool


class Answer(TypedDict):
    """What a `QuestionAnswerer` predicts for a question.

    Attributes:
        id: the record's id.
        answer: the answer; "" for none.
        no_answer_probability: probability that there is none.
        evidence: paragraph and number of each unit of the evidence, as in
            `ScoredUnit`.
    """

    id: str
    answer: str
    no_answer_probability: float
    evidence: list[tuple[int, int]]


def label_name(label: Label) -> str:
    """Returns the name of a label: `"3"` for 3, `"true"` for True."""
    label = label.item() if isinstance(label, np.generic) else label
    return json.dumps(label) if isinstance(label, int) else label


def typed_label(name: str, as_json: Collection[str]) -> Label:
    """Returns a label in its own type: `3` for `"3"` in `as_json`."""
    return json.loads(name) if name in as_json else name


def classification(
    record_id: str, prediction: Mapping[str, Any], as_json: Collection[str]
) -> Classification:
    """Makes a result of a prediction of the task `classify`."""
    label = prediction["label"]
    if isinstance(label, list):
        label = [typed_label(x, as_json) for x in label]
    elif isinstance(label, str):
        label = typed_label(label, as_json)
    return {
        "id": record_id,
        "label": label,
        "probabilities": {
            typed_label(x, as_json): probability
            for x, probability in prediction["probabilities"].items()
        },
    }


def scored_units(record_id: str, units: Iterable[Unit]) -> list[ScoredUnit]:
    """Makes results of a prediction of the task `select`."""
    return [
        {
            "id": record_id,
            "paragraph": unit.paragraph,
            "number": unit.text,
            "text": unit.content,
            "probability": unit.score,
            "is_selected": unit.is_selected,
        }
        for unit in units
    ]


def answer(record_id: str, prediction: Mapping[str, Any]) -> Answer:
    """Makes a result of a prediction of the task `answer`."""
    evidence = [x[:2] for x in prediction["evidence"] if x.is_selected]
    return {
        "id": record_id,
        "answer": prediction["answer"],
        "no_answer_probability": prediction["no_answer_probability"],
        "evidence": evidence,
    }
