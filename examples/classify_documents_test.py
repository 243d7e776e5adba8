import tensorflow as tf

from examples import classify_documents
from testing.examples import run_example


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """The model is accurate on records that it was not trained on."""
        metrics = run_example(self, classify_documents)
        self.assertGreaterEqual(metrics["accuracy"], 0.9)


if __name__ == "__main__":
    tf.test.main()
