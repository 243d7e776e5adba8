import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.serving import small_weights

# bfloat16 keeps 8 significant bits: pi is 201 / 64, and 1 + 1/256 is between
# 1 and 1 + 1/128.
_PI = 201 / 64


def _variables(scale=1.0):
    """Returns a kernel, a table, a bias and a small kernel."""
    rng = np.random.default_rng(1)
    return [
        tf.Variable(scale * rng.normal(size=shape), name=name, dtype=tf.float32)
        for name, shape in (
            ("kernel", [64, 80]),
            ("embedding_table", [80, 64]),
            ("bias", [5000]),
            ("kernel", [8, 8]),
        )
    ]


class RoundMatrixTest(tf.test.TestCase):
    def test_int8_has_a_scale_per_output(self):
        matrix = np.array([[1, -2, 0], [0.25, 4, 0]], np.float32)
        # The largest absolute values of the columns are 1, 4 and 0.
        stored = small_weights.round_matrix("a/kernel:0", matrix, "int8")
        self.assertAllEqual([[127, -64, 0], [32, 127, 0]], stored.value)
        self.assertAllClose([[1 / 127, 4 / 127, 1 / 127]], stored.scale)
        self.assertAllClose(
            [[1, -256 / 127, 0], [32 / 127, 4, 0]],
            small_weights.restore(stored),
        )
        # Tables have a scale per row.
        for name in ("a/embedding_table:0", "embeddings"):
            stored = small_weights.round_matrix(name, matrix, "int8")
            self.assertAllEqual([[64, -127, 0], [8, 127, 0]], stored.value)
            self.assertAllClose([[2 / 127], [4 / 127]], stored.scale)
        heads = np.ones([3, 2, 4], np.float32)
        stored = small_weights.round_matrix("relative_emb_table", heads, "int8")
        self.assertAllEqual([3, 2, 1], stored.scale.shape)

    def test_bfloat16_rounds_to_even(self):
        matrix = np.array([[np.pi, 1 + 1 / 256]], np.float32)
        stored = small_weights.round_matrix("kernel", matrix, "bfloat16")
        self.assertEqual(tf.bfloat16, tf.as_dtype(stored.value.dtype))
        self.assertAllEqual([[_PI, 1]], small_weights.restore(stored))

    def test_values_that_are_not_finite(self):
        for kind in ("bfloat16", "int8"):
            with self.assertRaisesRegex(UserError, "weight a/kernel has"):
                small_weights.round_matrix(
                    "a/kernel", np.full([2, 2], np.nan), kind
                )


class SmallWeightsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(("bfloat16", 2, 2**-8), ("int8", 1, 0.5 / 127))
    def test_graphs_read_rounded_weights(self, kind, size, error):
        variables = kernel, table, bias, _ = _variables()
        small = small_weights.SmallWeights(variables, kind)
        scales = 4 * (80 + 80) if kind == "int8" else 0
        self.assertEqual(
            size * 2 * 64 * 80 + scales + 4 * (5000 + 64),
            small_weights.num_bytes(small.variables),
        )

        @tf.function(autograph=False)
        def read(ids):
            with small.in_use():
                return (
                    tf.convert_to_tensor(kernel),
                    tf.linalg.matmul(tf.eye(64), kernel),
                    kernel + 0.0,
                    tf.convert_to_tensor(table),
                    tf.gather(table, ids),
                    tf.nn.embedding_lookup(kernel, ids),
                    bias.value(),
                )

        graph = read.get_concrete_function(tf.TensorSpec([2], tf.int32)).graph
        captured = {id(x) for x in graph.variables}
        self.assertNoCommonElements(captured, {id(kernel), id(table)})
        ids = [7, 0]
        first, product, total, rows, found, part, other = read(tf.constant(ids))
        self.assertAllEqual(first, total)
        self.assertAllClose(first, product, 1e-6)
        self.assertAllEqual(tf.gather(rows, ids), found)
        self.assertAllEqual(tf.gather(first, ids), part)
        self.assertAllEqual(bias, other)
        # Errors are at most half a rounding step of an output's largest value.
        for exact, rounded, axis in ((kernel, first, 0), (table, rows, 1)):
            largest = np.abs(exact.numpy()).max(axis, keepdims=True)
            difference = np.abs(exact - rounded)
            self.assertAllLessEqual(difference / largest, error * 1.001)
            self.assertGreater(difference.max(), error * 0.5)
        # Outside of the graph, variables still have their exact values.
        self.assertAllEqual(kernel.value(), kernel.numpy())
        small_weights.round_weights(variables, kind)
        for rounded, variable in ((first, kernel), (rows, table)):
            self.assertAllEqual(rounded, variable)

    def test_float32_changes_nothing(self):
        variables = _variables()
        before = [x.numpy() for x in variables]
        small = small_weights.SmallWeights(variables, "float32")
        for x, y in zip(variables, small.variables, strict=True):
            self.assertIs(x, y)
        small_weights.round_weights(variables, "float32")
        self.assertAllEqual(before[0], variables[0])


if __name__ == "__main__":
    tf.test.main()
