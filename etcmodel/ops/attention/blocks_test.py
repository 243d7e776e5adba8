import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops.attention import blocks
from testing import attention_cases as testing


class WindowsTest(tf.test.TestCase):
    def test_of_rows(self):
        with testing.chunks_of(1, 2):
            windows = blocks.Windows(1)
        self.assertEqual((windows.block_len, windows.window), (2, 4))
        # [batch, heads, queries + 2 * radius, x]
        rows = tf.reshape(tf.range(6), [1, 1, 6, 1])
        self.assertAllEqual(
            windows.of_rows(rows)[0, 0, :, :, 0], [[0, 1, 2, 3], [2, 3, 4, 5]]
        )

    def test_of_band(self):
        with testing.chunks_of(1, 2):
            windows = blocks.Windows(1)
        band = tf.reshape(tf.range(1, 10), [1, 3, 3])
        self.assertAllEqual(
            windows.of_band(band)[0],
            [[1, 2, 3, 0], [0, 4, 5, 6], [7, 8, 9, 0]],
        )
        self.assertAllEqual(
            tf.cast(windows.in_band(), tf.int32), [[1, 1, 1, 0], [0, 1, 1, 1]]
        )


class SparseTests(metaclass=parameterized.TestGeneratorMetaclass):
    """Tests the attention that a subclass of `testing.Cases` describes."""

    @parameterized.product(
        with_specs=[False, True, (4, 2)], use_one_hot=[False, True]
    )
    def test_equals_the_reference_at_random_sizes(
        self, with_specs, use_one_hot
    ):
        rng = np.random.default_rng(1)
        for block_len in (1, 5, 64):
            sizes = self.random_sizes(rng)
            case = self.make_case(rng, *sizes, with_specs=with_specs)
            with testing.chunks_of(1, block_len):
                results = testing.run(
                    self.attention(case.given, "sparse", use_one_hot),
                    case.floats,
                    case.upstream,
                )
            self.assertAllClose(
                results["output"], self.oracle(case), 1e-9, 1e-9, sizes
            )
            expected = testing.run(
                self.dense(case.arrays), case.floats, case.upstream
            )
            testing.assert_all_close(self, expected, results, 1e-9, sizes)

    def test_missing_arguments(self):
        for names in self.LEFT_OUT:
            case = self.make_case(np.random.default_rng(2), *self.SMALL)
            missing = [x for name in names for x in self.leave_out(case, name)]
            expected = self.oracle(case)
            for name in missing:
                del case.floats[name]
            attend = self.attention(case.given, "sparse")
            self.assertAllClose(
                attend(**case.floats), expected, 1e-9, 1e-9, names
            )

    def test_unknown_lengths_when_compiled(self):
        rng = np.random.default_rng(3)
        case = self.make_case(rng, *self.SMALL)

        def unknown(name, x):
            if name.endswith("table"):
                return tf.TensorSpec(x.shape, x.dtype)
            is_fixed = x.ndim == 4 or name in self.BANDS
            return tf.TensorSpec(
                [None, None, *(x.shape[2:] if is_fixed else [None])], x.dtype
            )

        signature = [
            {name: unknown(name, x) for name, x in arrays.items()}
            for arrays in (case.floats, case.given)
        ]

        @tf.function(input_signature=signature, jit_compile=True)
        def attend(floats, given):
            return self.attention(given, "sparse")(**floats)

        for sizes in (self.SMALL, self.EMPTY[2]):
            case = self.make_case(rng, *sizes)
            self.assertAllClose(
                attend(
                    *tf.nest.map_structure(
                        tf.constant, (case.floats, case.given)
                    )
                ),
                self.oracle(case),
                1e-9,
                1e-9,
                sizes,
            )

    def test_half_precision_is_close_to_float64(self):
        case = self.make_case(np.random.default_rng(5), *self.LARGE)
        for dtype, tolerance in (
            (tf.float32, 1e-5),
            (tf.float16, 1e-2),
            (tf.bfloat16, 8e-2),
        ):
            attend = self.attention(case.given, "sparse")
            output = attend(**testing.cast(case.floats, dtype))
            self.assertEqual(output.dtype, dtype)
            self.assertAllClose(
                tf.cast(output, tf.float64),
                self.oracle(case),
                tolerance,
                tolerance,
            )

    def test_both_passes_drop_the_same_pairs(self):
        case = self.make_case(np.random.default_rng(6), *self.DROPPED)
        dropout = attention.Dropout(0.4, tf.constant([1, 2]))
        attend = self.attention(case.given, "sparse", dropout=dropout)
        results = testing.run(attend, case.floats, case.upstream)
        # The output is linear in the values, so the dot product of the values
        # and their gradients equals that of the output and its gradient.
        output = sum(
            np.vdot(case.floats[f"{piece}values"], results[f"{piece}values"])
            for piece in self.PIECES
        )
        self.assertNear(np.vdot(results["output"], case.upstream), output, 1e-9)
        for piece in self.PIECES:
            values = dict.fromkeys([f"{x}values" for x in self.PIECES])
            for name in values:
                values[name] = np.ones_like(case.floats[name]) * (
                    name == f"{piece}values"
                )
            with_drops = attend(**case.floats | values)
            without = self.attention(case.given, "sparse")(
                **case.floats | values
            )
            # On average, dropout keeps the sum; 15 % are six standard
            # deviations.
            self.assertNotAllClose(with_drops, without)
            self.assertNear(np.sum(with_drops) / np.sum(without), 1, 0.15)

    def test_key_blocks_have_independent_dropout(self):
        draws = []

        class Recorded(attention.Dropout):
            def factors(self, shape, index, dtype):
                draws.append(int(index))
                return super().factors(shape, index, dtype)

        case = self.make_case(np.random.default_rng(6), *self.SMALL)
        dropout = Recorded(0.4, tf.constant([1, 2]))
        self.attention(case.given, "sparse", dropout=dropout)(**case.floats)
        self.assertLen(draws, len(self.PIECES))
        self.assertLen(set(draws), len(self.PIECES))


class LongQueriesTest(
    SparseTests, testing.LongCases, parameterized.TestCase, tf.test.TestCase
):
    def test_global_keys_are_not_copied_into_the_blocks(self):
        # There are more global keys than keys in a window.
        long_len, global_len = 16, 20
        case = self.make_case(np.random.default_rng(7), 1, long_len, 20, 1)
        self.leave_out(case, "labels")
        with testing.chunks_of(1, 2):
            graph = (
                tf.function(
                    lambda: self.attention(case.given, "sparse")(**case.floats)
                )
                .get_concrete_function()
                .graph
            )
        # The largest tensor holds the scores of the global keys. Copies of
        # these keys in each of the 8 blocks of 2 queries would be larger.
        self.assertEqual(
            testing.largest_size(testing.all_operations(graph), tf.float64),
            long_len * global_len * testing.HEADS,
        )


class GlobalQueriesTest(
    SparseTests, testing.GlobalCases, parameterized.TestCase, tf.test.TestCase
):
    pass


if __name__ == "__main__":
    tf.test.main()
