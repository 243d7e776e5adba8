"""Natural Questions' official metrics: F1 of long and of short answers.

The numbers equal those of the official script, `nq_eval.py`. A question of the
development set has five annotations, which may disagree:

*   There is a gold long answer if at least two annotators marked one. A
    predicted long answer is right if there is a gold one and the prediction
    equals that of any annotator.
*   There is a gold short answer if at least two annotators marked spans or
    answered yes or no. Predicted spans are right if, as a set, they equal the
    spans of any annotator; a predicted yes or no is right if any annotator
    answered the same. A prediction is one or the other, never both.
*   Precision is the share of right answers among the predicted ones, recall
    among the gold ones. Only predictions with a score above the threshold
    count; the metrics are those at the threshold with the greatest F1.

The official script does not check the number of annotations: any answer to a
question with only one counts as wrong. To score data with one annotation, as in
the training set, use `min_annotations=1`.
"""

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Span = tuple[int, int]
"""First token, and the token after the last; negative numbers for no span."""

NULL_SPAN: Span = (-1, -1)

YES_NO_ANSWERS = ("none", "yes", "no")

_PRECISION_TARGETS = (0.5, 0.75, 0.9)


def is_null(span: Span) -> bool:
    """Tells whether a span means "there is no answer".

    Raises:
        ValueError: one end is negative, or the span is empty or backwards.
    """
    start, end = span
    if start < 0 and end < 0:
        return True
    if start < 0 or start >= end:
        raise ValueError(
            f"No span of tokens: {tuple(span)}. Expected 0 <= start < end, or "
            "-1 for both."
        )
    return False


def _span_set(spans: Iterable[Span]) -> frozenset[Span]:
    return frozenset(tuple(span) for span in spans if not is_null(span))


def _check_yes_no(value: str) -> None:
    if value not in YES_NO_ANSWERS:
        raise ValueError(
            f"No such answer: {value!r}. Expected one of "
            f"{', '.join(YES_NO_ANSWERS)}."
        )


@dataclasses.dataclass(frozen=True)
class NQGold:
    """The answers to one question; each field has an item per annotator.

    For an annotator without an answer these are `NULL_SPAN`, no short answers
    and "none". Order, repetition and null spans of short answers do not matter.
    """

    long_answers: tuple[Span, ...]
    short_answers: tuple[tuple[Span, ...], ...]
    yes_no: tuple[str, ...]

    def __post_init__(self):
        answers = (self.long_answers, self.short_answers, self.yes_no)
        counts = tuple(map(len, answers))
        if len(set(counts)) > 1:
            raise ValueError(
                "Different numbers of annotators for long answers, short "
                f"answers and yes/no: {counts}."
            )
        for value in self.yes_no:
            _check_yes_no(value)


@dataclasses.dataclass(frozen=True)
class NQPrediction:
    """A model's answer to one question.

    Scores are confidences on any scale. `yes_no` is "yes" or "no" instead of
    short answers, with their score, and otherwise "none".
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
            raise ValueError("long_score or short_score is not a number.")


_NO_PREDICTION = NQPrediction(NULL_SPAN, -math.inf, (), -math.inf)


class _Outcome(NamedTuple):
    """A prediction of one kind (long or short) compared with its gold."""

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
    """Divides; the quotient is 0 where the denominator is 0."""
    denominator = np.asarray(denominator)
    is_zero = denominator == 0
    return np.where(is_zero, 0.0, numerator / np.where(is_zero, 1, denominator))


def _curve(
    outcomes: Iterable[_Outcome],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns thresholds, descending, with precision and recall at each.

    At a threshold, the predictions with at least that score count.
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
    """Returns the values at the greatest criterion; 0 if it is 0 everywhere."""
    if not criterion.any():
        return dict.fromkeys(columns, 0.0)
    index = int(np.argmax(criterion))
    return {name: float(column[index]) for name, column in columns.items()}


def usual_min_annotations(gold: Iterable[NQGold]) -> int:
    """Returns how many annotators must have an answer, for given data.

    It is 2, as officially, or 1 if no example has more than one annotator, as
    in the training data.
    """
    return min(2, max((len(x.yes_no) for x in gold), default=2))


def evaluate(
    predictions: Mapping[str, NQPrediction],
    gold: Mapping[str, NQGold],
    min_annotations: int = 2,
) -> dict[str, float]:
    """Computes the official metrics, each at its best score threshold.

    Args:
        predictions: example id -> prediction. Predictions without gold are
            ignored. A gold example without prediction counts as unanswered,
            with the lowest score. (The official script accepts neither.)
        gold: example id -> annotations.
        min_annotations: how many annotators must have found an answer (a long
            one; a short one) for the example to have a gold answer.

    Returns:
        By their official names, for `long` and then `short` answers:

        *   `long-best-threshold-f1`, the greatest F1 over all thresholds, with
            its `...-precision`, `...-recall` and `long-best-threshold`, the
            highest of several. All are 0 if no prediction is right.
        *   `long-recall-at-precision>=0.5`, the greatest recall where
            precision is at least 0.5, and `long-precision-at-precision>=0.5`,
            the precision there; the same for 0.75 and 0.9.

        Also `average-best-threshold-f1`, the mean of both best F1, by which
        ETC's models were selected.

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
        # `argmax` takes the first of equal values: the fewest answers.
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
