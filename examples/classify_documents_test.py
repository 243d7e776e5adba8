import tensorflow as tf

from examples import classify_documents


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """Of records that it has not seen, too."""
        metrics = classify_documents.main()
        self.assertGreaterEqual(metrics["accuracy"], 0.9)


if __name__ == "__main__":
    tf.test.main()
