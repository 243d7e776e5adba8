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
*   Precision is the share of right ones among the predicted answers, recall
    among the gold ones. Only predictions with at least a certain score count;
    the metrics are those of the score threshold with the greatest F1.

"At least two" is meant for five annotations. The official script takes no note
of how many there are: a question with one annotation never has a gold answer,
and any answer predicted for it counts as wrong. To score data with one
annotation, as the training set has, use `min_annotations=1`.
"""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Span = tuple[int, int]
"""First token, and the token after the last; negative numbers for no span."""

NULL_SPAN: Span = (-1, -1)

YES_NO_ANSWERS = ("none", "yes", "no")

_PRECISION_TARGETS = (0.5, 0.75, 0.9)


def is_null(span: Span) -> bool:
    """Whether a span stands for "there is no answer".

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
    """The spans without the null ones."""
    return frozenset(tuple(span) for span in spans if not is_null(span))


def _check_yes_no(value: str) -> None:
    if value not in YES_NO_ANSWERS:
        raise ValueError(
            f"No such answer: {value!r}. Expected one of "
            f"{', '.join(YES_NO_ANSWERS)}."
        )


@dataclasses.dataclass(frozen=True)
class NQGold:
    """What the annotators answered to one question; an item for each.

    Two annotators, one of whom found no answer:

        NQGold(long_answers=((10, 50), (-1, -1)),
               short_answers=(((12, 14), (20, 21)), ()),
               yes_no=("none", "none"))

    Order, repetition and null spans of short answers do not matter.
    """

    long_answers: tuple[Span, ...]
    short_answers: tuple[tuple[Span, ...], ...]
    yes_no: tuple[str, ...]

    def __post_init__(self):
        counts = tuple(
            map(len, (self.long_answers, self.short_answers, self.yes_no))
        )
        if len(set(counts)) > 1:
            raise ValueError(
                "Different numbers of annotators for long answers, short "
                f"answers and yes/no: {counts}."
            )
        for value in self.yes_no:
            _check_yes_no(value)


@dataclasses.dataclass(frozen=True)
class NQPrediction:
    """What a model answers to one question.

    Attributes:
        long_answer: the long answer, or `NULL_SPAN`.
        long_score: how sure the model is of it; any scale, greater is surer.
        short_answers: spans of the short answer; empty if there is none.
        short_score: how sure the model is of the short answer, or of yes/no.
        yes_no: "yes" or "no" instead of short answers, else "none".
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
            raise ValueError("A score is not a number.")


_NO_PREDICTION = NQPrediction(NULL_SPAN, -math.inf, (), -math.inf)


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """One prediction of one kind (long or short) against its gold."""

    has_gold: bool
    has_predicted: bool
    is_right: bool
    score: float


def _long_outcome(
    prediction: NQPrediction, gold: NQGold, min_annotations: int
) -> _Outcome:
    spans = [tuple(span) for span in gold.long_answers if not is_null(span)]
    has_gold = len(spans) >= min_annotations
    has_predicted = not is_null(prediction.long_answer)
    matches = tuple(prediction.long_answer) in spans
    return _Outcome(
        has_gold=has_gold,
        has_predicted=has_predicted,
        is_right=has_gold and has_predicted and matches,
        score=prediction.long_score,
    )


def _short_outcome(
    prediction: NQPrediction, gold: NQGold, min_annotations: int
) -> _Outcome:
    span_sets = [_span_set(spans) for spans in gold.short_answers]
    num_answers = sum(
        bool(spans) or yes_no != "none"
        for spans, yes_no in zip(span_sets, gold.yes_no, strict=True)
    )
    has_gold = num_answers >= min_annotations
    predicted = _span_set(prediction.short_answers)
    if prediction.yes_no != "none":
        has_predicted, matches = True, prediction.yes_no in gold.yes_no
    else:
        has_predicted, matches = bool(predicted), predicted in span_sets
    return _Outcome(
        has_gold=has_gold,
        has_predicted=has_predicted,
        is_right=has_gold and has_predicted and matches,
        score=prediction.short_score,
    )


_OUTCOMES: dict[str, Callable[[NQPrediction, NQGold, int], _Outcome]] = {
    "long": _long_outcome,
    "short": _short_outcome,
}


def _divide(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> np.ndarray:
    """Quotients, 0 where the denominator is."""
    denominator = np.asarray(denominator)
    is_zero = denominator == 0
    return np.where(is_zero, 0.0, numerator / np.where(is_zero, 1, denominator))


def _f1(precision: npt.ArrayLike, recall: npt.ArrayLike) -> np.ndarray:
    return _divide(2 * precision * recall, precision + recall)


@dataclasses.dataclass(frozen=True)
class _Curve:
    """Precision, recall and F1 at all score thresholds of a data set.

    At thresholds[i], the predictions with at least that score count; it is the
    i-th greatest of the different scores.
    """

    thresholds: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray

    @classmethod
    def from_outcomes(cls, outcomes: list[_Outcome]) -> "_Curve":
        """Sorts by score; predictions with the same score count together."""
        scores = np.array([x.score for x in outcomes], dtype=np.float64)
        order = np.argsort(-scores, kind="stable")
        scores = scores[order]
        is_last = np.ones(len(scores), dtype=bool)
        is_last[:-1] = scores[:-1] != scores[1:]

        def running_count(values: list[bool]) -> np.ndarray:
            return np.cumsum(np.array(values, dtype=np.int64)[order])[is_last]

        right = running_count([x.is_right for x in outcomes])
        predicted = running_count([x.has_predicted for x in outcomes])
        precision = _divide(right, predicted)
        recall = _divide(right, sum(x.has_gold for x in outcomes))
        return cls(
            thresholds=scores[is_last],
            precision=precision,
            recall=recall,
            f1=_f1(precision, recall),
        )

    def best(self) -> dict[str, float]:
        """The point of the greatest F1; of several, that of fewest answers.

        All values are 0, the threshold too, if no prediction is right.
        """
        index = int(np.argmax(self.f1)) if self.f1.any() else None
        return {
            "best-threshold-f1": _item(self.f1, index),
            "best-threshold-precision": _item(self.precision, index),
            "best-threshold-recall": _item(self.recall, index),
            "best-threshold": _item(self.thresholds, index),
        }

    def at_precision(self, target: float) -> dict[str, float]:
        """The greatest recall with at least a certain precision.

        Of several such points, that of fewest answers, so that of the greatest
        precision. Both values are 0 if there is none with any recall.
        """
        recall = np.where(self.precision >= target, self.recall, 0.0)
        index = int(np.argmax(recall)) if recall.any() else None
        return {
            f"recall-at-precision>={target:.2}": _item(recall, index),
            f"precision-at-precision>={target:.2}": _item(
                self.precision, index
            ),
        }


def _item(values: np.ndarray, index: int | None) -> float:
    return 0.0 if index is None else float(values[index])


def _outcomes(
    kind: str,
    predictions: Mapping[str, NQPrediction],
    gold: Mapping[str, NQGold],
    min_annotations: int,
) -> list[_Outcome]:
    if min_annotations < 1:
        raise ValueError(
            f"min_annotations is {min_annotations}, expected 1 or more."
        )
    return [
        _OUTCOMES[kind](
            predictions.get(example_id, _NO_PREDICTION),
            example_gold,
            min_annotations,
        )
        for example_id, example_gold in gold.items()
    ]


def usual_min_annotations(gold: Iterable[NQGold]) -> int:
    """How many annotators must have an answer, for the data at hand.

    2, as officially, or 1 if no example has more than one annotator, as in the
    training data.
    """
    return min(2, max((len(x.yes_no) for x in gold), default=2))


def evaluate(
    predictions: Mapping[str, NQPrediction],
    gold: Mapping[str, NQGold],
    min_annotations: int = 2,
) -> dict[str, float]:
    """The official metrics, each at the best score threshold for it.

    A worked example with `min_annotations=1`, one annotator, and these long
    answers (the third question has none):

        example  gold      predicted  score  right  precision  recall  F1
        a        (10, 50)  (10, 50)   9.0    yes    1/1        1/2     2/3
        c        null      (3, 8)     5.0    no     1/2        1/2     1/2
        b        (60, 70)  (60, 70)   4.0    yes    2/3        2/2     4/5

    The best F1 is 0.8, at a threshold of 4.0. Recall at precision >= 0.5 is 1,
    and at precision >= 0.75 or 0.9 it is 1/2.

    Args:
        predictions: example id -> prediction. One without gold is ignored. A
            gold example without one counts as answered by nothing, with a
            score below all others. (The official script accepts neither.)
        gold: example id -> annotations.
        min_annotations: how many annotators must have found an answer (a long
            one; a short one) for the example to have a gold answer. With one
            annotation per example, use 1.

    Returns:
        By their official names, for `long` and then `short` answers:

        *   `long-best-threshold-f1`, the greatest F1 over all thresholds, with
            its `long-best-threshold-precision`, `long-best-threshold-recall`
            and `long-best-threshold`; of several, the one with the highest
            threshold. All are 0 if no prediction is right.
        *   `long-recall-at-precision>=0.5`, the greatest recall where
            precision is at least 0.5, and `long-precision-at-precision>=0.5`,
            the precision there; likewise for 0.75 and 0.9.

        Besides, `average-best-threshold-f1` is the mean of the two best F1, by
        which ETC's models were selected.

    Raises:
        ValueError: `min_annotations` is less than 1, or some span is none.
    """
    result = {}
    for kind in _OUTCOMES:
        curve = _Curve.from_outcomes(
            _outcomes(kind, predictions, gold, min_annotations)
        )
        metrics = curve.best()
        for target in _PRECISION_TARGETS:
            metrics |= curve.at_precision(target)
        for name, value in metrics.items():
            result[f"{kind}-{name}"] = value
    result["average-best-threshold-f1"] = (
        result["long-best-threshold-f1"] + result["short-best-threshold-f1"]
    ) / 2
    return result
