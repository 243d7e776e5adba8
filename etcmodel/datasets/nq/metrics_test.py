import math
import random
import unittest

import numpy as np
from absl.testing import parameterized

from etcmodel.datasets.nq import metrics
from etcmodel.datasets.nq.metrics import NULL_SPAN
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.metrics import NQPrediction


def _long_gold(*spans: metrics.Span) -> NQGold:
    """Makes gold answers with the given long answers and no short answers."""
    return NQGold(spans, ((),) * len(spans), ("none",) * len(spans))


def _short_gold(*answers: str | tuple[metrics.Span, ...]) -> NQGold:
    """Makes gold answers without long answers; strings mean yes or no."""
    return NQGold(
        (NULL_SPAN,) * len(answers),
        tuple(() if isinstance(x, str) else x for x in answers),
        tuple(x if isinstance(x, str) else "none" for x in answers),
    )


def _long(span: metrics.Span, score: float) -> NQPrediction:
    return NQPrediction(span, score, (), 0.0)


def _short(answer: str | tuple[metrics.Span, ...], score: float = 1.0):
    if isinstance(answer, str):
        return NQPrediction(NULL_SPAN, 0.0, (), score, answer)
    return NQPrediction(NULL_SPAN, 0.0, answer, score)


A, B, C = (10, 50), (60, 70), (3, 8)


def _answers(kind, long, short, yes_no) -> set:
    """Draws an annotator's answers: none, one or two."""
    if kind == "long":
        return {long} - {NULL_SPAN}
    return {frozenset(short) - {NULL_SPAN}, yes_no} - {frozenset(), "none"}


def _reference_points(kind, predictions, gold, minimum, thresholds=None):
    """Returns (threshold, precision, recall, F1), by descending threshold."""
    outcomes, num_gold = [], 0
    for key, x in gold.items():
        given = zip(x.long_answers, x.short_answers, x.yes_no, strict=True)
        given = [_answers(kind, *annotator) for annotator in given]
        has_gold = sum(map(bool, given)) >= minimum
        num_gold += has_gold
        if key in predictions:
            x = predictions[key]
            mine = _answers(kind, x.long_answer, x.short_answers, x.yes_no)
            is_right = has_gold and any(mine & answers for answers in given)
            score = x.long_score if kind == "long" else x.short_score
            outcomes.append((score, bool(mine), is_right))
    if thresholds is None:
        thresholds = sorted({x[0] for x in outcomes}, reverse=True)
    points = []
    for threshold in thresholds:
        counted = [x for x in outcomes if x[0] >= threshold]
        right = sum(x[2] for x in counted)
        precision = right / max(sum(x[1] for x in counted), 1)
        recall = right / max(num_gold, 1)
        f1 = 2 * precision * recall / ((precision + recall) or 1)
        points.append((threshold, precision, recall, f1))
    return points


def _reference(predictions, gold, minimum):
    """Computes all metrics by trying every threshold; sorts them by name."""
    result = {}
    for kind in ("long", "short"):
        points = _reference_points(kind, predictions, gold, minimum)
        points = [x for x in points if x[3] > 0] or [(0, 0, 0, 0)]
        threshold, precision, recall, f1 = max(points, key=lambda x: x[3])
        result[f"{kind}-best-threshold-f1"] = f1
        result[f"{kind}-best-threshold-precision"] = precision
        result[f"{kind}-best-threshold-recall"] = recall
        result[f"{kind}-best-threshold"] = threshold
        for target in (0.5, 0.75, 0.9):
            some = [x for x in points if x[1] >= target] or [(0, 0, 0, 0)]
            _, precision, recall, _ = max(some, key=lambda x: x[2])
            result[f"{kind}-recall-at-precision>={target}"] = recall
            result[f"{kind}-precision-at-precision>={target}"] = precision
    f1s = [result[f"{kind}-best-threshold-f1"] for kind in ("long", "short")]
    return {**result, "average-best-threshold-f1": sum(f1s) / 2}


class MetricsTest(parameterized.TestCase):
    def _check(self, predictions, gold, minimum):
        """Compares all metrics with the reference; returns them."""
        actual = metrics.evaluate(predictions, gold, minimum)
        expected = _reference(predictions, gold, minimum)
        self.assertEqual(list(expected), list(actual))
        self.assertEqual({float}, set(map(type, actual.values())))
        for name, value in expected.items():
            self.assertAlmostEqual(value, actual[name], places=12, msg=name)
        return actual

    def test_worked_example(self):
        gold = {
            "a": _long_gold(A),
            "b": _long_gold(B),
            "c": _long_gold(NULL_SPAN),
        }
        predictions = {"b": _long(B, 4), "a": _long(A, 9), "c": _long(C, 5)}
        #    score  right  precision  recall  F1
        # a  9.0    yes    1/1        1/2     2/3
        # c  5.0    no     1/2        1/2     1/2
        # b  4.0    yes    2/3        2/2     4/5
        result = self._check(predictions, gold, 1)
        for name, value in {
            "best-threshold-f1": 0.8,
            "best-threshold-precision": 2 / 3,
            "best-threshold-recall": 1.0,
            "best-threshold": 4.0,
            "recall-at-precision>=0.5": 1.0,
            "precision-at-precision>=0.5": 2 / 3,
            "recall-at-precision>=0.75": 0.5,
            "precision-at-precision>=0.75": 1.0,
            "recall-at-precision>=0.9": 0.5,
            "precision-at-precision>=0.9": 1.0,
        }.items():
            self.assertAlmostEqual(value, result[f"long-{name}"], msg=name)
        self.assertAlmostEqual(0.4, result["average-best-threshold-f1"])

    @parameterized.product(minimum=(1, 2, 3), seed=(1, 2, 3))
    def test_random_answers(self, minimum, seed):
        """Random data often have null spans, equal scores and agreement."""
        rng = random.Random(seed)
        spans, kinds = [NULL_SPAN, A, B], ["none"] * 4 + ["yes", "no"]
        found = 0
        for size in range(1, 40):
            gold, predictions = {}, {"not asked": _long(A, 5.0)}
            for i in range(size):
                annotators = range(rng.choice([0, 1, 5]))
                gold[i] = NQGold(
                    tuple(rng.choice(spans) for _ in annotators),
                    tuple(tuple(rng.choices(spans, k=2)) for _ in annotators),
                    tuple(rng.choice(kinds) for _ in annotators),
                )
                yes_no = rng.choice(kinds)
                short = rng.choices(spans, k=rng.randrange(4))
                # A missing prediction counts as null, with the lowest score.
                if rng.random() < 0.8:
                    predictions[i] = NQPrediction(
                        rng.choice(spans),
                        rng.randrange(-5, 9),
                        tuple(short) if yes_no == "none" else (),
                        np.float32(rng.randrange(-5, 9)),
                        yes_no,
                    )
            found += self._check(predictions, gold, minimum)[
                "average-best-threshold-f1"
            ]
        self.assertBetween(found / 39, 0.1, 0.9)

    def test_no_right_answer(self):
        for gold in ({}, {"a": _long_gold(A)}, {"a": _long_gold(NULL_SPAN)}):
            for predictions in ({}, {"a": _long((10, 51), 3.0)}):
                result = self._check(predictions, gold, 1)
                self.assertEqual({0.0}, set(result.values()))

    def test_scores_of_minus_infinity(self):
        gold = {"a": _long_gold(A), "b": _long_gold(B)}
        predictions = {"a": _long(A, -0.5), "b": _long(B, -math.inf)}
        result = self._check(predictions, gold, 1)
        self.assertEqual(-math.inf, result["long-best-threshold"])
        self.assertEqual(1.0, result["long-best-threshold-f1"])

    @parameterized.parameters(
        # Two annotators must have an answer; a prediction may equal either.
        ("long", C, [A, NULL_SPAN, B, C, NULL_SPAN], True),
        ("long", (10, 49), [A, B, A, A, A], False),
        ("long", A, [A, NULL_SPAN, NULL_SPAN, NULL_SPAN, NULL_SPAN], False),
        ("long", A, [A, B, NULL_SPAN, NULL_SPAN, NULL_SPAN], True),
        ("long", A, [A], False),
        ("long", A, [], False),
        # Spans are compared as a set with each annotator's; null spans are
        # ignored.
        ("short", (B, NULL_SPAN, A, B), [(A, B), (A, B), ()], True),
        ("short", (A,), [(A, B), (A, B), ()], False),
        ("short", (A, B), [(A,), (B,)], False),
        ("short", (B,), [frozenset({A}), frozenset({B})], True),
        ("short", (A,), [(A,), (NULL_SPAN,)], False),
        ("short", (A,), [(A,), (NULL_SPAN, B)], True),
        # An annotator with yes or no and one with spans make two.
        ("short", "yes", ["yes", (A,), (), (), ()], True),
        ("short", (A,), ["yes", (A,), (), (), ()], True),
        ("short", "no", ["yes", (A,), (), (), ()], False),
        ("short", "yes", ["yes", (), (), (), ()], False),
        # An empty set of spans means no answer.
        ("short", (), ["yes", "yes", ()], False),
        ("short", (NULL_SPAN,), [(NULL_SPAN,), "no", "no"], False),
    )
    def test_right_answers(self, kind, answer, gold, is_right):
        if kind == "long":
            prediction, gold = _long(answer, 1.0), _long_gold(*gold)
        else:
            prediction, gold = _short(answer), _short_gold(*gold)
        result = metrics.evaluate({"x": prediction}, {"x": gold})
        self.assertEqual(float(is_right), result[f"{kind}-best-threshold-f1"])


class ChecksTest(parameterized.TestCase):
    @parameterized.parameters(
        (lambda: NQPrediction(A, 1, (B,), 1, "yes"), "both 'yes' and the span"),
        (lambda: NQPrediction(A, 1, (), 1, "YES"), "yes_no is 'YES', expe"),
        (lambda: NQGold((A,), ((),), ("maybe",)), "yes_no is 'maybe', expe"),
        (lambda: NQPrediction(A, math.nan, (), 0.0), "long_score is nan"),
        (lambda: NQPrediction(A, 0.0, (), math.nan), "short_score is nan"),
        (lambda: NQGold((A, A), ((),), ("none",)), r"have \(2, 1, 1\) items"),
        (lambda: metrics.evaluate({}, {}, 0), "min_annotations is 0"),
        *(
            (lambda span=span: metrics.is_null(span), "span of tokens is")
            for span in ((5, 5), (7, 3), (-1, 3), (3, -1))
        ),
        (
            lambda: metrics.evaluate(
                {"x": _long((7, 3), 1.0)}, {"x": _long_gold(A)}
            ),
            r"span of tokens is \(7, 3\)",
        ),
    )
    def test_errors(self, function, message):
        with self.assertRaisesRegex(ValueError, message):
            function()

    def test_valid_spans_and_predictions(self):
        NQPrediction(A, 1.0, (NULL_SPAN,), 1.0, "yes")
        self.assertFalse(metrics.is_null((0, 1)))
        self.assertTrue(metrics.is_null((-1, -1)))

    def test_usual_minimum_of_annotations(self):
        """The development set has five annotators, the training set one."""
        five, one = _long_gold(A, *[NULL_SPAN] * 4), _long_gold(A)
        for gold, expected in (
            ([five, five], 2),
            ([one, five], 2),
            (iter([five, one]), 2),
            ([_long_gold(A, B)], 2),
            ([one, _short_gold("yes"), _long_gold(NULL_SPAN)], 1),
            ([], 2),
        ):
            self.assertEqual(expected, metrics.usual_min_annotations(gold))


if __name__ == "__main__":
    unittest.main()
