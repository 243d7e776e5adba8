import tensorflow as tf

from examples import select_evidence


class ExampleTest(tf.test.TestCase):
    def test_it_learns(self):
        """Of records that it has not seen, too."""
        metrics = select_evidence.main()
        self.assertGreaterEqual(metrics["mean_average_precision"], 0.9)


if __name__ == "__main__":
    tf.test.main()
