import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops.attention import memory_attention
from testing import attention_cases
from testing.attention_cases import reference_attention


class AttendTest(parameterized.TestCase, tf.test.TestCase):
    """Tests `attend`; see also the tests of `SideAttention`."""

    @parameterized.parameters(False, True)
    def test_equals_the_reference(self, is_shared):
        rng = np.random.default_rng(0)
        normal = rng.standard_normal
        queries = normal((2, 5, 3, 4))
        keys, values = normal((2, 2, 6, 3, 4))
        if is_shared:
            keys[1], values[1] = keys[0], values[0]
        own_keys, own_values = normal((2, 2, 5, 3, 4))
        mask = rng.random((2, 6)) < 0.5
        own_mask = rng.random((2, 5, 5)) < 0.5
        mask[1] = own_mask[1, 2] = False
        rows = 0 if is_shared else slice(None)
        output, probs = memory_attention.attend(
            tf.constant(queries),
            [
                attention.Keys(
                    tf.constant(own_keys), tf.constant(own_values), own_mask
                ),
                attention.Keys(
                    tf.constant(keys[rows]), tf.constant(values[rows]), mask
                ),
            ],
        )
        expected = reference_attention(
            queries,
            np.concatenate([own_keys, keys], axis=1),
            np.concatenate([own_values, values], axis=1),
            np.concatenate(
                [own_mask, np.tile(mask[:, np.newaxis], [1, 5, 1])], axis=2
            ),
        )
        self.assertAllEqual(expected[1, 2], np.zeros((3, 4)))
        self.assertAllClose(
            expected.reshape(2, 5, 12), output, rtol=1e-9, atol=1e-12
        )
        weighed = sum(
            np.einsum("hbij,bjhv->bihv", x, rows)
            for x, rows in zip(probs, (own_values, values), strict=True)
        )
        self.assertAllClose(expected, weighed, rtol=1e-9, atol=1e-12)

    def test_wrong_masks(self):
        x = tf.ones([1, 2, 1, 4])
        for mask, message in (
            (tf.ones([1, 3]), "mask of 3 columns"),
            (tf.ones([3]), "side_att_mask"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                memory_attention.attend(
                    x, [attention.Keys(x, x, mask, name="side_")]
                )


class InChunksTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # Scores per example (12 fit into a chunk), batch size, expected
        # examples per chunk, and expected calls (two chunks are merged into
        # one).
        (3, 7, 7, 1),
        (4, 7, 3, 3),
        (6, 8, 2, 4),
        (6, 10, 2, 5),
        (5, 10, 2, 5),
        (13, 3, 1, 3),
        (13, 1, 1, 1),
        (13, 0, 0, 1),
    )
    def test_all_examples_in_order(self, scores, batch, number, num_chunks):
        rows = np.arange(2.0 * batch).reshape(batch, 2)

        def run(is_static):
            def attend(rows, others, nothing):
                self.assertIsNone(nothing)
                count.assign_add(1)
                size.assign(tf.shape(rows)[0])
                return rows * tf.cast(others, rows.dtype)[:, tf.newaxis]

            count, size = tf.Variable(0), tf.Variable(0)

            def compute(rows):
                return memory_attention.in_chunks(
                    attend,
                    {
                        "rows": rows,
                        "others": tf.range(tf.shape(rows)[0]),
                        "nothing": None,
                    },
                    scores,
                )

            length = batch if is_static else None
            compute = tf.function(
                compute, input_signature=[tf.TensorSpec([length, 2])]
            )
            with attention_cases.chunks_of(12), tf.GradientTape() as tape:
                x = tf.constant(rows, tf.float32)
                tape.watch(x)
                output = compute(x)
            factors = np.arange(batch)[:, np.newaxis]
            self.assertAllEqual(output, rows * factors)
            self.assertAllEqual(
                tape.gradient(output, x), np.tile(factors, [1, 2])
            )
            self.assertEqual(count.numpy(), num_chunks)
            self.assertEqual(size.numpy(), number)

        run(is_static=True)
        run(is_static=False)

    @parameterized.parameters(False, True)
    def test_shared_rows_are_broadcast(self, is_static):
        """A first axis of 1 is broadcast to a larger batch."""
        rows = np.arange(10.0).reshape(5, 2)
        spec = tf.TensorSpec([5 if is_static else None, 2], tf.float64)

        @tf.function(input_signature=[spec])
        def compute(rows):
            return memory_attention.in_chunks(
                lambda rows, factor: rows * factor,
                {"rows": rows, "factor": np.array([[2.0, 3.0]])},
                1,
            )

        with attention_cases.chunks_of(1):
            self.assertAllEqual(compute(rows), rows * [2.0, 3.0])

    @parameterized.parameters(False, True)
    def test_different_batch_sizes(self, is_static):
        """Inputs with too many or too few examples raise an error."""
        spec = tf.TensorSpec([7 if is_static else None])

        @tf.function(input_signature=[spec])
        def compute(rows):
            return memory_attention.in_chunks(
                lambda rows, mask: rows + mask[0],
                {"rows": rows, "mask": tf.zeros([9])},
                1,
            )

        with (
            attention_cases.chunks_of(1),
            self.assertRaisesRegex(
                (ValueError, tf.errors.InvalidArgumentError),
                "mask .* differ in their batch size",
            ),
        ):
            compute(np.zeros([7], np.float32))


if __name__ == "__main__":
    tf.test.main()
