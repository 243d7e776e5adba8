import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import gathering


class PositionsTest(tf.test.TestCase, parameterized.TestCase):
    def test_gather_positions(self):
        sequence = np.random.default_rng(0).normal(size=[2, 5, 3])
        positions = np.array([[4, 0, 4, 1], [2, 2, 3, 0]])
        gathered = gathering.gather_positions(sequence, positions)
        self.assertAllEqual(
            gathered, np.stack([sequence[i][positions[i]] for i in (0, 1)])
        )

    def test_gradient_of_gather_positions(self):
        sequence = tf.zeros([1, 3, 1])
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            gathered = gathering.gather_positions(
                sequence, tf.constant([[2, 0, 2]])
            )
            loss = tf.reduce_sum(gathered * [[[1.0], [10.0], [100.0]]])
        gradient = tf.convert_to_tensor(tape.gradient(loss, sequence))
        self.assertAllEqual(gradient, [[[10.0], [0.0], [101.0]]])

    def test_true_positions(self):
        actual = gathering.true_positions([[0, 1, 0, 1], [0, 0, 1, 0]], 2)
        self.assertAllEqual(actual[0], [[1, 3], [2, 0]])
        self.assertAllEqual(actual[1], [[1, 1], [1, 0]])

    @parameterized.product(max_positions=[3, 7, 0], jit_compile=[False, True])
    def test_true_positions_of_any_length(self, max_positions, jit_compile):
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.bool)],
            jit_compile=jit_compile,
        )
        def run(mask):
            result = gathering.true_positions(mask, max_positions)
            for x in result:
                self.assertEqual([None, max_positions], x.shape.as_list())
            return result

        rng = np.random.default_rng(0)
        for length in (2, 3, 50):
            mask = rng.integers(0, 2, size=[6, length]).astype(bool)
            mask[0], mask[1] = False, True
            of_tensor = gathering.true_positions(
                mask.astype(int), tf.constant(max_positions)
            )
            for positions, weights in (run(mask), of_tensor):
                self.assertEqual(tf.int32, positions.dtype)
                self.assertEqual(tf.float32, weights.dtype)
                for i, row in enumerate(mask):
                    (expected,) = np.nonzero(row)
                    expected = expected[:max_positions]
                    number = len(expected)
                    self.assertAllEqual(positions[i, :number], expected)
                    self.assertAllEqual(
                        positions[i, number:], [0] * (max_positions - number)
                    )
                    self.assertAllEqual(
                        weights[i], np.arange(max_positions) < number
                    )

    def test_errors(self):
        ones = tf.ones([2, 3, 4])
        gather = gathering.gather_positions
        for message, function in (
            ("'mask' has", lambda: gathering.true_positions([True], 2)),
            ("'sequence' has rank 2", lambda: gather(ones[0], [[1]])),
            ("'positions' has rank 1", lambda: gather(ones, [1, 1])),
        ):
            with self.assertRaisesRegex(ValueError, message):
                function()


if __name__ == "__main__":
    tf.test.main()
