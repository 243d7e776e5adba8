import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import dropout


class DropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(tf.float32, tf.float64)
    def test_share_of_kept_elements(self, dtype):
        for rate in (0.25, tf.constant(0.25)):
            is_kept, scale = dropout.draw([100, 100], [3, 4], rate, dtype)
            self.assertEqual(dtype, scale.dtype)
            self.assertAllClose(4 / 3, scale)
            # The tolerance is six standard deviations.
            share = tf.reduce_mean(tf.cast(is_kept, tf.float32))
            self.assertNear(0.75, share, 6 * (0.25 * 0.75 / 10_000) ** 0.5)

    def test_the_seed_determines_the_mask(self):
        first, again, other = (
            dropout.draw([50], [1, seed], 0.5)[0] for seed in (2, 2, 3)
        )
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, other)

    @parameterized.parameters(tf.float16, tf.float32, tf.float64)
    def test_drop(self, dtype):
        x = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype)
        dropped = dropout.drop(x, [True, False, True], tf.constant(2.0))
        self.assertEqual(dtype, dropped.dtype)
        self.assertAllEqual([[2, 0, 6], [8, 0, 12]], dropped)


if __name__ == "__main__":
    tf.test.main()
