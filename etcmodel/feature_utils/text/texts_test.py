import tensorflow as tf

from etcmodel.feature_utils.text import texts


class TextsTest(tf.test.TestCase):
    def test_without_padding(self):
        self.assertEqual(
            texts.without_padding(
                tf.constant([["a", "", "b", ""], [""] * 4])
            ).to_list(),
            [[b"a", b"", b"b"], []],
        )
        self.assertEqual(
            texts.without_padding(
                tf.ragged.constant([["a", ""], [], [""]])
            ).to_list(),
            [[b"a"], [], []],
        )
        self.assertEqual(
            texts.without_padding(tf.zeros([2, 0], tf.string)).to_list(),
            [[], []],
        )

    def test_without_padding_of_rows_of_rows(self):
        dense = tf.constant(
            [
                [["a", ""], ["", ""], ["", "b"], ["", ""]],
                [["", ""], ["", ""], ["", ""], ["", ""]],
            ]
        )
        expected = [[[b"a"], [], [b"", b"b"]], []]
        self.assertEqual(texts.without_padding(dense).to_list(), expected)
        ragged = tf.ragged.constant([[["a"], [""], ["", "b", ""], []], [[]]])
        self.assertEqual(texts.without_padding(ragged).to_list(), expected)
        for shape in ([2, 0, 3], [2, 3, 0]):
            empty = texts.without_padding(tf.zeros(shape, tf.string))
            self.assertEqual(empty.to_list(), [[], []])


if __name__ == "__main__":
    tf.test.main()
