import tensorflow as tf

from examples import answer_questions


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """Of records that it has not seen, too."""
        metrics = answer_questions.main()
        self.assertGreaterEqual(metrics["exact_match"], 0.5)


if __name__ == "__main__":
    tf.test.main()
