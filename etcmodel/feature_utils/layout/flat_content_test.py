import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.layout import flat_content


def ragged(rows):
    return tf.ragged.constant(rows, ragged_rank=3, dtype=tf.int32)


def to_lists(flat):
    """Converts content to nested lists of its tokens' origins."""
    return tf.RaggedTensor.from_nested_row_splits(
        flat.token_origin,
        [flat.group_splits, flat.unit_splits, flat.token_splits],
    ).to_list()


class FlatContentTest(tf.test.TestCase, parameterized.TestCase):
    def test_examples(self):
        """Uses the examples of the docstrings."""
        windows = flat_content.make_windows(
            tf.constant([9, 3], tf.int64), tf.constant([4, 4], tf.int64), 3
        )
        self.assertAllEqual(windows.owner, [0, 0, 0, 1])
        self.assertAllEqual(windows.starts, [0, 3, 6, 0])
        self.assertAllEqual(windows.sizes, [4, 4, 3, 3])
        content = flat_content.flatten(ragged([[[[7, 8, 9], [5]]]]))
        shown = flat_content.cut_windows(
            content,
            flat_content.Windows(
                *tf.constant([[0, 0], [0, 1], [2, 3]], tf.int64)
            ),
        )
        self.assertEqual(to_lists(shown), [[[[0, 1]]], [[[1, 2], [3]]]])

    @parameterized.parameters(
        # Text without tokens; no room; exactly enough room.
        (0, 4, 3, [(0, 0)]),
        (9, 0, 3, [(0, 0)]),
        (9, -2, 3, [(0, 0)]),
        (4, 4, 3, [(0, 4)]),
        (5, 4, 3, [(0, 4), (3, 2)]),
        # No overlap by default, and with a stride larger than the room.
        (9, 4, None, [(0, 4), (4, 4), (8, 1)]),
        (9, 4, 7, [(0, 4), (4, 4), (8, 1)]),
    )
    def test_windows(self, length, room, stride, expected):
        made = flat_content.make_windows(
            tf.constant([length], tf.int64),
            tf.constant([room], tf.int64),
            stride,
        )
        self.assertEqual(
            [*zip(made.starts.numpy(), made.sizes.numpy(), strict=True)],
            expected,
        )


if __name__ == "__main__":
    tf.test.main()
