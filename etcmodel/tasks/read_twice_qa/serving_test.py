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

    def test_whole_documents_are_read_together(self):
        """As many as there is room for."""
        calls = []

        def function(inputs):
            sizes = tf.fill([tf.size(inputs["x"])], tf.size(inputs["x"]))
            calls.append(inputs["block_ids"].numpy().tolist())
            return {"y": inputs["x"] * 2, "size": sizes}

        specs = {
            "y": tf.TensorSpec([None], tf.int32),
            "size": tf.TensorSpec([None], tf.int32),
        }
        block_ids = [1, 1, 2, 3, 3, 3, 4, 5]
        made = serving.read_in_parts(
            function,
            {"block_ids": tf.constant(block_ids), "x": tf.range(8)},
            4,
            specs,
        )
        self.assertAllEqual(2 * tf.range(8), made["y"])
        self.assertAllEqual([3, 3, 3, 4, 4, 4, 4, 1], made["size"])
        self.assertEqual([[1, 1, 2], [3, 3, 3, 4], [5]], calls)
        calls.clear()
        made = serving.read_in_parts(
            function,
            {"block_ids": tf.zeros([0], tf.int32), "x": tf.range(0)},
            4,
            specs,
        )
        self.assertAllEqual([0], made["y"].shape)
        self.assertEqual([[]], calls)


if __name__ == "__main__":
    tf.test.main()
