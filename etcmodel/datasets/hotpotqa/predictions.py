"""Writes and scores HotpotQA's official prediction file."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import IO

from etcmodel.datasets.hotpotqa import metrics
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.predictions import write_lines

Answer = tuple[str, Sequence[metrics.Fact]]
"""An answer and its supporting facts."""


def gold(record: HotpotQARecord) -> Answer | None:
    """Returns the answer and supporting facts; None if either is unknown."""
    if record.answer is None or record.supporting_facts is None:
        return None
    return record.answer, record.supporting_facts


def write_predictions(
    predictions: Mapping[str, Answer], stream: IO[str]
) -> None:
    """Writes `{"answer": {id: text}, "sp": {id: [[title, sentence], ...]}}`."""
    columns = {
        "answer": {key: answer for key, (answer, _) in predictions.items()},
        "sp": {
            key: [list(fact) for fact in facts]
            for key, (_, facts) in predictions.items()
        },
    }
    write_lines([columns], stream)


def score(
    predictions: Mapping[str, Answer], gold: Mapping[str, Answer]
) -> dict[str, float]:
    """Computes all official metrics, from 0 to 1; see `metrics.evaluate`."""
    return metrics.evaluate(
        {key: answer for key, (answer, _) in predictions.items()},
        {key: facts for key, (_, facts) in predictions.items()},
        gold,
    )
