import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import stack


class ChainsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (6, 2, [(0, 2, True), (2, 4, True), (4, 6, False)]),
        (5, 3, [(0, 2, True), (2, 5, False)]),
        (5, 2, [(0, 1, True), (1, 3, True), (3, 5, False)]),
        (2, 1, [(0, 1, True), (1, 2, False)]),
        *((4, period, [(0, 4, False)]) for period in (0, -1, 4, 9)),
    )
    def test_chains(self, num_layers, period, expected):
        self.assertEqual(expected, stack.chains(num_layers, period))


if __name__ == "__main__":
    tf.test.main()
