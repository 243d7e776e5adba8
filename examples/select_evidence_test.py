import tensorflow as tf

from examples import select_evidence
from testing.examples import run_example


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """The model is accurate on records that it was not trained on."""
        metrics = run_example(self, select_evidence, num_comments=0)
        self.assertGreaterEqual(metrics["mean_average_precision"], 0.9)
        self.assertGreaterEqual(metrics["f1"], 0.9)


if __name__ == "__main__":
    tf.test.main()
