import tensorflow as tf

from examples import answer_questions
from testing.examples import run_example


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """The model is accurate on records that it was not trained on."""
        metrics = run_example(self, answer_questions)
        self.assertGreaterEqual(metrics["exact_match"], 0.9)


if __name__ == "__main__":
    tf.test.main()
