import math
import random
import time
import unittest

import numpy as np

from etcmodel.tasks.nq import metrics
from etcmodel.tasks.nq.metrics import NULL_SPAN
from etcmodel.tasks.nq.metrics import NQGold
from etcmodel.tasks.nq.metrics import NQPrediction


def _long_gold(*spans: metrics.Span) -> NQGold:
    """Annotators who agree that there is no short answer."""
    return NQGold(spans, ((),) * len(spans), ("none",) * len(spans))


def _short_gold(*answers: str | tuple[metrics.Span, ...]) -> NQGold:
    """Annotators without long answers; strings are answers of yes or no."""
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


class _MetricsTestCase(unittest.TestCase):
    def assert_metrics(self, expected: dict[str, float], actual):
        for name, value in expected.items():
            self.assertAlmostEqual(value, actual[name], places=12, msg=name)

    def assert_all_zero(self, actual, prefix: str):
        values = {k: v for k, v in actual.items() if k.startswith(prefix)}
        self.assertEqual(10, len(values))
        self.assertEqual({0.0}, set(values.values()), msg=str(values))


class CurveTest(_MetricsTestCase):
    def test_names(self):
        expected = []
        for kind in ("long", "short"):
            expected += [
                f"{kind}-best-threshold-f1",
                f"{kind}-best-threshold-precision",
                f"{kind}-best-threshold-recall",
                f"{kind}-best-threshold",
            ]
            for target in ("0.5", "0.75", "0.9"):
                expected += [
                    f"{kind}-recall-at-precision>={target}",
                    f"{kind}-precision-at-precision>={target}",
                ]
        actual = metrics.evaluate({}, {})
        self.assertEqual(expected + ["average-best-threshold-f1"], list(actual))
        for value in actual.values():
            self.assertIs(float, type(value))

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
        result = metrics.evaluate(predictions, gold, min_annotations=1)
        self.assert_metrics(
            {
                "long-best-threshold-f1": 0.8,
                "long-best-threshold-precision": 2 / 3,
                "long-best-threshold-recall": 1.0,
                "long-best-threshold": 4.0,
                "long-recall-at-precision>=0.5": 1.0,
                "long-precision-at-precision>=0.5": 2 / 3,
                "long-recall-at-precision>=0.75": 0.5,
                "long-precision-at-precision>=0.75": 1.0,
                "long-recall-at-precision>=0.9": 0.5,
                "long-precision-at-precision>=0.9": 1.0,
                "average-best-threshold-f1": 0.4,
            },
            result,
        )
        self.assert_all_zero(result, "short-")

    def test_equal_scores_count_together(self):
        gold = {"a": _long_gold(A), "b": _long_gold(B), "c": _long_gold(C)}
        predictions = {
            "a": _long(A, 1.0),
            "b": _long((0, 1), 1.0),
            "c": _long(C, 0.5),
        }
        # One by one, the first would have precision 1, and F1 1/2. Together:
        # threshold  right / predicted  precision  recall  F1
        # 1.0        1 / 2              1/2        1/3     2/5
        # 0.5        2 / 3              2/3        2/3     2/3
        for order in (("a", "b", "c"), ("c", "b", "a")):
            result = metrics.evaluate(
                predictions, {key: gold[key] for key in order}, 1
            )
            self.assert_metrics(
                {
                    "long-best-threshold-f1": 2 / 3,
                    "long-best-threshold": 0.5,
                    "long-recall-at-precision>=0.5": 2 / 3,
                    "long-recall-at-precision>=0.75": 0.0,
                    "long-precision-at-precision>=0.75": 0.0,
                },
                result,
            )

    def test_of_equal_f1_the_highest_threshold(self):
        gold = {
            "a": _long_gold(A),
            "b": _long_gold(B),
            "c": _long_gold(NULL_SPAN),
            "d": _long_gold(NULL_SPAN),
        }
        predictions = {
            "a": _long(A, 8.0),
            "c": _long(C, 7.0),
            "d": _long(C, 6.0),
            "b": _long(B, 5.0),
        }
        # threshold  precision  recall  F1
        # 8.0        1/1        1/2     2/3
        # 7.0        1/2        1/2     1/2
        # 6.0        1/3        1/2     2/5
        # 5.0        2/4        2/2     2/3
        self.assert_metrics(
            {
                "long-best-threshold-f1": 2 / 3,
                "long-best-threshold": 8.0,
                "long-best-threshold-precision": 1.0,
                "long-best-threshold-recall": 0.5,
                # A precision of exactly the target is enough.
                "long-recall-at-precision>=0.5": 1.0,
                "long-precision-at-precision>=0.5": 0.5,
                "long-recall-at-precision>=0.75": 0.5,
            },
            metrics.evaluate(predictions, gold, min_annotations=1),
        )

    def test_of_equal_recall_the_highest_threshold(self):
        gold = {"a": _long_gold(A), "c": _long_gold(NULL_SPAN)}
        predictions = {"a": _long(A, 2.0), "c": _long(C, 1.0)}
        # Recall is 1 at either threshold, precision 1 and then 1/2.
        result = metrics.evaluate(predictions, gold, min_annotations=1)
        self.assertEqual(1.0, result["long-precision-at-precision>=0.5"])

    def test_null_predictions_are_no_wrong_answers(self):
        gold = {"a": _long_gold(A), "b": _long_gold(B)}
        predictions = {"a": _long(A, 1.0), "b": _long(NULL_SPAN, 99.0)}
        # threshold  precision        recall
        # 99.0       0/0, taken as 0  0
        # 1.0        1/1              1/2
        self.assert_metrics(
            {
                "long-best-threshold-f1": 2 / 3,
                "long-best-threshold": 1.0,
                "long-best-threshold-precision": 1.0,
            },
            metrics.evaluate(predictions, gold, min_annotations=1),
        )
        # A null prediction of lower score makes no new threshold.
        predictions["b"] = _long(NULL_SPAN, -99.0)
        result = metrics.evaluate(predictions, gold, min_annotations=1)
        self.assertEqual(1.0, result["long-best-threshold"])

    def test_nothing_right(self):
        for gold in ({}, {"a": _long_gold(A)}, {"a": _long_gold(NULL_SPAN)}):
            for predictions in (
                {},
                {"a": _long(NULL_SPAN, 3.0)},
                {"a": _long((10, 51), 3.0)},
            ):
                result = metrics.evaluate(predictions, gold, 1)
                self.assert_all_zero(result, "long-")
                self.assertEqual(0.0, result["average-best-threshold-f1"])

    def test_a_missing_prediction_is_null_and_scored_lowest(self):
        gold = {"a": _long_gold(A), "b": _long_gold(B), "c": _long_gold(C)}
        predictions = {"a": _long(A, -1e30), "not asked": _long(A, 5.0)}
        result = metrics.evaluate(predictions, gold, min_annotations=1)
        # The gold answers of "b" and "c" still count: recall 1/3, F1 1/2.
        self.assert_metrics(
            {
                "long-best-threshold-f1": 0.5,
                "long-best-threshold-precision": 1.0,
                "long-best-threshold-recall": 1 / 3,
                "long-best-threshold": -1e30,
            },
            result,
        )
        predictions["b"] = _long(NULL_SPAN, -math.inf)
        self.assertEqual(
            result, metrics.evaluate(predictions, gold, min_annotations=1)
        )

    def test_scores_may_be_negative_numpy_or_minus_infinity(self):
        gold = {"a": _long_gold(A), "b": _long_gold(B)}
        result = metrics.evaluate(
            {
                "a": _long(A, np.float32(-0.5)),
                "b": _long(B, -math.inf),
            },
            gold,
            min_annotations=1,
        )
        self.assertEqual(-math.inf, result["long-best-threshold"])
        self.assertEqual(1.0, result["long-best-threshold-f1"])


class LongAnswerTest(_MetricsTestCase):
    def _f1(self, prediction, *spans, **kwargs):
        result = metrics.evaluate(
            {"x": _long(prediction, 1.0)}, {"x": _long_gold(*spans)}, **kwargs
        )
        return result["long-best-threshold-f1"]

    def test_any_annotator_may_agree(self):
        self.assertEqual(1.0, self._f1(A, A, NULL_SPAN, B, C, NULL_SPAN))
        self.assertEqual(1.0, self._f1(C, A, NULL_SPAN, B, C, NULL_SPAN))
        self.assertEqual(0.0, self._f1((10, 49), A, B, A, A, A))

    def test_two_annotators_must_have_an_answer_though_not_the_same(self):
        null = NULL_SPAN
        self.assertEqual(0.0, self._f1(A, A, null, null, null, null))
        self.assertEqual(1.0, self._f1(A, A, B, null, null, null))
        self.assertEqual(
            0.0, self._f1(A, A, B, null, null, null, min_annotations=3)
        )

    def test_one_annotation_needs_another_minimum(self):
        self.assertEqual(0.0, self._f1(A, A))
        self.assertEqual(1.0, self._f1(A, A, min_annotations=1))

    def test_what_is_predicted_where_no_gold_is_counts_against_precision(self):
        gold = {
            "a": _long_gold(A, A),
            # One of two: no gold answer, so even the same span is wrong.
            "b": _long_gold(B, NULL_SPAN),
        }
        result = metrics.evaluate(
            {"a": _long(A, 1.0), "b": _long(B, 1.0)}, gold
        )
        self.assert_metrics(
            {
                "long-best-threshold-precision": 0.5,
                "long-best-threshold-recall": 1.0,
            },
            result,
        )

    def test_no_annotations(self):
        self.assertEqual(0.0, self._f1(A))


class ShortAnswerTest(_MetricsTestCase):
    def _f1(self, prediction, *answers, **kwargs):
        result = metrics.evaluate(
            {"x": _short(prediction)}, {"x": _short_gold(*answers)}, **kwargs
        )
        return result["short-best-threshold-f1"]

    def test_sets_of_spans_must_be_the_same(self):
        gold = ((A, B), (A, B), ())
        self.assertEqual(1.0, self._f1((A, B), *gold))
        self.assertEqual(1.0, self._f1((B, A, B), *gold))
        self.assertEqual(1.0, self._f1((B, NULL_SPAN, A), *gold))
        self.assertEqual(0.0, self._f1((A,), *gold))
        self.assertEqual(0.0, self._f1((A, B, C), *gold))

    def test_spans_of_several_annotators_are_not_mixed(self):
        self.assertEqual(0.0, self._f1((A, B), (A,), (B,)))
        self.assertEqual(1.0, self._f1((B,), (A,), (B,)))
        self.assertEqual(1.0, self._f1((B,), frozenset({A}), frozenset({B})))

    def test_yes_and_no(self):
        self.assertEqual(1.0, self._f1("yes", "yes", "yes"))
        self.assertEqual(0.0, self._f1("no", "yes", "yes"))
        # Yes, no and spans together make up the two annotators, and any of
        # them may be matched.
        gold = ("yes", (A,), (), (), ())
        self.assertEqual(1.0, self._f1("yes", *gold))
        self.assertEqual(1.0, self._f1((A,), *gold))
        self.assertEqual(0.0, self._f1("no", *gold))
        self.assertEqual(0.0, self._f1("yes", "yes", (), (), (), ()))

    def test_no_spans_do_not_match_no_spans(self):
        # Annotators who said yes, and those without an answer, have no spans;
        # a prediction without spans is no answer at all, rather than theirs.
        result = metrics.evaluate(
            {"x": _short(()), "y": _short((NULL_SPAN,))},
            {
                "x": _short_gold("yes", "yes", ()),
                "y": _short_gold((NULL_SPAN,), "no", "no"),
            },
        )
        self.assert_all_zero(result, "short-")

    def test_null_spans_are_no_gold_answer(self):
        self.assertEqual(0.0, self._f1((A,), (A,), (NULL_SPAN,)))
        self.assertEqual(1.0, self._f1((A,), (A,), (NULL_SPAN, B)))

    def test_an_annotator_with_yes_and_spans_can_be_matched_by_either(self):
        gold = {"x": NQGold((A, A), ((B,), (B,)), ("yes", "yes"))}
        for answer in ("yes", (B,)):
            result = metrics.evaluate({"x": _short(answer)}, gold)
            self.assertEqual(1.0, result["short-best-threshold-f1"])

    def test_long_and_short_have_scores_of_their_own(self):
        gold = {
            "a": NQGold((A, A), ((C,), (C,)), ("none", "none")),
            "b": NQGold((B, B), ((), ()), ("no", "no")),
        }
        predictions = {
            "a": NQPrediction(A, 1.0, (C,), 20.0),
            "b": NQPrediction(A, 2.0, (), 10.0, "no"),
        }
        # long:  b 2.0 wrong; a 1.0 right: precision 1/2, recall 1/2, F1 1/2
        # short: a 20.0 right; b 10.0 right: F1 1
        self.assert_metrics(
            {
                "long-best-threshold-f1": 0.5,
                "long-best-threshold": 1.0,
                "short-best-threshold-f1": 1.0,
                "short-best-threshold": 10.0,
                "average-best-threshold-f1": 0.75,
            },
            metrics.evaluate(predictions, gold),
        )


class EvaluateAtThresholdsTest(_MetricsTestCase):
    GOLD = {
        "a": _long_gold(A, A),
        "b": _long_gold(B, B),
        "c": _long_gold(NULL_SPAN, NULL_SPAN),
    }
    PREDICTIONS = {"a": _long(A, 9), "c": _long(C, 5), "b": _long(B, 4)}

    def _long(self, **kwargs):
        result = metrics.evaluate_at_thresholds(
            self.PREDICTIONS, self.GOLD, **kwargs
        )
        self.assertEqual(3, result["long-answer-n"])
        return tuple(
            result[f"long-answer-{name}"]
            for name in ("precision", "recall", "f1")
        )

    def test_scores_of_at_least_the_threshold_count(self):
        self.assertEqual((1.0, 0.5, 2 / 3), self._long(long_threshold=9.0))
        self.assertEqual((0.5, 0.5, 0.5), self._long(long_threshold=4.5))
        self.assertEqual((0.0, 0.0, 0.0), self._long(long_threshold=9.1))

    def test_without_thresholds_all_predictions_count(self):
        precision, recall, f1 = self._long()
        self.assertEqual((2 / 3, 1.0), (precision, recall))
        self.assertAlmostEqual(0.8, f1)

    def test_short_answers_and_names(self):
        result = metrics.evaluate_at_thresholds(
            {"x": _short("yes", 3.0), "y": _short((A,), 2.0)},
            {"x": _short_gold("yes"), "y": _short_gold((B,))},
            short_threshold=2.5,
            min_annotations=1,
        )
        self.assertEqual(
            {
                "long-answer-n": 2,
                "long-answer-f1": 0.0,
                "long-answer-precision": 0.0,
                "long-answer-recall": 0.0,
                "short-answer-n": 2,
                "short-answer-f1": 2 / 3,
                "short-answer-precision": 1.0,
                "short-answer-recall": 0.5,
            },
            result,
        )

    def test_agrees_with_the_best_threshold(self):
        best = metrics.evaluate(self.PREDICTIONS, self.GOLD)
        result = metrics.evaluate_at_thresholds(
            self.PREDICTIONS,
            self.GOLD,
            long_threshold=best["long-best-threshold"],
        )
        for name in ("f1", "precision", "recall"):
            self.assertEqual(
                best[f"long-best-threshold-{name}"],
                result[f"long-answer-{name}"],
            )

    def test_nothing(self):
        result = metrics.evaluate_at_thresholds({}, {})
        self.assertEqual({0}, set(result.values()))


class ChecksTest(unittest.TestCase):
    def test_yes_or_spans(self):
        with self.assertRaisesRegex(ValueError, "both 'yes' and the spans"):
            NQPrediction(A, 1.0, (B,), 1.0, "yes")
        NQPrediction(A, 1.0, (NULL_SPAN,), 1.0, "yes")

    def test_unknown_answer(self):
        with self.assertRaisesRegex(ValueError, "No such answer: 'YES'"):
            NQPrediction(A, 1.0, (), 1.0, "YES")
        with self.assertRaisesRegex(ValueError, "No such answer: 'maybe'"):
            NQGold((A,), ((),), ("maybe",))

    def test_not_a_number(self):
        for scores in ((math.nan, 0.0), (0.0, math.nan)):
            with self.assertRaisesRegex(ValueError, "not a number"):
                NQPrediction(A, scores[0], (), scores[1])

    def test_numbers_of_annotators(self):
        with self.assertRaisesRegex(ValueError, r"annotators .*\(2, 1, 1\)"):
            NQGold((A, A), ((),), ("none",))

    def test_spans(self):
        for span in ((5, 5), (7, 3), (-1, 3), (3, -1)):
            with self.assertRaisesRegex(ValueError, "No span of tokens"):
                metrics.is_null(span)
            with self.assertRaisesRegex(ValueError, "No span of tokens"):
                metrics.evaluate({"x": _long(span, 1.0)}, {"x": _long_gold(A)})
        self.assertFalse(metrics.is_null((0, 1)))
        self.assertTrue(metrics.is_null((-1, -1)))

    def test_minimum_of_annotations(self):
        with self.assertRaisesRegex(ValueError, "min_annotations is 0"):
            metrics.evaluate({}, {}, min_annotations=0)


class SpeedTest(unittest.TestCase):
    def test_thousands_of_examples(self):
        rng = random.Random(0)
        spans = [NULL_SPAN, A, B, C]
        gold = {}
        predictions = {}
        for i in range(8000):
            longs = tuple(rng.choices(spans, k=5))
            shorts = tuple(tuple(rng.choices(spans, k=2)) for _ in range(5))
            gold[str(i)] = NQGold(longs, shorts, ("none",) * 5)
            predictions[str(i)] = NQPrediction(
                rng.choice(spans), rng.random(), shorts[0], rng.random()
            )
        start = time.process_time()
        result = metrics.evaluate(predictions, gold)
        # About 0.2 seconds; a pass per threshold would take minutes.
        self.assertLess(time.process_time() - start, 5.0)
        self.assertGreater(result["short-best-threshold-f1"], 0.9)


class UsualMinAnnotationsTest(unittest.TestCase):
    def test_official_data(self):
        """Five annotators; it does not matter what they found."""
        five = _long_gold(A, *[NULL_SPAN] * 4)
        one = _long_gold(A)
        self.assertEqual(2, metrics.usual_min_annotations([five, five]))
        self.assertEqual(2, metrics.usual_min_annotations([one, five]))
        self.assertEqual(2, metrics.usual_min_annotations(iter([five, one])))
        self.assertEqual(2, metrics.usual_min_annotations([_long_gold(A, B)]))

    def test_training_data(self):
        golds = [_long_gold(A), _short_gold("yes"), _long_gold(NULL_SPAN)]
        self.assertEqual(1, metrics.usual_min_annotations(golds))

    def test_nothing(self):
        self.assertEqual(2, metrics.usual_min_annotations([]))


if __name__ == "__main__":
    unittest.main()
