"""Tests that `metrics` computes the same scores as nlg-eval."""

import tensorflow as tf

from etcmodel.datasets.narrativeqa import metrics

_TRUTHS = (
    "Jim was arrested for knocking Dave out using a jock bone from a mule .",
    "For hitting Dave with a hock bone",
)
_ANSWER = "He was arrested for stealing a mule bone ."


class MetricsTest(tf.test.TestCase):
    def test_numbers_of_nlg_eval(self):
        gold, predictions = {"a": _TRUTHS}, {"a": _ANSWER, "b": "x"}
        scores = metrics.score(predictions, gold)
        self.assertAllClose(75.0, scores["bleu_1"])
        self.assertAllClose(0.0057, scores["bleu_4"], atol=5e-5)
        self.assertAllClose(49.1935, scores["rouge_l"], atol=5e-5)
        answers = [metrics.normalize_answer(_ANSWER)]
        truths = [[metrics.normalize_answer(x) for x in _TRUTHS]]
        self.assertAllClose(
            [56.69, 37.70],
            [metrics._bleu(answers, truths, n) for n in (2, 3)],
            atol=5e-3,
        )

    def test_rouge_by_hand(self):
        """Combines the second truth's precision with the first one's recall."""
        # The second truth has 2 of 3 predicted words; the first is found
        # entirely.
        p, r = 2 / 3, 1.0
        self.assertAllClose(
            2.44 * p * r / (r + 1.44 * p),
            metrics.rouge_l("a c b", ["c", "b a x b"]),
        )
        self.assertEqual(0, metrics.rouge_l("a", ["b"]))
        self.assertEqual(0, metrics.rouge_l("", ["b"]))

    def test_meteor_by_hand(self):
        """Matches words and stems, in two chunks."""
        # "running" matches "runs" by its stem; "he runs" and "home" are two
        # chunks of three words: 10 P R / (R + 9 P) (1 - (2 / 3)^3 / 2).
        p, r = 3 / 4, 3 / 3
        self.assertAllClose(
            10 * p * r / (r + 9 * p) * (1 - 0.5 * (2 / 3) ** 3),
            metrics._meteor("he running back home", ["he runs home"]),
        )
        # A synonym does not match.
        self.assertEqual(0, metrics._meteor("house", ["home"]))

    def test_missing_predictions(self):
        gold = {"a": ["x y", "z"], "b": ["x y"]}
        scores = metrics.score({"a": "Z."}, gold)
        self.assertAllClose(50.0, scores["rouge_l"])
        self.assertEqual({0.0}, {*metrics.score({}, gold).values()})
        self.assertEqual({0.0}, {*metrics.score({"a": "x"}, {}).values()})

    def test_normalize(self):
        for text, expected in (
            ("A  Mule .", "a mule"),
            ("U.S.", "u.s"),
            (" .", ""),
            ("a , b", "a , b"),
        ):
            self.assertEqual(expected, metrics.normalize_answer(text))


if __name__ == "__main__":
    tf.test.main()
