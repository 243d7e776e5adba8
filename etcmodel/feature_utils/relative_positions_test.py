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
        (12, False, 25, 24, 12),
    )
    def test_attributes(self, max_distance, ignore, vocab, left, right):
        generator = RelativePositionGenerator(max_distance, ignore)
        self.assertEqual(generator.max_distance, max_distance)
        self.assertEqual(generator.ignore_direction, ignore)
        self.assertEqual(generator.relative_vocab_size, vocab)
        self.assertEqual(generator.left_pad_value, left)
        self.assertEqual(generator.right_pad_value, right)

    def test_negative_distance_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "max_distance.*-1"):
            RelativePositionGenerator(-1)

    def test_full_labels(self):
        ids = RelativePositionGenerator(3).make_relative_att_ids(6)
        self.assertEqual(ids.dtype, tf.int32)
        self.assertAllEqual(
            ids,
            [
                [
                    [0, 1, 2, 3, 3, 3],
                    [4, 0, 1, 2, 3, 3],
                    [5, 4, 0, 1, 2, 3],
                    [6, 5, 4, 0, 1, 2],
                    [6, 6, 5, 4, 0, 1],
                    [6, 6, 6, 5, 4, 0],
                ]
            ],
        )

    @parameterized.parameters(
        (9, False, [[0, 1, 2, 3, 4], [13, 12, 11, 10, 0]]),
        (4, False, [[0, 1, 2, 3, 4], [8, 7, 6, 5, 0]]),
        (0, False, [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]),
        (2, True, [[0, 1, 2, 2, 2], [2, 2, 2, 1, 0]]),
    )
    def test_first_and_last_row(self, max_distance, ignore, rows):
        generator = RelativePositionGenerator(max_distance, ignore)
        ids = generator.make_relative_att_ids(5)
        self.assertAllEqual(tf.gather(ids[0], [0, 4]), rows)

    @parameterized.parameters(
        (False, [[0, 1, 2, 2], [3, 0, 1, 2], [4, 3, 0, 1], [4, 4, 3, 0]]),
        (True, [[0, 1, 2, 2], [1, 0, 1, 2], [2, 1, 0, 1], [2, 2, 1, 0]]),
    )
    def test_full_labels_for_each_example(self, ignore, rows):
        generator = RelativePositionGenerator(2, ignore)
        ids = generator.make_relative_att_ids(4, batch_size=3)
        self.assertAllEqual(ids, [rows] * 3)

    @parameterized.parameters(
        (3, False, 5, [6, 6, 6, 5, 4, 0, 1, 2, 3, 3, 3]),
        (9, False, 4, [13, 12, 11, 10, 0, 1, 2, 3, 4]),
        (3, True, 5, [3, 3, 3, 2, 1, 0, 1, 2, 3, 3, 3]),
        (0, False, 2, [0, 0, 0, 0, 0]),
        (12, False, 3, [15, 14, 13, 0, 1, 2, 3]),
    )
    def test_local_labels(self, max_distance, ignore, radius, row):
        generator = RelativePositionGenerator(max_distance, ignore)
        ids = generator.make_local_relative_att_ids(4, radius, batch_size=2)
        self.assertEqual(ids.dtype, tf.int32)
        self.assertAllEqual(ids, [[row] * 4] * 2)
        spec = generator.make_local_relative_att_spec(radius)
        self.assertEqual(spec.pattern, tuple(row))

    @parameterized.parameters((1, 1), (7, 3), (3, 7), (11, 4))
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
            self.assertAllEqual(
                generator.make_relative_att_ids(seq_len), [expected]
            )
            radius = 5
            row = [
                _reference_label(0, k - radius, max_distance, ignore)
                for k in range(2 * radius + 1)
            ]
            self.assertAllEqual(
                generator.make_local_relative_att_ids(seq_len, radius),
                [[row] * seq_len],
            )

    @parameterized.parameters(
        dict(seq_len=0), dict(seq_len=np.int64(-2)), dict(batch_size=0)
    )
    def test_bad_sizes(self, seq_len=4, batch_size=1):
        generator = RelativePositionGenerator(2)
        with self.assertRaisesRegex(ValueError, "must be 1 or more"):
            generator.make_relative_att_ids(seq_len, batch_size)
        with self.assertRaisesRegex(ValueError, "must be 1 or more"):
            generator.make_local_relative_att_ids(seq_len, 2, batch_size)

    def test_bad_radius(self):
        with self.assertRaisesRegex(ValueError, "local_radius"):
            RelativePositionGenerator(2).make_local_relative_att_ids(4, 0)
        with self.assertRaisesRegex(ValueError, "local_radius"):
            RelativePositionGenerator(2).make_local_relative_att_spec(0)

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
            self.assertAllEqual(local.shape[2:], [7])
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

    def test_known_sizes_stay_static(self):
        generator = RelativePositionGenerator(2)

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
        def make(batch_size):
            full = generator.make_relative_att_ids(4, batch_size)
            local = generator.make_local_relative_att_ids(4, 1, batch_size)
            self.assertEqual(full.shape.as_list(), [None, 4, 4])
            self.assertEqual(local.shape.as_list(), [None, 4, 3])
            return full, local

        full, local = make(2)
        self.assertEqual(full.shape, [2, 4, 4])
        self.assertEqual(local.shape, [2, 4, 3])


if __name__ == "__main__":
    tf.test.main()
