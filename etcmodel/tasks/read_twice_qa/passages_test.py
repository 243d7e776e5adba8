import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.read_twice_qa import passages


class PartsTest(tf.test.TestCase, parameterized.TestCase):
    def test_number_blocks_by_hand(self):
        """Divides documents of 3, 1 and 6 segments into parts."""
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

    # Each segment has a question token and one or two tokens of the document.
    _STARTS = np.array([[-1, 1, 4], [-1, 6, -1], [-1, 9, 11]])
    _ENDS = np.array([[-1, 4, 5], [-1, 9, -1], [-1, 10, 14]])

    @parameterized.parameters(
        # Segments do not overlap in the first case, but do in the second.
        (1, None, [(0, b" Jan. "), (6, b"Eve"), (9, b". ano\n")]),
        (1, (1, [-1, 4, 6], [-1, 5, 9]), [(0, b" Jan."), (4, b". Eve")]),
        (2, None, [(0, b" Jan. Eve"), (9, b". ano\n")]),
        (3, None, [(0, b" Jan. Eve. ano\n")]),
        # One segment has no tokens of the document.
        (1, (1, [-1] * 3, [-1] * 3), [(0, b" Jan. Eve. ano\n"), (15, b"")]),
    )
    def test_parts_of_a_document(self, number, changed, expected):
        document = b" Jan. Eve. ano\n"
        starts, ends = self._STARTS.copy(), self._ENDS.copy()
        if changed:
            row, starts[row], ends[row] = changed
        parts = [
            passages.part_of_document(document, starts, ends, first, number)
            for first in range(0, 3, number)
        ]
        found = [(x["document_start"], x["document"]) for x in parts]
        self.assertEqual(expected, found[: len(expected)])
        self.assertEqual(
            {"document": document, "document_start": 0},
            passages.merge_documents(parts[::-1]),
        )


if __name__ == "__main__":
    tf.test.main()
