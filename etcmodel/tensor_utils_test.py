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


class ShapeTest(tf.test.TestCase):
    def test_get_shape_list(self):
        seen = []

        @tf.function(input_signature=[tf.TensorSpec([None, 3])])
        def fn(x):
            shape = tensor_utils.get_shape_list(x, [2, 3])
            seen.extend(shape)
            return shape[0]

        self.assertEqual(7, fn(tf.zeros([7, 3])))
        self.assertIsInstance(seen[0], tf.Tensor)
        self.assertEqual(3, seen[1])
        shape = tensor_utils.get_shape_list(tf.zeros([2, 3]), 2)
        self.assertEqual([2, 3], shape)

    def test_assert_rank(self):
        x = tf.zeros([2, 3])
        for rank in (2, [1, 2], np.int64(2)):
            tensor_utils.assert_rank(x, rank)
        for rank, name, message in (
            (3, None, "rank 2 .* expected rank 3"),
            ([1, 3], "ids", "'ids' .*rank 1 or 3"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                tensor_utils.assert_rank(x, rank, name)
            with self.assertRaisesRegex(ValueError, message):
                tensor_utils.get_shape_list(x, rank, name)

    def test_flatten_dims(self):
        x = np.arange(120).reshape(2, 3, 4, 5)
        for first, last, shape in (
            (0, 1, [6, 4, 5]),
            (-2, -1, [2, 3, 20]),
            (1, -2, [2, 12, 5]),
            (0, -1, [120]),
            (2, 2, [2, 3, 4, 5]),
        ):
            self.assertAllEqual(
                x.reshape(shape), tensor_utils.flatten_dims(x, first, last)
            )

        @tf.function(input_signature=[tf.TensorSpec([None, 2, 3])])
        def fn(x):
            result = tensor_utils.flatten_dims(x, 1, 2)
            self.assertEqual([None, 6], result.shape.as_list())
            return result

        self.assertAllEqual(np.ones([4, 6]), fn(tf.ones([4, 2, 3])))


class ErrorsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (tensor_utils.get_shape_list, "unknown rank"),
        (tensor_utils.flatten_dims, "rank is unknown"),
        (
            lambda x: tensor_utils.einsum_wrap_ellipses("...i->...", x),
            "unknown",
        ),
    )
    def test_unknown_rank(self, fn, message):
        fn = tf.function(fn, input_signature=[tf.TensorSpec(None)])
        with self.assertRaisesRegex(ValueError, message):
            fn.get_concrete_function()

    @parameterized.parameters(
        ("flatten_dims", ([2, 3], -3, 1), "first_dim is -3"),
        ("flatten_dims", ([2, 3], 0, 2), "last_dim is 2"),
        ("flatten_dims", ([2, 3], 1, 0), "comes after"),
        ("batch_gather_by_one_hot", ([2, 3], [2]), "must be positive"),
        ("batch_gather_by_one_hot", ([2, 3], [2, 3], 2), "params has rank 2"),
        ("batch_gather_by_one_hot", ([2, 3, 4], [2], 2), "indices has rank 1"),
        ("batch_gather_by_one_hot", ([2, 3], [3, 1]), "differ in their first"),
        ("pad_to_multiple", ([2], 0, 0), "factor is 0"),
        ("pad_to_multiple", ([2], np.int64(0), 0), "factor is 0"),
        ("pad_to_multiple", ([2], 2, 1), "axis is 1"),
        ("split_into_blocks", ([6], 0, 0), "block_len is 0"),
        ("split_into_blocks", ([6], 2, -2), "axis is -2"),
        ("concat_3_blocks", ([2, 3],), "block_len"),
        ("shift_elements_right", ([2, 2], 2), "axis is 2"),
        ("skew_elements_right", ([2, 3], 0), "axis is 0"),
        ("skew_elements_right", ([2, 3], -2), "axis is 0"),
        ("skew_elements_right", ([2, 3], 2), "axis is 2"),
        ("unskew_elements_right", ([2, 3], -2), "axis is 0"),
        ("unskew_elements_right", ([2, 3], -3), "axis is -3"),
        ("unskew_elements_right", ([3, 2], 1), "3 rows but only 2 columns"),
    )
    def test_arguments(self, name, arguments, message):
        tensors = [
            tf.zeros(x, tf.float32 if i == 0 else tf.int32)
            for i, x in enumerate(arguments)
            if isinstance(x, list)
        ]
        arguments = [*tensors, *arguments[len(tensors) :]]
        with self.assertRaisesRegex(ValueError, message):
            getattr(tensor_utils, name)(*arguments)

    @parameterized.parameters(
        ("...ij,jk->...ik", ([3], [3, 2]), "not enough dims"),
        ("...i,...i->...", ([2, 3], [2, 2, 3]), "2 axes, .* input for 1"),
        ("ij->...i", ([2, 3],), "no input has one"),
        ("...i,...i->...", ([2, 3],), "2 input terms, but 1"),
    )
    def test_einsum(self, equation, shapes, message):
        with self.assertRaisesRegex(ValueError, message):
            tensor_utils.einsum_wrap_ellipses(equation, *map(tf.zeros, shapes))


class TensorsTest(tf.test.TestCase, parameterized.TestCase):
    def assert_result(self, expected, fn, *arrays):
        """Compares the result with and without known sizes."""
        self.assertAllClose(expected, fn(*arrays))
        self.assertAllClose(expected, _dynamic(fn, *arrays))

    def test_gather_by_one_hot(self):
        params = np.array([[0.0, 0.0], [0.1, -0.1], [0.2, -0.2], [0.3, -0.3]])
        gather = tensor_utils.gather_by_one_hot
        self.assert_result([0.3, -0.3], gather, params, 3)
        self.assert_result(
            [[[0.2, -0.2], [0, 0]], [[0.1, -0.1], [0, 0]]],
            *(gather, params, np.array([[2, -1], [1, 4]])),
        )

    def test_batch_gather_by_one_hot(self):
        params = np.array([[0, 0.1, 0.2, 0.3], [1, 1.1, 1.2, 1.3]])
        gather = tensor_utils.batch_gather_by_one_hot
        self.assertAllClose([0.2, 1.1], gather(params, [2, 1], batch_dims=1))
        for indices, expected in (
            ([[2, 0], [2, 3]], [[0.2, 0], [1.2, 1.3]]),
            ([[-1, 4], [3, 7]], [[0, 0], [1.3, 0]]),
        ):
            self.assert_result(expected, gather, params, indices)
        # Inner and two batch dimensions.
        rng = np.random.default_rng(0)
        params = rng.normal(size=[2, 3, 5, 2])
        ids = rng.integers(0, 5, size=[2, 3, 4])
        expected = np.take_along_axis(params, ids[..., None], axis=2)
        self.assert_result(expected, gather, params, ids)

    @parameterized.parameters(
        (5, "CONSTANT", [1, 2, 3, 0, 0]),
        (5, "REFLECT", [1, 2, 3, 2, 1]),
        (3, "CONSTANT", [1, 2, 3]),
        (1, "CONSTANT", [1, 2, 3]),
    )
    def test_pad_to_multiple(self, factor, mode, expected):
        self.assert_result(
            expected,
            lambda x, f: tensor_utils.pad_to_multiple(x, f, -1, mode),
            *([1, 2, 3], factor),
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

    @parameterized.parameters(
        ([1, 2, 3, 4, 5, 6], 4, 0, 0, [[1, 2, 3, 4], [5, 6, 0, 0]]),
        ([1, 2, 3, 4, 5, 6], 8, 0, -1, [[1, 2, 3, 4, 5, 6, -1, -1]]),
        ([[[1], [2], [3]]], 2, 1, 0, [[[[1], [2]], [[3], [0]]]]),
        (np.zeros([0]), 4, 0, 0, np.zeros([0, 4])),
    )
    def test_split_into_blocks(self, x, block_len, axis, pad_value, expected):
        self.assert_result(
            expected,
            lambda x: tensor_utils.split_into_blocks(
                x, block_len, axis, pad_value
            ),
            x,
        )

    def test_concat_3_blocks(self):
        x = np.array([[[1, 2], [3, 4], [5, 6]]])
        expected = [
            [[0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 0, 0]]
        ]
        concat = tensor_utils.concat_3_blocks
        self.assert_result(expected, concat, x)
        inner = np.stack([x, -x], axis=-1)
        expected = np.stack([expected, np.negative(expected)], axis=-1)
        self.assert_result(expected, concat, inner)

    @parameterized.parameters(
        (-1, 3, 0, [[0, 0, 0, 5, 4], [0, 0, 0, 9, 8]]),
        (1, -2, -1, [[3, 2, 1, -1, -1], [7, 6, 0, -1, -1]]),
        (0, 1, 0, [[0, 0, 0, 0, 0], [5, 4, 3, 2, 1]]),
        (1, 0, 9, [[5, 4, 3, 2, 1], [9, 8, 7, 6, 0]]),
        (1, 5, 9, [[9] * 5] * 2),
        (1, -7, 9, [[9] * 5] * 2),
    )
    def test_shift_elements_right(self, axis, amount, pad_value, expected):
        self.assert_result(
            expected,
            lambda x: tensor_utils.shift_elements_right(
                x, axis, amount, pad_value
            ),
            np.array([[5, 4, 3, 2, 1], [9, 8, 7, 6, 0]]),
        )

    def test_skew_elements_right(self):
        x = np.arange(1, 10).reshape(3, 3)
        self.assert_result(
            [[1, 2, 3, 0, 0], [0, 4, 5, 6, 0], [0, 0, 7, 8, 9]],
            *(lambda x: tensor_utils.skew_elements_right(x, -1), x),
        )
        skewed = tensor_utils.skew_elements_right([[1], [2]], 1, pad_value=-1)
        self.assertAllEqual([[1, -1], [-1, 2]], skewed)

    def test_unskew_elements_right(self):
        # What lies outside the band does not matter.
        unskew = tensor_utils.unskew_elements_right
        unskewed = unskew([[1, 2, 9], [9, 5, 6]], 1)
        self.assertAllEqual([[1, 2], [5, 6]], unskewed)
        with self.assertRaisesRegex(ValueError, "static sizes"):
            _dynamic(lambda x: unskew(x, 1), np.zeros([2, 3]))

    @parameterized.parameters(1, 2, 3, -1)
    def test_skew_round_trip(self, axis):
        x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
        skewed = tensor_utils.skew_elements_right(x, axis)
        shape = list(x.shape)
        shape[axis] += shape[axis % 4 - 1] - 1
        self.assertEqual(shape, skewed.shape.as_list())
        self.assertAllEqual(x, tensor_utils.unskew_elements_right(skewed, axis))

    @parameterized.parameters(
        ("...ij,jk->...ik", [2, 5, 3, 4], [4, 6]),
        ("... i j , ... j k -> ... i k", [2, 3, 4], [2, 4, 6]),
        ("...ab,...b", [2, 3, 4], [2, 4]),
        ("ij,jk->ik", [2, 3], [3, 4]),
        ("ij,jk", [2, 3], [3, 4]),
        ("...d,...d->...", [2, 3, 4], [2, 3, 4]),
        ("...i,ij->...j", [3], [3, 2]),
    )
    def test_einsum(self, equation, *shapes):
        rng = np.random.default_rng(1)
        arrays = [rng.normal(size=shape) for shape in shapes]
        self.assertAllClose(
            np.einsum(equation, *arrays),
            tensor_utils.einsum_wrap_ellipses(equation, *arrays),
        )


if __name__ == "__main__":
    tf.test.main()
