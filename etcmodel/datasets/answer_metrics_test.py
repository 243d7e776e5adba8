from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets import answer_metrics


class AnswerMetricsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("The  Quick-brown, an Apple!", "quickbrown apple"),
        ("U.S.A.", "usa"),
        (" The A an. ", ""),
        # Only whole words are articles; punctuation is removed before them.
        ("Theater Anna A", "theater anna"),
        ("a-b", "ab"),
        ("$1,000.50", "100050"),
        # Any Unicode space separates words.
        ("the\tend\u00a0now\n", "end now"),
        # Only ASCII punctuation is removed. An article next to other
        # punctuation is a word; next to other alphabets' letters it is not.
        ("\u201cQuoted\u201d \u2013 'x'", "\u201cquoted\u201d \u2013 x"),
        ("\u00aba\u00bb", "\u00ab \u00bb"),
        ("A\u00e9", "a\u00e9"),
    )
    def test_normalizes_answers(self, text, expected):
        self.assertEqual(expected, answer_metrics.normalize_answer(text))

    def test_replaces_punctuation(self):
        self.assertEqual(
            "quick brown apple",
            answer_metrics.normalize_answer(
                "The quick-brown apple", {ord("-"): " "}
            ),
        )

    @parameterized.parameters(
        # Prediction, gold answer, (EM, F1, precision, recall).
        ("paris paris texas", "texas paris", (0, 0.8, 2 / 3, 1)),
        ("new new york", "new jersey new", (0, 2 / 3, 2 / 3, 2 / 3)),
        ("texas paris", "paris texas", (0, 1, 1, 1)),
        ("paris", "paris", (1, 1, 1, 1)),
        ("", "", (1, 0, 0, 0)),
        ("", "paris", (0, 0, 0, 0)),
    )
    def test_words(self, prediction, gold, expected):
        scores = answer_metrics.word_scores(prediction, gold)
        self.assertSequenceAlmostEqual(expected, scores, places=12)

    @parameterized.parameters(
        # One of three predicted elements is right; one of two gold ones is
        # found.
        ([1, 2, 3, 3], [3, 4], (0, 0.4, 1 / 3, 1 / 2)),
        ([2, 1], [1, 2, 2], (1, 1, 1, 1)),
        ([], [], (1, 0, 0, 0)),
    )
    def test_sets(self, predicted, gold, expected):
        scores = answer_metrics.set_scores(predicted, gold)
        self.assertSequenceAlmostEqual(expected, scores, places=12)


if __name__ == "__main__":
    absltest.main()
