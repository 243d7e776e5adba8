import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import shapes


def _dynamic(fn, *arrays):
    """Runs `fn` in a graph that knows only the ranks of its inputs."""
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
            shape = shapes.get_shape_list(x, [2, 3])
            seen.extend(shape)
            return shape[0]

        self.assertEqual(7, fn(tf.zeros([7, 3])))
        self.assertIsInstance(seen[0], tf.Tensor)
        self.assertEqual(3, seen[1])
        shape = shapes.get_shape_list(tf.zeros([2, 3]), 2)
        self.assertEqual([2, 3], shape)

    def test_assert_rank(self):
        x = tf.zeros([2, 3])
        for rank in (2, [1, 2], np.int64(2)):
            shapes.assert_rank(x, rank)
        for rank, name, message in (
            (3, None, "rank 2 .* Expected rank 3"),
            ([1, 3], "ids", "'ids' .*rank 1 or 3"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                shapes.assert_rank(x, rank, name)
            with self.assertRaisesRegex(ValueError, message):
                shapes.get_shape_list(x, rank, name)

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
                x.reshape(shape), shapes.flatten_dims(x, first, last)
            )

        @tf.function(input_signature=[tf.TensorSpec([None, 2, 3])])
        def fn(x):
            result = shapes.flatten_dims(x, 1, 2)
            self.assertEqual([None, 6], result.shape.as_list())
            return result

        self.assertAllEqual(np.ones([4, 6]), fn(tf.ones([4, 2, 3])))

    def test_apply_to_rows(self):
        x = np.arange(24.0).reshape(2, 3, 4)
        matrix = np.arange(20.0).reshape(4, 5)
        for tensor in (x, x[0], x[:0]):
            self.assertAllEqual(
                tensor @ matrix,
                shapes.apply_to_rows(
                    lambda rows: tf.linalg.matmul(rows, matrix), tensor
                ),
            )


class ErrorsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (shapes.get_shape_list, "unknown rank"),
        (shapes.flatten_dims, "rank is unknown"),
    )
    def test_unknown_rank(self, fn, message):
        fn = tf.function(fn, input_signature=[tf.TensorSpec(None)])
        with self.assertRaisesRegex(ValueError, message):
            fn.get_concrete_function()

    @parameterized.parameters(
        ("flatten_dims", ([2, 3], -3, 1), "first_dim is -3"),
        ("flatten_dims", ([2, 3], 0, 2), "last_dim is 2"),
        ("flatten_dims", ([2, 3], 1, 0), "comes after"),
    )
    def test_arguments(self, name, arguments, message):
        tensors = [
            tf.zeros(x, tf.float32 if i == 0 else tf.int32)
            for i, x in enumerate(arguments)
            if isinstance(x, list)
        ]
        arguments = [*tensors, *arguments[len(tensors) :]]
        with self.assertRaisesRegex(ValueError, message):
            getattr(shapes, name)(*arguments)


if __name__ == "__main__":
    tf.test.main()
