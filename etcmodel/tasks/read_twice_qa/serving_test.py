"""Tests of `serving`; ../conformance_test.py has the exported model."""

import tensorflow as tf

from etcmodel.tasks.read_twice_qa import encoding
from etcmodel.tasks.read_twice_qa import serving


class PartsTest(tf.test.TestCase):
    def test_number_blocks_by_hand(self):
        ids, pos = serving.number_blocks(
            tf.constant([0, 0, 0, 2]), tf.constant([1, 2, 3, 1]), 2
        )
        self.assertAllEqual([1, 1, 2, 3], ids)
        self.assertAllEqual([1, 2, 1, 1], pos)

    def test_parts_are_those_that_are_stored(self):
        for number in (1, 4, 5, 6, 7, 10, 13):
            ids, pos = serving.number_blocks(
                tf.zeros([number], tf.int32), tf.range(1, number + 1), 4
            )
            expected = [
                (part + 1, position + 1)
                for part, rows in enumerate(encoding.divide(number, 4))
                for position in range(len(rows))
            ]
            self.assertAllEqual(expected, tf.stack([ids, pos], axis=1))

    def test_calls_end_with_a_document(self):
        for expected, block_ids in (
            ([2, 3, 6, 7, 8], [1, 1, 2, 3, 3, 3, 4, 5]),
            ([0], []),
        ):
            stops = serving._stops(tf.constant(block_ids, tf.int32))
            self.assertAllEqual(expected, stops)


if __name__ == "__main__":
    tf.test.main()
