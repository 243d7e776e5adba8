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

    def test_true_positions(self):
        actual = token_selection.true_positions([[0, 1, 0, 1], [0, 0, 1, 0]], 2)
        self.assertAllEqual(actual[0], [[1, 3], [2, 0]])
        self.assertAllEqual(actual[1], [[1, 1], [1, 0]])

    @parameterized.product(most=[3, 7, 0], jit_compile=[False, True])
    def test_true_positions_of_any_length(self, most, jit_compile):
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.bool)],
            jit_compile=jit_compile,
        )
        def run(mask):
            result = token_selection.true_positions(mask, most)
            for x in result:
                self.assertEqual([None, most], x.shape.as_list())
            return result

        rng = np.random.default_rng(0)
        for length in (2, 3, 50):
            mask = rng.integers(0, 2, size=[6, length]).astype(bool)
            mask[0], mask[1] = False, True
            of_tensor = token_selection.true_positions(
                mask.astype(int), tf.constant(most)
            )
            for positions, weights in (run(mask), of_tensor):
                self.assertEqual(tf.int32, positions.dtype)
                self.assertEqual(tf.float32, weights.dtype)
                for i, row in enumerate(mask):
                    (expected,) = np.nonzero(row)
                    expected = expected[:most]
                    number = len(expected)
                    self.assertAllEqual(positions[i, :number], expected)
                    self.assertAllEqual(
                        positions[i, number:], [0] * (most - number)
                    )
                    self.assertAllEqual(weights[i], np.arange(most) < number)

    def test_errors(self):
        ones = tf.ones([2, 3, 4])
        gather = token_selection.gather_positions
        for message, function in (
            ("'mask' has", lambda: token_selection.true_positions([True], 2)),
            (
                "'mask' has",
                lambda: token_selection.apply_to_chosen(tf.abs, [ones], [1]),
            ),
            ("'sequence' has rank 2", lambda: gather(ones[0], [[1]])),
            ("'positions' has rank 1", lambda: gather(ones, [1, 1])),
        ):
            with self.assertRaisesRegex(ValueError, message):
                function()


class ApplyToChosenTest(tf.test.TestCase, parameterized.TestCase):
    def test_example(self):
        result = token_selection.apply_to_chosen(
            lambda x: 10 * x, [tf.constant([[[1], [2], [3]]])], [[0, 0, 1]]
        )
        self.assertAllEqual(result, [[[0], [0], [30]]])

    @parameterized.parameters(
        # Whether sizes are known, compiled; the most that an example of 19
        # has, and how many are calculated.
        (False, False, ((0, 3), (3, 3), (4, 5), (6, 10), (10, 10), (11, 19))),
        (False, True, ((6, 10),)),
        (True, True, ((5, 5), (6, 10))),
    )
    def test_chosen_tokens(self, static, jit_compile, numbers):
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

        rng = np.random.default_rng(0)
        x = rng.normal(size=[3, 19, 2]).astype(np.float32)
        y = rng.normal(size=[3, 19]).astype(np.float32)
        for most, expected_size in numbers:
            mask = np.zeros([3, 19], bool)
            for row, number in enumerate((most, most // 2, 0)):
                mask[row, rng.permutation(19)[:number]] = True
            result, gradients = run(x, y, mask)
            m = mask[..., None]
            self.assertAllClose(result[..., :2], 3 * x**2 * y[..., None] * m)
            self.assertAllEqual(result[..., 2:], expected_size * m)
            self.assertAllClose(gradients[0], 6 * x * y[..., None] * m)
            self.assertAllClose(gradients[1], 3 * (x**2).sum(-1) * mask, 1e-5)
            self.assertAllClose(
                gradients[2], (x**2 * y[..., None] * m).sum(), 1e-4, 1e-4
            )
        if static:
            self.assertEqual([3, 5, 10, 19], sorted(set(calls)))


if __name__ == "__main__":
    tf.test.main()
