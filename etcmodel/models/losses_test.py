import tensorflow as tf

from etcmodel.models import losses


class LossesTest(tf.test.TestCase):
    def test_correctness(self):
        logits = tf.constant([[0.1, 0.3, -1e4], [2.0, 2.5, 3.0]])
        self.assertAllEqual([0.0, 1.0], losses.is_correct(logits, [0, 2]))


if __name__ == "__main__":
    tf.test.main()
