import unittest

from absl.testing import parameterized

from etcmodel.datasets.hotpotqa import metrics
from etcmodel.datasets.hotpotqa.metrics import Scores


class ScoresTest(parameterized.TestCase):
    def _check(self, expected, scores):
        self.assertSequenceAlmostEqual(expected, scores, places=12)

    # Prediction, gold answer, (EM, F1, precision, recall).
    @parameterized.parameters(
        ("Yes!", "yes", (1, 1, 1, 1)),
        ("Paris Paris Texas", "the Paris, Texas", (0, 0.8, 2 / 3, 1)),
        # Yes, no and noanswer score either 1 or 0.
        ("no", "no man", (0, 0, 0, 0)),
        ("no man", "no", (0, 0, 0, 0)),
        ("yes", "no", (0, 0, 0, 0)),
        ("Yes, it is", "yes", (0, 0, 0, 0)),
        ("noanswer", "noanswer given", (0, 0, 0, 0)),
        ("", "yes", (0, 0, 0, 0)),
        # Inside longer answers, yes and no are ordinary words.
        ("no man", "no one", (0, 0.5, 0.5, 0.5)),
        # Both answers are empty after normalization.
        ("the", "A.", (1, 0, 0, 0)),
    )
    def test_answers(self, prediction, gold, expected):
        self._check(expected, metrics.answer_scores(prediction, gold))

    @parameterized.parameters(
        # Ignores order, repetition and list types, but not case.
        ([["b", 1], ["a", 0], ["b", 1]], [("a", 0), ("b", 1)], (1, 1, 1, 1)),
        ([("oslo", 0)], [("Oslo", 0)], (0, 0, 0, 0)),
    )
    def test_supporting_facts(self, predicted, gold, expected):
        self._check(expected, metrics.supporting_fact_scores(predicted, gold))

    @parameterized.parameters(
        # precision 2/3 * 1, recall 1 * 1/2: F1 = 2 * 1/3 / (7/6) = 4/7, not
        # 0.8 * 2/3.
        ((1, 0.8, 2 / 3, 1), (0, 2 / 3, 1, 0.5), (0, 4 / 7, 2 / 3, 0.5)),
        ((0, 0, 0, 0), (1, 1, 1, 1), (0, 0, 0, 0)),
        ((1, 1, 1, 1), (0, 0, 0, 0), (0, 0, 0, 0)),
        ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    )
    def test_joint(self, answer, facts, expected):
        self._check(
            expected, metrics.joint_scores(Scores(*answer), Scores(*facts))
        )


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


if __name__ == "__main__":
    unittest.main()
