import tensorflow as tf
from absl.testing import parameterized

from etcmodel.engine import fine_tuning


class FineTuningTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # 5e-5 * (768 / width)^2, to two digits.
        (768, 5e-5),
        (384, 2e-4),
        (1024, 2.8e-5),
        (512, 1.1e-4),
        # The formula gives 1.8e-3.
        (128, 1e-3),
    )
    def test_rates(self, width, rate):
        self.assertAlmostEqual(rate, fine_tuning.choose_rate(width), 9)
        self.assertAlmostEqual(5 * rate, fine_tuning.choose_rate(width, 8), 9)

    def test_batch_sizes(self):
        sizes = [fine_tuning.choose_batch_size(x) for x in (3, 499, 500, 9999)]
        self.assertEqual([8, 8, 16, 16], sizes)

    @parameterized.parameters(
        # Six steps an epoch; 50 epochs would be needed.
        (50, 8, 30),
        (200, 8, 12),
        (200, 16, 25),
        (499, 8, 5),
        (500, 16, 10),
        (10000, 16, 5),
        # Fewer records than a batch.
        (3, 8, 30),
    )
    def test_epochs(self, number, size, epochs):
        self.assertEqual(epochs, fine_tuning.choose_epochs(number, size, 5))


if __name__ == "__main__":
    tf.test.main()
