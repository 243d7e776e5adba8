import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.layout import contents


class LiftingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        (
            dict(
                lift=contents.one_unit,
                content=[[7, 8], [], [9]],
                expected=[[[[7, 8]]], [[[]]], [[[9]]]],
            ),
            # A record without units still has one group.
            dict(
                lift=contents.one_group,
                content=[[[7, 8], [9]], [], [[]]],
                expected=[[[[7, 8], [9]]], [[]], [[[]]]],
            ),
            dict(
                lift=contents.groups_of_one,
                content=[[[7, 8], [9]], [], [[]]],
                expected=[[[[7, 8]], [[9]]], [], [[[]]]],
            ),
        ),
        splits=[tf.int32, tf.int64],
    )
    def test_lifting(self, lift, content, expected, splits):
        lifted = lift(tf.ragged.constant(content, row_splits_dtype=splits))
        self.assertEqual(expected, lifted.to_list())
        self.assertEqual(3, lifted.ragged_rank)
        # Always these dtypes, so that sections can be concatenated.
        self.assertEqual(tf.int64, lifted.row_splits.dtype)
        self.assertEqual(tf.int32, lifted.dtype)

    def test_constant_tokens(self):
        for batch in (0, 3):
            tokens = contents.constant_tokens([101, 5], tf.constant(batch))
            self.assertEqual([[101, 5]] * batch, tokens.to_list())
            self.assertEqual(tf.int32, tokens.dtype)

    @parameterized.parameters(
        ([[[[7], [8]], [[9]]]], [[[0, 1], [2]]], [[0, 1]]),
        ([], [], []),
        ([[[], [[]]], [], [[[1, 2]], []]], [[[], [0]], [], [[0], []]], 0),
    )
    def test_unit_indices(self, content, units, groups):
        content = tf.ragged.constant(content, ragged_rank=3, dtype=tf.int32)
        for made in (content, content.with_row_splits_dtype(tf.int64)):
            got = contents.unit_indices(made, "unit")
            self.assertEqual(units, got.to_list())
            self.assertEqual(tf.int32, got.dtype)
            got = contents.unit_indices(made, "group").to_list()
            self.assertEqual(groups or [[*range(len(x))] for x in units], got)


if __name__ == "__main__":
    tf.test.main()
