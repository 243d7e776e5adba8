import dataclasses
import unittest

from etcmodel.tasks.hotpotqa import metrics
from etcmodel.tasks.hotpotqa.metrics import Scores

ZERO = Scores(em=0.0, f1=0.0, precision=0.0, recall=0.0)
ONE = Scores(em=1.0, f1=1.0, precision=1.0, recall=1.0)


class _ScoresTestCase(unittest.TestCase):
    def assert_scores(self, expected: Scores, actual: Scores):
        for field in dataclasses.fields(Scores):
            self.assertAlmostEqual(
                getattr(expected, field.name),
                getattr(actual, field.name),
                places=12,
                msg=f"{field.name} of {actual}",
            )


class NormalizeAnswerTest(unittest.TestCase):
    def test_examples(self):
        for text, expected in [
            ("The  Quick-brown, an Apple!", "quickbrown apple"),
            ("", ""),
            (" The A an. ", ""),
            ("Theater Anna A", "theater anna"),  # only whole words go
            ("U.S.A.", "usa"),
            ("a-b", "ab"),  # punctuation goes before articles
            ("the\tend\u00a0now\n", "end now"),  # any Unicode space
            ("$1,000.50", "100050"),
        ]:
            with self.subTest(text):
                self.assertEqual(expected, metrics.normalize_answer(text))

    def test_only_ascii_punctuation_is_stripped(self):
        self.assertEqual(
            "\u201cquoted\u201d \u2013 x",
            metrics.normalize_answer("\u201cQuoted\u201d \u2013 'x'"),
        )
        # An article next to such a mark is still a word of its own.
        self.assertEqual(
            "\u00ab \u00bb", metrics.normalize_answer("\u00aba\u00bb")
        )
        # With a letter from another alphabet it is not.
        self.assertEqual("a\u00e9", metrics.normalize_answer("A\u00e9"))


class AnswerScoresTest(_ScoresTestCase):
    def test_exact_match_after_normalization(self):
        self.assert_scores(ONE, metrics.answer_scores("The Oslo.", "oslo"))
        self.assert_scores(ONE, metrics.answer_scores("Yes!", "yes"))

    def test_repeated_words_count_as_often_as_they_occur(self):
        # Prediction paris x2, texas; gold paris, texas: 2 words in common.
        # precision 2/3, recall 2/2, F1 = 2 * 2/3 / (5/3) = 0.8
        self.assert_scores(
            Scores(em=0.0, f1=0.8, precision=2 / 3, recall=1.0),
            metrics.answer_scores("Paris Paris Texas", "the Paris, Texas"),
        )
        # new x2 in both, york against jersey: 2 of 3 either way.
        self.assert_scores(
            Scores(em=0.0, f1=2 / 3, precision=2 / 3, recall=2 / 3),
            metrics.answer_scores("new new york", "new jersey new"),
        )

    def test_order_of_words_matters_for_em_alone(self):
        self.assert_scores(
            Scores(em=0.0, f1=1.0, precision=1.0, recall=1.0),
            metrics.answer_scores("Texas Paris", "Paris Texas"),
        )

    def test_yes_no_and_noanswer_are_all_or_nothing(self):
        for prediction, gold in [
            ("no", "no man"),
            ("no man", "no"),
            ("yes", "no"),
            ("Yes, it is", "yes"),
            ("noanswer", "noanswer given"),
            ("", "yes"),
        ]:
            with self.subTest(prediction=prediction, gold=gold):
                self.assertEqual(ZERO, metrics.answer_scores(prediction, gold))
        # Inside of longer answers they are words like others: 1 of 2.
        self.assertEqual(0.5, metrics.answer_scores("no man", "no one").f1)

    def test_nothing_in_common(self):
        self.assertEqual(ZERO, metrics.answer_scores("Rome", "Oslo"))
        self.assertEqual(ZERO, metrics.answer_scores("", "Oslo"))
        self.assertEqual(ZERO, metrics.answer_scores("Rome", "the"))

    def test_both_empty_match_exactly_but_share_no_word(self):
        self.assert_scores(
            Scores(em=1.0, f1=0.0, precision=0.0, recall=0.0),
            metrics.answer_scores("the", "A."),
        )


class SupportingFactScoresTest(_ScoresTestCase):
    def test_partial_overlap(self):
        # 1 right of 3 predicted, 1 found of 2: F1 = 2 * 1/6 / (5/6) = 0.4
        self.assert_scores(
            Scores(em=0.0, f1=0.4, precision=1 / 3, recall=0.5),
            metrics.supporting_fact_scores(
                [("Oslo", 0), ("Oslo", 2), ("Rome", 0)],
                [("Oslo", 0), ("Rome", 1)],
            ),
        )

    def test_order_repetition_and_lists_do_not_matter(self):
        self.assertEqual(
            ONE,
            metrics.supporting_fact_scores(
                [["b", 1], ["a", 0], ["b", 1]], [("a", 0), ("b", 1)]
            ),
        )

    def test_titles_are_compared_as_they_are(self):
        self.assertEqual(
            ZERO, metrics.supporting_fact_scores([("oslo", 0)], [("Oslo", 0)])
        )

    def test_empty(self):
        self.assertEqual(ZERO, metrics.supporting_fact_scores([], [("a", 0)]))
        self.assertEqual(ZERO, metrics.supporting_fact_scores([("a", 0)], []))
        self.assertEqual(
            Scores(em=1.0, f1=0.0, precision=0.0, recall=0.0),
            metrics.supporting_fact_scores([], []),
        )


class JointScoresTest(_ScoresTestCase):
    def test_f1_of_the_products(self):
        # precision 2/3 * 1/2 = 1/3, recall 1 * 1/2 = 1/2:
        # F1 = 2 * 1/6 / (5/6) = 0.4, not 0.8 * 0.5.
        self.assert_scores(
            Scores(em=0.0, f1=0.4, precision=1 / 3, recall=0.5),
            metrics.joint_scores(
                Scores(em=1.0, f1=0.8, precision=2 / 3, recall=1.0),
                Scores(em=0.0, f1=0.5, precision=0.5, recall=0.5),
            ),
        )

    def test_zero_and_one(self):
        self.assertEqual(ZERO, metrics.joint_scores(ZERO, ONE))
        self.assertEqual(ZERO, metrics.joint_scores(ONE, ZERO))
        self.assertEqual(ONE, metrics.joint_scores(ONE, ONE))


class EvaluateTest(unittest.TestCase):
    def test_means_over_all_gold_records(self):
        gold = {
            "right": ("yes", [("a", 0), ("b", 1)]),
            "partly": ("Paris, Texas", [("a", 0), ("a", 1)]),
            "no answer": ("Oslo", [("a", 0)]),
            "no facts": ("Rome", [("a", 0)]),
            "nothing": ("Bonn", [("a", 0)]),
        }
        answers = {
            "right": "Yes",
            "partly": "Paris Paris Texas",
            "no facts": "Rome",
            "not asked": "Kyiv",
        }
        facts = {
            "right": [("b", 1), ("a", 0)],
            "partly": [("a", 0), ("c", 0)],
            "no answer": [("a", 0)],
            "not asked": [("a", 0)],
        }
        #              answer                facts             joint
        #            em  f1  prec rec    em  f1  prec rec   em f1  prec rec
        # right      1   1   1    1      1   1   1    1     1  1   1    1
        # partly     0   0.8 2/3  1      0   0.5 0.5  0.5   0  0.4 1/3  0.5
        # no answer  0   0   0    0      1   1   1    1     0  0   0    0
        # no facts   1   1   1    1      0   0   0    0     0  0   0    0
        # nothing    0   0   0    0      0   0   0    0     0  0   0    0
        expected = {
            "em": 2 / 5,
            "f1": 2.8 / 5,
            "prec": (8 / 3) / 5,
            "recall": 3 / 5,
            "sp_em": 2 / 5,
            "sp_f1": 2.5 / 5,
            "sp_prec": 2.5 / 5,
            "sp_recall": 2.5 / 5,
            "joint_em": 1 / 5,
            "joint_f1": 1.4 / 5,
            "joint_prec": (4 / 3) / 5,
            "joint_recall": 1.5 / 5,
        }
        actual = metrics.evaluate(answers, facts, gold)
        self.assertEqual(list(expected), list(actual))
        for name, value in expected.items():
            self.assertAlmostEqual(value, actual[name], places=12, msg=name)

    def test_a_missing_prediction_is_not_an_empty_one(self):
        gold = {"x": ("the", [])}
        empty = metrics.evaluate({"x": ""}, {"x": []}, gold)
        self.assertEqual(1.0, empty["em"])
        self.assertEqual(1.0, empty["sp_em"])
        self.assertEqual(1.0, empty["joint_em"])
        self.assertEqual(0.0, empty["joint_f1"])
        missing = metrics.evaluate({}, {}, gold)
        self.assertEqual({0.0}, set(missing.values()))
        self.assertEqual(0.0, metrics.evaluate({"x": ""}, {}, gold)["joint_em"])

    def test_no_records(self):
        result = metrics.evaluate({"x": "y"}, {}, {})
        self.assertEqual(12, len(result))
        self.assertEqual({0.0}, set(result.values()))


class AnswerConfusionTest(unittest.TestCase):
    def test_every_cell(self):
        cases = [  # true answer, prediction (None: missing), key
            ("Oslo", "the Oslo!", "A_A"),
            ("Oslo", "Rome", "A_B"),
            ("Oslo", "noanswer", "A_B"),
            ("Oslo", "", "A_E"),
            ("Oslo", None, "A_E"),
            ("Oslo", "a ...", "A_E"),
            ("Oslo", "Yes", "A_Y"),
            ("Oslo", "no.", "A_N"),
            ("yes", "Yes", "Y_Y"),
            ("yes", "no", "Y_N"),
            ("yes", "Oslo", "Y_A"),
            ("yes", "", "Y_E"),
            ("no", "No", "N_N"),
            ("No", "yes", "N_Y"),
            ("no", "no man", "N_A"),
            ("no", None, "N_E"),
        ]
        gold = {str(i): (case[0], []) for i, case in enumerate(cases)}
        answers = {
            str(i): case[1]
            for i, case in enumerate(cases)
            if case[1] is not None
        }
        counts = metrics.answer_confusion(answers, gold)
        for key, count in counts.items():
            self.assertEqual(
                sum(case[2] == key for case in cases), count, msg=key
            )
        self.assertEqual(len(cases), sum(counts.values()))
        # The diagonal is the exact match of the official metrics.
        self.assertAlmostEqual(
            metrics.evaluate(answers, {}, gold)["em"],
            (counts["A_A"] + counts["Y_Y"] + counts["N_N"]) / len(cases),
        )

    def test_empty_gold(self):
        # An answer that normalises to nothing is right for such a question;
        # a missing one is not.
        gold = {"a": ("The", []), "b": ("The", [])}
        counts = metrics.answer_confusion({"a": "a"}, gold)
        self.assertEqual(1, counts["A_A"])
        self.assertEqual(1, counts["A_E"])

    def test_all_keys_are_there(self):
        counts = metrics.answer_confusion({}, {})
        self.assertEqual(13, len(counts))
        self.assertEqual({0}, set(counts.values()))


class BestThresholdTest(unittest.TestCase):
    def test_greatest_then_lowest(self):
        results = {
            0.5: {"joint_f1": 0.6, "f1": 0.1},
            0.4: {"joint_f1": 0.6, "f1": 0.2},
            0.3: {"joint_f1": 0.5, "f1": 0.3},
        }
        self.assertEqual(0.4, metrics.best_threshold(results))
        self.assertEqual(0.3, metrics.best_threshold(results, "f1"))

    def test_nothing_to_choose(self):
        with self.assertRaisesRegex(ValueError, "no thresholds"):
            metrics.best_threshold({})


if __name__ == "__main__":
    unittest.main()
