import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import positions


class MakeParagraphPositionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        # [CLS], a question of two tokens, paragraphs of three and two tokens.
        ("cls", "01100000", "10100101", "01234534"),
        ("no_cls", "11000", "01010", "12343"),
        ("no_question", "0000", "0100", "1212"),
        ("question_and_text_in_one", "1100", "0001", "1234"),
        ("long_paragraph", "0100000000", "1100000001", "0123456234"),
        ("candidates_first", "000011000", "010101001", "343412345"),
        ("long_question", "1111111100", "0000000101", "1234566634"),
    )
    def test_positions(self, *rows):
        is_question, breakpoints, expected = ([*map(int, x)] for x in rows)
        inputs = tf.constant([breakpoints, [0] * len(breakpoints)])
        questions = tf.constant([is_question, [0] * len(breakpoints)])
        made = positions.make_paragraph_positions(inputs, questions, 7)
        self.assertAllEqual(expected, made[0])
        # The other row is one paragraph without a question.
        alone = [1 + i % 6 for i in range(len(breakpoints))]
        self.assertAllEqual(alone, made[1])

    def test_without_questions_at_unknown_lengths(self):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
        def make(breakpoints):
            return positions.make_paragraph_positions(breakpoints, None, 9)

        made = make(np.array([[0, 1, 0, 0], [1, 1, 0, 0]]))
        self.assertAllEqual([[1, 2, 1, 2], [1, 1, 1, 2]], made)
        self.assertAllEqual([1, 2, 1], make(np.array([[0, 1, 1]]))[0])

    def test_compiles(self):
        make = tf.function(positions.make_paragraph_positions, jit_compile=True)
        made = make(tf.constant([[0, 1, 0]]), tf.constant([[1, 1, 0]]), 8)
        self.assertAllEqual([[1, 2, 3]], made)

    def test_too_few(self):
        with self.assertRaisesRegex(ValueError, "num_positions is 1"):
            positions.make_paragraph_positions(tf.ones([1, 1]), None, 1)


class TakeFirstOwnedTest(tf.test.TestCase):
    def test_first_tokens(self):
        # In row 0, two tokens belong to global token 3, so the first one
        # counts; no token belongs to global token 0.
        owners = tf.constant([[-1, 1, 2, 3, 3, -1], [0] + [-1] * 5])
        given = tf.constant([[7, 1, 2, 3, 4, 5], [9, 0, 0, 0, 0, 0]])
        for make in (
            positions.take_first_owned,
            tf.function(positions.take_first_owned, jit_compile=True),
        ):
            self.assertAllEqual(
                [[0, 1, 2, 3, 0], [9, 0, 0, 0, 0]], make(given, owners, 5)
            )

    def test_unknown_lengths(self):
        ints = tf.TensorSpec([None, None], tf.int64)

        @tf.function(input_signature=[ints, ints])
        def make(given, owners):
            return positions.take_first_owned(
                given, owners, tf.reduce_max(tf.cast(owners, tf.int32)) + 1
            )

        made = make(np.array([[4, 5, 6]]), np.array([[1, 1, 2]]))
        self.assertAllEqual([[0, 4, 6]], made)


if __name__ == "__main__":
    tf.test.main()
