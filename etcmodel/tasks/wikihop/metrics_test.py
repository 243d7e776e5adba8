import tensorflow as tf

from etcmodel.tasks.wikihop import metrics


class MetricsTest(tf.test.TestCase):
    def test_counts_right_answers(self):
        score = metrics.score_predictions(
            {"a": "Oslo ", "b": "Rome", "x": "not asked"},
            {"a": "oslo", "b": "paris", "c": "bonn", "d": "kyiv"},
        )
        self.assertEqual(1, score.correct)
        self.assertEqual(4, score.total)
        self.assertEqual(2, score.missing)
        self.assertEqual(0.25, score.accuracy)

    def test_nothing_to_score(self):
        self.assertEqual(0.0, metrics.score_predictions({}, {}).accuracy)


if __name__ == "__main__":
    tf.test.main()
