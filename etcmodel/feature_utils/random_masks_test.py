import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import random_masks


class RandomMasksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(0.0, 0.15, 0.9)
    def test_number_of_draws(self, probability):
        drawn = random_masks.random_bools([100, 100], [1, 2], probability)
        # Four standard deviations of 10,000 draws are 0.02 at most.
        self.assertNear(np.mean(drawn), probability, 0.02 * (probability > 0))
        compiled = tf.function(random_masks.random_bools, jit_compile=True)
        self.assertAllEqual(drawn, compiled([100, 100], [1, 2], probability))

    def test_word_numbers(self):
        self.assertAllEqual(
            [[0, 1, 1, 2], [0, 0, 1, 2]],
            random_masks.word_numbers(
                tf.constant([[0, 0, 1, 0], [1, 1, 0, 0]])
            ),
        )

    def test_fractions(self):
        random_masks.check_fraction("x", 0.0)
        for fraction in (-0.1, 1.0):
            with self.assertRaisesRegex(ValueError, f"x is {fraction}"):
                random_masks.check_fraction("x", fraction)


if __name__ == "__main__":
    tf.test.main()
