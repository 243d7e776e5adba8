"""Writes and scores predictions in Natural Questions' official format.

    {"predictions": [
        {"example_id": -2226525965842375672,
         "long_answer": {"start_token": 391, "end_token": 604,
                         "start_byte": -1, "end_byte": -1},
         "long_answer_score": 13.5,
         "short_answers": [{"start_token": 555, "end_token": 560,
                            "start_byte": -1, "end_byte": -1}],
         "short_answers_score": 26.4,
         "yes_no_answer": "NONE"}]}

Answers are token spans. Byte offsets are written as -1, which makes the
official script compare tokens.
"""

import re
from collections.abc import Mapping
from typing import IO

from etcmodel.datasets.nq import metrics
from etcmodel.datasets.nq.metrics import NULL_SPAN
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.datasets.nq.metrics import Span
from etcmodel.datasets.nq.metrics import is_null
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.datasets.predictions import write_json


def _id_to_json(example_id: str) -> int | str:
    """Converts integer ids, as in the official files; keeps other strings."""
    is_number = re.fullmatch(r"0|-?[1-9]\d*", example_id, re.ASCII)
    return int(example_id) if is_number else example_id


def _span_to_json(span: Span) -> dict[str, int]:
    start, end = map(int, NULL_SPAN if is_null(span) else span)
    bytes_ = {"start_byte": -1, "end_byte": -1}
    return {"start_token": start, "end_token": end, **bytes_}


def _to_json(example_id: str, prediction: NQPrediction) -> dict[str, object]:
    spans = [x for x in prediction.short_answers if not is_null(x)]
    return {
        "example_id": _id_to_json(example_id),
        "long_answer": _span_to_json(prediction.long_answer),
        "long_answer_score": float(prediction.long_score),
        "short_answers": list(map(_span_to_json, spans)),
        "short_answers_score": float(prediction.short_score),
        "yes_no_answer": prediction.yes_no.upper(),
    }


def write_predictions(
    predictions: Mapping[str, NQPrediction], stream: IO[str]
) -> None:
    """Writes `{"predictions": [...]}`.

    Raises:
        ValueError: a span is invalid, such as (7, 3).
    """
    values = [_to_json(*x) for x in predictions.items()]
    write_json({"predictions": values}, stream)


def gold(record: NQRecord) -> NQGold | None:
    """Returns the answers of all annotators; None if there are none."""
    if not record.annotations:
        return None
    return NQGold(
        tuple((x.long_start, x.long_end) for x in record.annotations),
        tuple(x.short_answers for x in record.annotations),
        tuple(x.yes_no for x in record.annotations),
    )


def score(
    predictions: Mapping[str, NQPrediction], gold: Mapping[str, NQGold]
) -> dict[str, float]:
    """Computes all official metrics, from 0 to 1; see `metrics.evaluate`.

    The official `long-best-threshold-f1` is called `long_best_threshold_f1`,
    and so on, so that names are identifiers.
    """
    number = metrics.usual_min_annotations(gold.values())
    results = metrics.evaluate(predictions, gold, number)
    names = str.maketrans({"-": "_", ">": "_", "=": None})
    return {name.translate(names): x for name, x in results.items()}
