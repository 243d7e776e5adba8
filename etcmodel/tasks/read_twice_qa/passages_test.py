import tensorflow as tf

from etcmodel.tasks.read_twice_qa import passages


class PartsTest(tf.test.TestCase):
    def test_number_blocks_by_hand(self):
        """Of 3, of 1 and of 6 segments, of which 2 or 4 can be read at once."""
        documents = tf.constant([0, 0, 0, 2, 3, 3, 3, 3, 3, 3])
        block_pos = tf.constant([1, 2, 3, 1, 1, 2, 3, 4, 5, 6])
        for most, expected_ids, expected_pos in (
            (2, [1, 1, 2, 3, 4, 4, 5, 5, 6, 6], [1, 2, 1, 1, 1, 2, 1, 2, 1, 2]),
            (4, [1, 1, 1, 2, 3, 3, 3, 4, 4, 4], [1, 2, 3, 1, 1, 2, 3, 1, 2, 3]),
        ):
            ids, pos = passages.number_blocks(documents, block_pos, most)
            self.assertAllEqual(expected_ids, ids)
            self.assertAllEqual(expected_pos, pos)
        nothing = tf.constant([], tf.int32)
        ids, pos = passages.number_blocks(nothing, nothing, 2)
        self.assertAllEqual([[], []], [ids, pos])

    def test_parts_by_hand(self):
        for number, most, expected in ((10, 4, 4), (6, 4, 3), (4, 4, 4)):
            self.assertEqual(expected, passages.part_size(number, most))


if __name__ == "__main__":
    tf.test.main()
