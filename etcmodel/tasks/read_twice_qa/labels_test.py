import numpy as np
import tensorflow as tf

from etcmodel.tasks.read_twice_qa.labels import label_answers


class LabelsTest(tf.test.TestCase):
    def test_by_hand(self):
        """Labels answers of whole tokens that lie inside a segment."""
        starts = np.array([[-1, 0, 4, 6, 10], [-1, 6, 10, 14, -1]])
        ends = np.array([[-1, 3, 6, 9, 13], [-1, 9, 13, 16, -1]])
        whole = np.zeros_like(starts)
        labels, cut = label_answers(
            starts,
            ends,
            whole,
            # The second answer is a part of a token. The third is only in the
            # first segment, the fourth only in the second, the last in neither.
            [(6, 9), (5, 6), (0, 6), (10, 16), (9, 10), (12, 20)],
            3,
        )
        self.assertAllEqual([[3, 1, 0], [1, 2, 0]], labels[0])
        self.assertAllEqual([[3, 2, 0], [1, 3, 0]], labels[1])
        self.assertAllEqual([[1, 1, 0], [1, 1, 0]], labels[2])
        self.assertEqual(0, cut)
        # The only answer is a part of a token.
        labels, cut = label_answers(starts, ends, whole, [(6, 8)], 1)
        self.assertAllEqual([[[3], [1]], [[3], [1]], [[1], [1]]], labels)
        # An answer that extends beyond the segment.
        labels, cut = label_answers(starts, ends, whole, [(10, 20)], 1)
        self.assertFalse(labels.any())
        labels, cut = label_answers(
            starts, ends, whole, [(0, 3), (4, 6), (10, 13)], 1
        )
        self.assertAllEqual([[1], [2]], labels[0])
        self.assertEqual(2, cut)

    def test_answers_inside_words(self):
        """Labels the whole word if there is no exact answer."""
        starts = np.array([[-1, 0, 4, 6, 10, -1], [-1, 6, 10, 14, 16, -1]])
        ends = np.array([[-1, 4, 6, 9, 13, -1], [-1, 9, 13, 16, 19, -1]])
        # In the first segment, the first two tokens are one word, and the last
        # word is cut. The second segment begins inside a word.
        cuts = np.array([[0, 2, 1, 0, 2, 0], [0, 1, 0, 2, 1, 0]])
        for spans, expected in (
            ([(0, 4)], [[1, 2], [0, 0]]),
            ([(4, 6), (14, 16)], [[1, 2], [3, 4]]),
            # The first segment has an exact answer, so its inexact answer is
            # not labelled.
            ([(0, 4), (6, 9)], [[3, 3], [1, 1]]),
            ([(10, 13)], [[4, 4], [2, 2]]),
        ):
            labels, _ = label_answers(starts, ends, cuts, spans, 1)
            self.assertAllEqual(expected, labels[:2, :, 0].T)


if __name__ == "__main__":
    tf.test.main()
