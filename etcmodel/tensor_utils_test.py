import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import tensor_utils


def _dynamic(fn, *arrays):
    """Runs `fn` in a graph that knows the ranks of its inputs, no sizes."""
    specs = [
        tf.TensorSpec([None] * np.ndim(a), tf.convert_to_tensor(a).dtype)
        for a in arrays
    ]
    return tf.function(fn, input_signature=specs)(*arrays)


def _unknown_rank(fn):
    """Traces `fn` with a tensor of unknown rank."""
    spec = tf.TensorSpec(None, tf.float32)
    tf.function(fn, input_signature=[spec]).get_concrete_function()


class ShapeTest(tf.test.TestCase):
    def test_get_shape_list_static(self):
        self.assertEqual(
            [2, 3], tensor_utils.get_shape_list(tf.zeros([2, 3]), 2)
        )

    def test_get_shape_list_mixes_static_and_dynamic(self):
        seen = []

        @tf.function(input_signature=[tf.TensorSpec([None, 3])])
        def fn(x):
            shape = tensor_utils.get_shape_list(x, [2, 3])
            seen.extend(shape)
            return shape[0]

        self.assertEqual(7, fn(tf.zeros([7, 3])))
        self.assertIsInstance(seen[0], tf.Tensor)
        self.assertEqual(3, seen[1])

    def test_get_shape_list_unknown_rank(self):
        with self.assertRaisesRegex(ValueError, "unknown rank"):
            _unknown_rank(tensor_utils.get_shape_list)

    def test_assert_rank(self):
        x = tf.zeros([2, 3])
        tensor_utils.assert_rank(x, 2)
        tensor_utils.assert_rank(x, [1, 2])
        tensor_utils.assert_rank(x, np.int64(2))
        with self.assertRaisesRegex(ValueError, "rank 2 .* expected rank 3"):
            tensor_utils.assert_rank(x, 3)
        with self.assertRaisesRegex(ValueError, "'ids' .*rank 1 or 3"):
            tensor_utils.assert_rank(x, [1, 3], name="ids")
        with self.assertRaises(ValueError):
            tensor_utils.get_shape_list(x, expected_rank=1)

    def test_flatten_dims(self):
        x = tf.zeros([2, 3, 4, 5])
        for kwargs, shape in [
            (dict(last_dim=1), [6, 4, 5]),
            (dict(first_dim=-2), [2, 3, 20]),
            (dict(first_dim=1, last_dim=-2), [2, 12, 5]),
            (dict(), [120]),
            (dict(first_dim=2, last_dim=2), [2, 3, 4, 5]),
        ]:
            self.assertEqual(
                shape, tensor_utils.flatten_dims(x, **kwargs).shape.as_list()
            )

    def test_flatten_dims_keeps_static_sizes_and_order(self):
        @tf.function(input_signature=[tf.TensorSpec([None, 2, 3], tf.int32)])
        def fn(x):
            result = tensor_utils.flatten_dims(x, 1, 2)
            self.assertEqual([None, 6], result.shape.as_list())
            return result

        self.assertAllEqual(
            np.arange(12).reshape(2, 6),
            fn(np.arange(12, dtype=np.int32).reshape(2, 2, 3)),
        )

    def test_flatten_dims_errors(self):
        x = tf.zeros([2, 3])
        for first, last in [(-3, 1), (0, 2), (1, 0)]:
            with self.assertRaises(ValueError):
                tensor_utils.flatten_dims(x, first, last)
        with self.assertRaisesRegex(ValueError, "rank is unknown"):
            _unknown_rank(tensor_utils.flatten_dims)


class GatherTest(tf.test.TestCase):
    def test_gather_by_one_hot(self):
        params = [[0.0, 0.0], [0.1, -0.1], [0.2, -0.2], [0.3, -0.3]]
        expected = [[0.2, -0.2], [0, 0], [0.1, -0.1], [0.3, -0.3], [0, 0]]
        result = tensor_utils.gather_by_one_hot(params, [2, -1, 1, 3, 4])
        self.assertAllClose(expected, result)
        self.assertAllClose(
            [0.3, -0.3], tensor_utils.gather_by_one_hot(params, 3)
        )
        self.assertAllClose(
            [expected[:2], expected[2:4]],
            _dynamic(
                tensor_utils.gather_by_one_hot,
                np.array(params, np.float32),
                np.array([[2, -1], [1, 3]]),
            ),
        )

    def test_batch_gather_by_one_hot(self):
        params = [[0, 0.1, 0.2, 0.3], [1, 1.1, 1.2, 1.3]]
        gather = tensor_utils.batch_gather_by_one_hot
        self.assertAllClose([0.2, 1.1], gather(params, [2, 1], batch_dims=1))
        self.assertAllClose(
            [[0.2, 0], [1.2, 1.3]], gather(params, [[2, 0], [2, 3]])
        )
        self.assertAllClose(
            [[0, 0], [1.3, 0]], gather(params, [[-1, 4], [3, 7]])
        )

    def test_batch_gather_by_one_hot_inner_and_two_batch_dims(self):
        rng = np.random.default_rng(0)
        params = rng.normal(size=[2, 3, 5, 2]).astype(np.float32)
        ids = rng.integers(0, 5, size=[2, 3, 4])
        expected = np.take_along_axis(params, ids[..., None], axis=2)
        self.assertAllClose(
            expected,
            _dynamic(tensor_utils.batch_gather_by_one_hot, params, ids),
        )

    def test_batch_gather_by_one_hot_errors(self):
        gather = tensor_utils.batch_gather_by_one_hot
        params = tf.zeros([2, 3])
        with self.assertRaisesRegex(ValueError, "must be positive"):
            gather(params, [0, 1])
        with self.assertRaisesRegex(ValueError, "params has rank 2"):
            gather(params, tf.zeros([2, 3], tf.int32), batch_dims=2)
        with self.assertRaisesRegex(ValueError, "indices has rank 1"):
            gather(tf.zeros([2, 3, 4]), [0, 1], batch_dims=2)
        with self.assertRaisesRegex(ValueError, "differ in their first 1"):
            gather(params, tf.zeros([3, 1], tf.int32))


class PadAndBlockTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (5, "CONSTANT", [1, 2, 3, 0, 0]),
        (5, "REFLECT", [1, 2, 3, 2, 1]),
        (5, "SYMMETRIC", [1, 2, 3, 3, 2]),
        (3, "CONSTANT", [1, 2, 3]),
        (1, "CONSTANT", [1, 2, 3]),
    )
    def test_pad_to_multiple(self, factor, mode, expected):
        x = np.array([1, 2, 3])
        self.assertAllEqual(
            expected, tensor_utils.pad_to_multiple(x, factor, 0, mode)
        )
        self.assertAllEqual(
            expected,
            _dynamic(
                lambda x, f: tensor_utils.pad_to_multiple(x, f, -1, mode),
                x,
                np.array(factor),
            ),
        )

    def test_pad_to_multiple_static_shape(self):
        @tf.function(input_signature=[tf.TensorSpec([None, 3, 4])])
        def fn(x):
            y = tensor_utils.pad_to_multiple(x, 5, axis=1, constant_values=7)
            self.assertEqual([None, 5, 4], y.shape.as_list())
            z = tensor_utils.pad_to_multiple(x, 2, axis=0)
            self.assertEqual([None, 3, 4], z.shape.as_list())
            return y

        self.assertAllEqual([0, 0, 0, 7, 7], fn(tf.zeros([1, 3, 4]))[0, :, 1])

    def test_pad_to_multiple_errors(self):
        for zero in (0, np.int64(0)):
            with self.assertRaisesRegex(ValueError, "factor is 0"):
                tensor_utils.pad_to_multiple([1, 2], zero, 0)
        with self.assertRaisesRegex(ValueError, "axis is 1"):
            tensor_utils.pad_to_multiple([1, 2], 2, 1)
        with self.assertRaisesRegex(ValueError, "rank is unknown"):
            _unknown_rank(lambda x: tensor_utils.pad_to_multiple(x, 2, 0))

    def test_split_into_blocks(self):
        x = np.arange(1, 7)
        split = tensor_utils.split_into_blocks
        self.assertAllEqual([[1, 2, 3, 4], [5, 6, 0, 0]], split(x, 4, 0))
        self.assertAllEqual(
            [[1, 2, 3, 4, 5, 6, -1, -1]], split(x, 8, 0, pad_value=-1)
        )
        self.assertAllEqual(
            [[[[1], [2]], [[3], [0]]]],
            _dynamic(lambda x: split(x, 2, 1), np.array([[[1], [2], [3]]])),
        )
        self.assertEqual([0, 4], split(np.zeros([0]), 4, 0).shape.as_list())
        with self.assertRaisesRegex(ValueError, "block_len is 0"):
            split(x, 0, 0)
        with self.assertRaisesRegex(ValueError, "axis is -2"):
            split(x, 2, -2)

    def test_concat_3_blocks(self):
        x = np.array([[[1, 2], [3, 4], [5, 6]]])
        expected = [
            [[0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 0, 0]]
        ]
        self.assertAllEqual(expected, tensor_utils.concat_3_blocks(x))
        self.assertAllEqual(expected, _dynamic(tensor_utils.concat_3_blocks, x))
        inner = np.stack([x, -x], axis=-1)
        self.assertAllEqual(
            np.stack([expected, np.negative(expected)], axis=-1),
            tensor_utils.concat_3_blocks(inner),
        )
        with self.assertRaisesRegex(ValueError, "block_len"):
            tensor_utils.concat_3_blocks(tf.zeros([2, 3]))


class ShiftAndSkewTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (3, 0, [0, 0, 0, 5, 4]),
        (-2, -1, [3, 2, 1, -1, -1]),
        (0, 9, [5, 4, 3, 2, 1]),
        (5, 9, [9, 9, 9, 9, 9]),
        (-7, 9, [9, 9, 9, 9, 9]),
    )
    def test_shift_elements_right(self, amount, pad_value, expected):
        x = np.array([5, 4, 3, 2, 1])

        def shift(x):
            return tensor_utils.shift_elements_right(
                x, amount=amount, pad_value=pad_value
            )

        self.assertAllEqual(expected, shift(x))
        self.assertAllEqual(expected, _dynamic(shift, x))

    def test_shift_elements_right_axis(self):
        x = np.array([[1, 2], [3, 4]])
        self.assertAllEqual(
            [[0, 0], [1, 2]], tensor_utils.shift_elements_right(x, axis=0)
        )
        with self.assertRaisesRegex(ValueError, "axis is 2"):
            tensor_utils.shift_elements_right(x, axis=2)

    def test_skew_elements_right(self):
        x = np.arange(1, 10).reshape(3, 3)
        expected = [[1, 2, 3, 0, 0], [0, 4, 5, 6, 0], [0, 0, 7, 8, 9]]
        self.assertAllEqual(expected, tensor_utils.skew_elements_right(x, 1))
        self.assertAllEqual(
            expected,
            _dynamic(lambda x: tensor_utils.skew_elements_right(x, -1), x),
        )
        self.assertAllEqual(
            [[1, -1], [-1, 2]],
            tensor_utils.skew_elements_right([[1], [2]], 1, pad_value=-1),
        )

    def test_unskew_elements_right(self):
        self.assertAllEqual(
            [[1], [2], [3]],
            tensor_utils.unskew_elements_right(np.diag([1, 2, 3]), 1),
        )
        # What lies outside the band does not matter.
        self.assertAllEqual(
            [[1, 2], [5, 6]],
            tensor_utils.unskew_elements_right([[1, 2, 9], [9, 5, 6]], 1),
        )

    @parameterized.parameters(1, 2, 3, -1)
    def test_skew_round_trip(self, axis):
        x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
        skewed = tensor_utils.skew_elements_right(x, axis)
        shape = list(x.shape)
        shape[axis] += shape[axis % 4 - 1] - 1
        self.assertEqual(shape, skewed.shape.as_list())
        self.assertAllEqual(x, tensor_utils.unskew_elements_right(skewed, axis))

    def test_skew_errors(self):
        x = tf.zeros([2, 3])
        for fn in (
            tensor_utils.skew_elements_right,
            tensor_utils.unskew_elements_right,
        ):
            for axis in (0, -2, 2, -3):
                with self.assertRaises(ValueError):
                    fn(x, axis)
        with self.assertRaisesRegex(ValueError, "3 rows but only 2 columns"):
            tensor_utils.unskew_elements_right(tf.zeros([3, 2]), 1)
        with self.assertRaisesRegex(ValueError, "static sizes"):
            _dynamic(
                lambda x: tensor_utils.unskew_elements_right(x, 1),
                np.zeros([2, 3]),
            )


class EinsumTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("...ij,jk->...ik", [2, 5, 3, 4], [4, 6]),
        ("... i j , ... j k -> ... i k", [2, 3, 4], [2, 4, 6]),
        ("...ab,...b", [2, 3, 4], [2, 4]),
        ("ij,jk->ik", [2, 3], [3, 4]),
        ("ij,jk", [2, 3], [3, 4]),
        ("...d,...d->...", [2, 3, 4], [2, 3, 4]),
        ("...i,ij->...j", [3], [3, 2]),
    )
    def test_equals_numpy(self, equation, *shapes):
        rng = np.random.default_rng(1)
        arrays = [rng.normal(size=shape) for shape in shapes]
        self.assertAllClose(
            np.einsum(equation, *arrays),
            tensor_utils.einsum_wrap_ellipses(equation, *arrays),
        )

    def test_errors(self):
        einsum = tensor_utils.einsum_wrap_ellipses
        with self.assertRaisesRegex(ValueError, "not enough dims"):
            einsum("...ij,jk->...ik", tf.zeros([3]), tf.zeros([3, 2]))
        with self.assertRaisesRegex(ValueError, "2 axes, .* input for 1"):
            einsum("...i,...i->...", tf.zeros([2, 3]), tf.zeros([2, 2, 3]))
        with self.assertRaisesRegex(ValueError, "no input has one"):
            einsum("ij->...i", tf.zeros([2, 3]))
        with self.assertRaisesRegex(ValueError, "2 input terms, but 1"):
            einsum("...i,...i->...", tf.zeros([2, 3]))
        with self.assertRaisesRegex(ValueError, "unknown rank"):
            _unknown_rank(lambda x: einsum("...i->...", x))


if __name__ == "__main__":
    tf.test.main()
