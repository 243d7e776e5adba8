import numpy as np
import tensorflow as tf

from etcmodel.tasks.read_twice_qa.labels import label_answers


class LabelsTest(tf.test.TestCase):
    def test_by_hand(self):
        """Whole tokens where there are such, and what is whole inside."""
        starts = np.array([[-1, 0, 4, 6, 10], [-1, 6, 10, 14, -1]])
        ends = np.array([[-1, 3, 6, 9, 13], [-1, 9, 13, 16, -1]])
        whole = np.zeros_like(starts)
        labels, cut = label_answers(
            starts,
            ends,
            whole,
            # The second is a part of a token, the third of the first segment
            # alone, the fourth of the second one, the last of none.
            [(6, 9), (5, 6), (0, 6), (10, 16), (9, 10), (12, 20)],
            3,
        )
        self.assertAllEqual([[3, 1, 0], [1, 2, 0]], labels[0])
        self.assertAllEqual([[3, 2, 0], [1, 3, 0]], labels[1])
        self.assertAllEqual([[1, 1, 0], [1, 1, 0]], labels[2])
        self.assertEqual(0, cut)
        # A part of a token, where nothing else is.
        labels, cut = label_answers(starts, ends, whole, [(6, 8)], 1)
        self.assertAllEqual([[[3], [1]], [[3], [1]], [[1], [1]]], labels)
        # What goes on behind a segment is none.
        labels, cut = label_answers(starts, ends, whole, [(10, 20)], 1)
        self.assertFalse(labels.any())
        labels, cut = label_answers(
            starts, ends, whole, [(0, 3), (4, 6), (10, 13)], 1
        )
        self.assertAllEqual([[1], [2]], labels[0])
        self.assertEqual(2, cut)

    def test_answers_inside_words(self):
        """The whole word, where the answer is nowhere else."""
        starts = np.array([[-1, 0, 4, 6, 10, -1], [-1, 6, 10, 14, 16, -1]])
        ends = np.array([[-1, 4, 6, 9, 13, -1], [-1, 9, 13, 16, 19, -1]])
        # The first two tokens are a word, the last goes on behind the segment;
        # the second segment begins inside a word.
        cuts = np.array([[0, 2, 1, 0, 2, 0], [0, 1, 0, 2, 1, 0]])
        for spans, expected in (
            ([(0, 4)], [[1, 2], [0, 0]]),
            ([(4, 6), (14, 16)], [[1, 2], [3, 4]]),
            # The first segment has one that is a word.
            ([(0, 4), (6, 9)], [[3, 3], [1, 1]]),
            ([(10, 13)], [[4, 4], [2, 2]]),
        ):
            labels, _ = label_answers(starts, ends, cuts, spans, 1)
            self.assertAllEqual(expected, labels[:2, :, 0].T)


if __name__ == "__main__":
    tf.test.main()
