"""Natural Questions' official file format for predictions.

    {"predictions": [
        {"example_id": -2226525965842375672,
         "long_answer": {"start_token": 391, "end_token": 604,
                         "start_byte": -1, "end_byte": -1},
         "long_answer_score": 13.5,
         "short_answers": [{"start_token": 555, "end_token": 560,
                            "start_byte": -1, "end_byte": -1}],
         "short_answers_score": 26.4,
         "yes_no_answer": "NONE"}]}

Answers are token spans here; the format's byte offsets are written as -1, which
the official script takes for "compare the tokens".
"""

import json
from collections.abc import Mapping
from collections.abc import Sequence
from typing import IO

from etcmodel.datasets.nq import metrics
from etcmodel.datasets.nq.metrics import NULL_SPAN
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.datasets.nq.metrics import Span
from etcmodel.datasets.nq.metrics import is_null
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import NQRecord


def _id_to_json(example_id: str) -> int | str:
    """Official ids are integers; others stay the strings they are."""
    try:
        number = int(example_id)
    except ValueError:
        return example_id
    return number if str(number) == example_id else example_id


def _span_to_json(span: Span) -> dict[str, int]:
    start, end = map(int, NULL_SPAN if is_null(span) else span)
    bytes_ = {"start_byte": -1, "end_byte": -1}
    return {"start_token": start, "end_token": end, **bytes_}


def predictions_to_json(
    predictions: Mapping[str, NQPrediction],
) -> dict[str, list[dict[str, object]]]:
    """Puts predictions into the official format, for `json.dump`.

    Ids that are integers in decimal notation, as the official ones, become
    integers; any others remain strings. Null spans among the short answers are
    left out.

    Raises:
        ValueError: some span is none, such as (7, 3).
    """
    return {
        "predictions": [
            {
                "example_id": _id_to_json(example_id),
                "long_answer": _span_to_json(prediction.long_answer),
                "long_answer_score": float(prediction.long_score),
                "short_answers": [
                    _span_to_json(span)
                    for span in prediction.short_answers
                    if not is_null(span)
                ],
                "short_answers_score": float(prediction.short_score),
                "yes_no_answer": prediction.yes_no.upper(),
            }
            for example_id, prediction in predictions.items()
        ]
    }


def write_predictions(
    predictions: Mapping[str, NQPrediction], stream: IO[str]
) -> None:
    """Writes `{"predictions": [...]}`."""
    json.dump(predictions_to_json(predictions), stream)
    stream.write("\n")


def make_gold(annotations: Sequence[Annotation]) -> NQGold:
    """Annotations as the official metrics take them."""
    return NQGold(
        long_answers=tuple((x.long_start, x.long_end) for x in annotations),
        short_answers=tuple(x.short_answers for x in annotations),
        yes_no=tuple(x.yes_no for x in annotations),
    )


def gold(record: NQRecord) -> NQGold | None:
    """The answers of all annotators; None if there are none."""
    return make_gold(record.annotations) if record.annotations else None


def score(
    predictions: Mapping[str, NQPrediction], gold: Mapping[str, NQGold]
) -> dict[str, float]:
    """All official metrics, from 0 to 1; see `metrics.evaluate`.

    Names are made identifiers: `long_best_threshold_f1` is the official
    `long-best-threshold-f1`.
    """
    results = metrics.evaluate(
        predictions, gold, metrics.usual_min_annotations(gold.values())
    )
    return {
        name.replace("-", "_").replace(">=", "_"): value
        for name, value in results.items()
    }
