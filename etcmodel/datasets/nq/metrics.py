"""Computes Natural Questions' official metrics of long and short answers.

Scores equal those of the official script, `nq_eval.py`. A question of the
development set has five annotations, which may disagree:

*   There is a gold long answer if at least two annotators marked one. A
    predicted long answer is right if there is a gold long answer and the
    prediction equals the long answer of any annotator.
*   There is a gold short answer if at least two annotators marked spans or
    answered yes or no. Predicted spans are right if, as a set, they equal the
    spans of any annotator. A predicted yes or no is right if any annotator
    answered the same. A prediction has either spans or yes or no, never both.
*   Precision is the number of right answers divided by the number of predicted
    answers. Recall is the number of right answers divided by the number of gold
    answers. Only predictions with at least the threshold's score count. The
    metrics use the threshold with the best F1.

The official script does not check the number of annotations: with only one
annotation, every answer counts as wrong. To score data with one annotation per
question, such as the training set, use `min_annotations=1`.
"""

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Span = tuple[int, int]
"""First token and exclusive end; both are negative if there is no span."""

NULL_SPAN: Span = (-1, -1)

YES_NO_ANSWERS = ("none", "yes", "no")

_PRECISION_TARGETS = (0.5, 0.75, 0.9)


def is_null(span: Span) -> bool:
    """Returns whether a span means "no answer".

    Raises:
        ValueError: only one end is negative, or the span is empty or backwards.
    """
    start, end = span
    if start < 0 and end < 0:
        return True
    if start < 0 or start >= end:
        raise ValueError(
            f"The span of tokens is {tuple(span)}. Expected 0 <= start < end, "
            "or -1 for both."
        )
    return False


def _span_set(spans: Iterable[Span]) -> frozenset[Span]:
    return frozenset(tuple(span) for span in spans if not is_null(span))


def _check_yes_no(value: str) -> None:
    if value not in YES_NO_ANSWERS:
        raise ValueError(
            f"yes_no is {value!r}, expected one of {', '.join(YES_NO_ANSWERS)}."
        )


@dataclasses.dataclass(frozen=True)
class NQGold:
    """The gold answers to one question; each field has one item per annotator.

    The items of an annotator without an answer are `NULL_SPAN`, an empty tuple
    and "none". Short answers are compared as sets, without null spans.
    """

    long_answers: tuple[Span, ...]
    short_answers: tuple[tuple[Span, ...], ...]
    yes_no: tuple[str, ...]

    def __post_init__(self):
        answers = (self.long_answers, self.short_answers, self.yes_no)
        counts = tuple(map(len, answers))
        if len(set(counts)) > 1:
            raise ValueError(
                f"long_answers, short_answers and yes_no have {counts} items, "
                "expected one item per annotator in each."
            )
        for value in self.yes_no:
            _check_yes_no(value)


@dataclasses.dataclass(frozen=True)
class NQPrediction:
    """A model's answer to one question.

    Scores are confidences on any scale. If `yes_no` is "yes" or "no", there are
    no short answers, and `short_score` is the score of yes or no. Otherwise
    `yes_no` is "none".
    """

    long_answer: Span
    long_score: float
    short_answers: tuple[Span, ...]
    short_score: float
    yes_no: str = "none"

    def __post_init__(self):
        _check_yes_no(self.yes_no)
        if self.yes_no != "none" and _span_set(self.short_answers):
            raise ValueError(
                f"The answer is both {self.yes_no!r} and the spans "
                f"{self.short_answers}. Expected one or the other."
            )
        if math.isnan(self.long_score) or math.isnan(self.short_score):
            raise ValueError(
                f"long_score is {self.long_score} and short_score is "
                f"{self.short_score}, expected numbers other than NaN."
            )


_NO_PREDICTION = NQPrediction(NULL_SPAN, -math.inf, (), -math.inf)


class _Outcome(NamedTuple):
    """Result of comparing a long or short prediction with the gold answer."""

    has_gold: bool
    has_predicted: bool
    is_right: bool
    score: float


def _outcome(
    kind: str, prediction: NQPrediction, gold: NQGold, min_annotations: int
) -> _Outcome:
    if kind == "long":
        spans = [tuple(x) for x in gold.long_answers if not is_null(x)]
        num_answers, score = len(spans), prediction.long_score
        has_predicted = not is_null(prediction.long_answer)
        matches = tuple(prediction.long_answer) in spans
    else:
        span_sets = [_span_set(spans) for spans in gold.short_answers]
        num_answers, score = 0, prediction.short_score
        for spans, yes_no in zip(span_sets, gold.yes_no, strict=True):
            num_answers += bool(spans) or yes_no != "none"
        predicted = _span_set(prediction.short_answers)
        has_predicted, matches = bool(predicted), predicted in span_sets
        if prediction.yes_no != "none":
            has_predicted, matches = True, prediction.yes_no in gold.yes_no
    has_gold = num_answers >= min_annotations
    is_right = has_gold and has_predicted and matches
    return _Outcome(has_gold, has_predicted, is_right, score)


def _divide(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> np.ndarray:
    """Divides elementwise; 0 where the denominator is 0."""
    denominator = np.asarray(denominator)
    is_zero = denominator == 0
    return np.where(is_zero, 0.0, numerator / np.where(is_zero, 1, denominator))


def _curve(
    outcomes: Iterable[_Outcome],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns descending thresholds, and precision and recall at each.

    At a threshold, only predictions with at least that score count.
    """
    columns = np.array(list(outcomes), np.float64).reshape([-1, 4]).T
    has_gold, has_predicted, is_right, scores = columns
    order = np.argsort(-scores, kind="stable")
    sorted_scores = scores[order]
    # Predictions with equal scores count together.
    is_last = np.ones(len(scores), bool)
    is_last[:-1] = sorted_scores[:-1] != sorted_scores[1:]
    right, predicted = (
        np.cumsum(x[order])[is_last] for x in (is_right, has_predicted)
    )
    return (
        sorted_scores[is_last],
        _divide(right, predicted),
        _divide(right, has_gold.sum()),
    )


def _at_greatest(
    criterion: np.ndarray, columns: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Returns the values where a criterion is greatest; 0 if it is always 0."""
    if not criterion.any():
        return dict.fromkeys(columns, 0.0)
    index = int(np.argmax(criterion))
    return {name: float(column[index]) for name, column in columns.items()}


def usual_min_annotations(gold: Iterable[NQGold]) -> int:
    """Returns the usual `min_annotations` for given data; see `evaluate`.

    It is 2, as in the official script, or 1 if no example has more than one
    annotator, as in the training data.
    """
    return min(2, max((len(x.yes_no) for x in gold), default=2))


def evaluate(
    predictions: Mapping[str, NQPrediction],
    gold: Mapping[str, NQGold],
    min_annotations: int = 2,
) -> dict[str, float]:
    """Computes the official metrics, each at its best score threshold.

    Args:
        predictions: example id -> prediction. Predictions without gold answers
            are ignored. An example without a prediction counts as unanswered,
            with the lowest score. (The official script rejects both cases.)
        gold: example id -> gold answers.
        min_annotations: number of annotators who must have marked a long (or
            short) answer for the example to have a gold long (or short) answer.

    Returns:
        Metrics by their official names, for `long` and for `short` answers:

        *   `long-best-threshold-f1`, the best F1 over all thresholds;
            `long-best-threshold-precision` and `-recall` at this threshold; and
            `long-best-threshold`, the highest threshold with this F1. All are 0
            if no prediction is right.
        *   `long-recall-at-precision>=0.5`, the best recall where precision is
            at least 0.5, and `long-precision-at-precision>=0.5`, the precision
            there; likewise for 0.75 and 0.9.

        In addition, `average-best-threshold-f1` is the mean of the best F1 for
        long and for short answers. The authors of ETC selected models by it.

    Raises:
        ValueError: `min_annotations` is less than 1, or a span is invalid.
    """
    if min_annotations < 1:
        raise ValueError(
            f"min_annotations is {min_annotations}, expected 1 or more."
        )
    result = {}
    pairs = [(predictions.get(x, _NO_PREDICTION), y) for x, y in gold.items()]
    for kind in ("long", "short"):
        thresholds, precision, recall = _curve(
            _outcome(kind, *pair, min_annotations) for pair in pairs
        )
        # `argmax` returns the first of equal values: the highest threshold.
        f1 = _divide(2 * precision * recall, precision + recall)
        metrics = _at_greatest(
            f1,
            {
                "best-threshold-f1": f1,
                "best-threshold-precision": precision,
                "best-threshold-recall": recall,
                "best-threshold": thresholds,
            },
        )
        for target in _PRECISION_TARGETS:
            metrics |= _at_greatest(
                np.where(precision >= target, recall, 0.0),
                {
                    f"recall-at-precision>={target:.2}": recall,
                    f"precision-at-precision>={target:.2}": precision,
                },
            )
        result |= {f"{kind}-{name}": value for name, value in metrics.items()}
    result["average-best-threshold-f1"] = (
        result["long-best-threshold-f1"] + result["short-best-threshold-f1"]
    ) / 2
    return result
