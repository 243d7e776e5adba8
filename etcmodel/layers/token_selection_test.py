import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import token_selection


class PositionsTest(tf.test.TestCase, parameterized.TestCase):
    def test_gather_positions(self):
        sequence = np.random.default_rng(0).normal(size=[2, 5, 3])
        positions = np.array([[4, 0, 4, 1], [2, 2, 3, 0]])
        gathered = token_selection.gather_positions(sequence, positions)
        self.assertAllEqual(
            gathered, np.stack([sequence[i][positions[i]] for i in (0, 1)])
        )

    def test_gradient_of_gather_positions(self):
        sequence = tf.zeros([1, 3, 1])
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            gathered = token_selection.gather_positions(
                sequence, tf.constant([[2, 0, 2]])
            )
            loss = tf.reduce_sum(gathered * [[[1.0], [10.0], [100.0]]])
        gradient = tf.convert_to_tensor(tape.gradient(loss, sequence))
        self.assertAllEqual(gradient, [[[10.0], [0.0], [101.0]]])

    @parameterized.parameters(
        (2, [[1, 3], [3, 0], [0, 0], [0, 1]], [[1, 1], [1, 0], [0, 0], [1, 1]]),
        (
            3,
            [[1, 3, 4], [3, 0, 0], [0, 0, 0], [0, 1, 2]],
            [[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]],
        ),
        # More than there are.
        (
            7,
            [
                [1, 3, 4, 0, 0, 0, 0],
                [3, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
                [0, 1, 2, 3, 4, 0, 0],
            ],
            [
                [1, 1, 1, 0, 0, 0, 0],
                [1, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
                [1, 1, 1, 1, 1, 0, 0],
            ],
        ),
        (0, [[]] * 4, [[]] * 4),
    )
    def test_true_positions(self, most, positions, weights):
        mask = np.array([[0, 1, 0, 1, 1], [0, 0, 0, 1, 0], [0] * 5, [1] * 5])
        for given in (mask == 1, mask):
            for number in (most, tf.constant(most)):
                actual = token_selection.true_positions(given, number)
                self.assertAllEqual(actual[0], np.array(positions))
                self.assertAllEqual(actual[1], np.array(weights))
                self.assertEqual(
                    [tf.int32, tf.float32], [x.dtype for x in actual]
                )

    @parameterized.parameters(False, True)
    def test_any_length(self, jit_compile):
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.bool)],
            jit_compile=jit_compile,
        )
        def run(mask):
            result = token_selection.true_positions(mask, 3)
            for x in result:
                self.assertEqual([None, 3], x.shape.as_list())
            return result

        rng = np.random.default_rng(0)
        for length in (2, 3, 50):
            mask = rng.integers(0, 2, size=[6, length]).astype(bool)
            positions, weights = run(mask)
            for i, row in enumerate(mask):
                (expected,) = np.nonzero(row)
                number = min(len(expected), 3)
                self.assertAllEqual(
                    positions[i],
                    np.pad(expected[:number], [0, 3 - number]),
                )
                self.assertAllEqual(weights[i], np.arange(3) < number)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "'mask' has rank 1"):
            token_selection.true_positions([True], 2)
        with self.assertRaisesRegex(ValueError, "'sequence' has rank 2"):
            token_selection.gather_positions(tf.zeros([2, 3]), [[1]])
        with self.assertRaisesRegex(ValueError, "'positions' has rank 1"):
            token_selection.gather_positions(tf.zeros([2, 3, 4]), [1, 1])


class ApplyToChosenTest(tf.test.TestCase, parameterized.TestCase):
    def test_example(self):
        result = token_selection.apply_to_chosen(
            lambda x: 10 * x, [tf.constant([[[1], [2], [3]]])], [[0, 0, 1]]
        )
        self.assertAllEqual(result, [[[0], [0], [30]]])

    @parameterized.parameters(
        # The most that an example of 19 has, and how many are calculated.
        (0, 3),
        (3, 3),
        (4, 5),
        (5, 5),
        (6, 10),
        (10, 10),
        (11, 19),
        (5, 5, True),
        (6, 10, True, True),
        (6, 10, False, True),
    )
    def test_chosen_tokens(
        self, most, expected_size, static=False, jit_compile=False
    ):
        rng = np.random.default_rng(most)
        mask = np.zeros([3, 19], bool)
        for row, number in enumerate((most, most // 2, 0)):
            mask[row, rng.permutation(19)[:number]] = True
        x = rng.normal(size=[3, 19, 2]).astype(np.float32)
        y = rng.normal(size=[3, 19]).astype(np.float32)
        weight = tf.Variable(3.0)
        calls = []

        def function(x, y):
            calls.append(x.shape[1])
            size = tf.cast(tf.shape(x)[1], tf.float32)
            z = weight * x**2 * y[..., None]
            return tf.concat([z, size + 0 * z[..., :1]], axis=-1)

        shape = [3, 19] if static else [None, None]

        @tf.function(
            input_signature=[
                tf.TensorSpec(shape + [2]),
                tf.TensorSpec(shape),
                tf.TensorSpec(shape, tf.bool),
            ],
            jit_compile=jit_compile,
        )
        def run(x, y, mask):
            with tf.GradientTape() as tape:
                tape.watch([x, y])
                result = token_selection.apply_to_chosen(function, [x, y], mask)
                loss = tf.reduce_sum(result[..., :2])
            return result, tape.gradient(loss, [x, y, weight])

        result, gradients = run(x, y, mask)
        if static:
            self.assertEqual([3, 5, 10, 19], sorted(set(calls)))
        m = mask[..., None]
        self.assertAllClose(result[..., :2], 3 * x**2 * y[..., None] * m)
        self.assertAllEqual(result[..., 2:], expected_size * m)
        self.assertAllClose(gradients[0], 6 * x * y[..., None] * m)
        self.assertAllClose(gradients[1], 3 * (x**2).sum(-1) * mask, 1e-5)
        self.assertAllClose(
            gradients[2], (x**2 * y[..., None] * m).sum(), 1e-4, 1e-4
        )

    def test_rank_of_the_mask(self):
        with self.assertRaisesRegex(ValueError, "'mask' has rank 1"):
            token_selection.apply_to_chosen(tf.abs, [tf.ones([1, 1, 1])], [1])


if __name__ == "__main__":
    tf.test.main()
