from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets.question_answering import metrics


class AnswerScoresTest(parameterized.TestCase):
    @parameterized.parameters(
        # The answer with the best score counts. Articles, case and punctuation
        # are ignored.
        ("The York Minster!", ["Eboracum", "york"], (0, 2 / 3)),
        ("the york.", ["Eboracum", "York"], (1, 1)),
        # There is no gold answer, or it is empty after normalization.
        ("", [], (1, 1)),
        ("the", [], (1, 1)),
        ("", ["The", "A."], (1, 1)),
        ("York", [], (0, 0)),
        ("", ["York"], (0, 0)),
        ("Yes.", ["yes"], (1, 1)),
        ("no", ["no man"], (0, 2 / 3)),
    )
    def test_scores(self, prediction, answers, expected):
        scores = metrics.answer_scores(prediction, answers)
        self.assertSequenceAlmostEqual(expected, scores, places=12)


if __name__ == "__main__":
    absltest.main()
