"""Types of the dicts that `predict` returns.

`id` is the record's id. For a record without an id, it is the record's position
in the collection, as a string.
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
    """Prediction of a `DocumentClassifier` for a document.

    Labels have the same type as in the training records.

    Attributes:
        id: the record's id.
        label: the label; a list of labels if documents can have several; a
            number for regression.
        probabilities: label -> probability; empty for regression.
    """

    id: str
    label: Label | list[Label] | float
    probabilities: dict[Label, float]


class ScoredUnit(TypedDict):
    """Prediction of a `SentenceSelector` for a unit of a document.

    Attributes:
        id: the record's id.
        paragraph: position of the paragraph in the document, from 0.
        number: position of the unit in the paragraph, from 0; -1 if the unit is
            the whole paragraph.
        text: text of the unit.
        probability: probability that the unit is relevant.
        is_selected: whether the probability is at least the threshold.
    """

    id: str
    paragraph: int
    number: int
    text: str
    probability: float
    is_selected: bool


class Answer(TypedDict):
    """Prediction of a `QuestionAnswerer` for a question.

    Attributes:
        id: the record's id.
        answer: the answer; "" if there is none.
        no_answer_probability: probability that the document has no answer.
        evidence: pairs (paragraph, number) of the units that are evidence, as
            in `ScoredUnit`.
    """

    id: str
    answer: str
    no_answer_probability: float
    evidence: list[tuple[int, int]]


def label_name(label: Label) -> str:
    """Converts a label to a string: `"3"` for 3, `"true"` for True."""
    label = label.item() if isinstance(label, np.generic) else label
    return json.dumps(label) if isinstance(label, int) else label


def typed_label(name: str, as_json: Collection[str]) -> Label:
    """Inverts `label_name`; `as_json` has the names to parse as JSON."""
    return json.loads(name) if name in as_json else name


def classification(
    record_id: str, prediction: Mapping[str, Any], as_json: Collection[str]
) -> Classification:
    """Converts a prediction of the task `classify` to a result."""
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
    """Converts a prediction of the task `select` to results."""
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
    """Converts a prediction of the task `answer` to a result."""
    evidence = [x[:2] for x in prediction["evidence"] if x.is_selected]
    return {
        "id": record_id,
        "answer": prediction["answer"],
        "no_answer_probability": prediction["no_answer_probability"],
        "evidence": evidence,
    }
