import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.relative_positions import RelativePositionGenerator


def _reference_label(query, key, max_distance, ignore_direction):
    distance = min(abs(key - query), max_distance)
    if key < query and not ignore_direction:
        return max_distance + distance
    return distance


class RelativePositionGeneratorTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (3, False, 7, 6, 3),
        (3, True, 4, 3, 3),
        (0, False, 1, 0, 0),
    )
    def test_attributes(self, max_distance, ignore, vocab, left, right):
        generator = RelativePositionGenerator(max_distance, ignore)
        self.assertEqual(generator.max_distance, max_distance)
        self.assertEqual(generator.ignore_direction, ignore)
        self.assertEqual(generator.relative_vocab_size, vocab)
        self.assertEqual(generator.left_pad_value, left)
        self.assertEqual(generator.right_pad_value, right)

    def test_examples(self):
        """Uses the examples of the docstrings."""
        for ignore, rows in (
            (False, [[0, 1, 2, 2], [3, 0, 1, 2], [4, 3, 0, 1], [4, 4, 3, 0]]),
            (True, [[0, 1, 2, 2], [1, 0, 1, 2], [2, 1, 0, 1], [2, 2, 1, 0]]),
        ):
            generator = RelativePositionGenerator(2, ignore)
            # The default batch size is 1.
            self.assertAllEqual(generator.make_relative_att_ids(4), [rows])
        spec = RelativePositionGenerator(3).make_local_relative_att_spec(5)
        self.assertEqual(spec.pattern, (6, 6, 6, 5, 4, 0, 1, 2, 3, 3, 3))

    @parameterized.parameters((1, 1), (7, 3), (3, 7), (11, 4), (5, 0))
    def test_matches_definition(self, seq_len, max_distance):
        for ignore in (False, True):
            generator = RelativePositionGenerator(max_distance, ignore)
            expected = [
                [
                    _reference_label(i, j, max_distance, ignore)
                    for j in range(seq_len)
                ]
                for i in range(seq_len)
            ]
            full = generator.make_relative_att_ids(
                tf.constant(seq_len, tf.int64), batch_size=3
            )
            self.assertAllEqual(full, [expected] * 3)
            radius = 5
            row = [
                _reference_label(0, k - radius, max_distance, ignore)
                for k in range(2 * radius + 1)
            ]
            local = generator.make_local_relative_att_ids(seq_len, radius)
            self.assertAllEqual(local, [[row] * seq_len])
            self.assertEqual((full.dtype, local.dtype), (tf.int32, tf.int32))

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "max_distance.*-1"):
            RelativePositionGenerator(-1)
        generator = RelativePositionGenerator(2)
        for seq_len, batch_size in ((-1, 1), (np.int64(-2), 1), (4, -1)):
            with self.assertRaisesRegex(ValueError, "must be 0 or more"):
                generator.make_relative_att_ids(seq_len, batch_size)
            with self.assertRaisesRegex(ValueError, "must be 0 or more"):
                generator.make_local_relative_att_ids(seq_len, 2, batch_size)
        with self.assertRaisesRegex(ValueError, "local_radius.* 1 or more"):
            generator.make_local_relative_att_ids(4, 0)

    def test_empty_sizes(self):
        generator = RelativePositionGenerator(2)
        for seq_len, batch_size in ((0, 2), (4, 0), (0, 0)):
            self.assertEqual(
                (batch_size, seq_len, seq_len),
                generator.make_relative_att_ids(seq_len, batch_size).shape,
            )
            self.assertEqual(
                (batch_size, seq_len, 5),
                generator.make_local_relative_att_ids(
                    seq_len, 2, batch_size
                ).shape,
            )

    def test_sizes_known_in_the_graph_only(self):
        generator = RelativePositionGenerator(2)

        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
        )
        def make(tokens):
            batch_size, seq_len = tf.unstack(tf.shape(tokens))
            full = generator.make_relative_att_ids(seq_len, batch_size)
            local = generator.make_local_relative_att_ids(
                seq_len, 3, batch_size
            )
            self.assertEqual(local.shape.as_list(), [None, None, 7])
            # Known sizes stay static.
            full_of_four = generator.make_relative_att_ids(
                np.int64(4), batch_size
            )
            local_of_four = generator.make_local_relative_att_ids(
                4, 1, batch_size
            )
            self.assertEqual(full_of_four.shape.as_list(), [None, 4, 4])
            self.assertEqual(local_of_four.shape.as_list(), [None, 4, 3])
            return full, local

        for batch_size, seq_len in [(1, 4), (3, 2)]:
            full, local = make(tf.zeros([batch_size, seq_len], tf.int32))
            self.assertAllEqual(
                full, generator.make_relative_att_ids(seq_len, batch_size)
            )
            self.assertAllEqual(
                local,
                generator.make_local_relative_att_ids(seq_len, 3, batch_size),
            )


if __name__ == "__main__":
    tf.test.main()
