import numpy as np
import tensorflow as tf

from etcmodel.pipeline import example_writer
from etcmodel.tasks.pretrain import parsing


class ParsingTest(tf.test.TestCase):
    def test_by_hand(self):
        stored = [
            # Two texts, of two sentences and of one; then one of one.
            {
                "token_ids": [5, 6, 7, 8, 9],
                "is_continuation": [0, 1, 0, 0, 1],
                "sentence_lengths": [2, 1, 2],
                "text_lengths": [2, 1],
            },
            {
                "token_ids": [4, 3],
                "is_continuation": [0, 1],
                "sentence_lengths": [2],
                "text_lengths": [1],
            },
        ]
        features, is_continuation = parsing.parse(
            tf.constant([example_writer.serialize(x) for x in stored]),
            6,
            4,
            1,
        )
        expected = {
            "long_token_ids": [[5, 6, 7, 8, 9, 0], [4, 3, 0, 0, 0, 0]],
            "sentence_ids": [[0, 0, 1, 2, 2, -1], [0, 0, -1, -1, -1, -1]],
            "long_breakpoints": [[0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 0, 0]],
            "global_token_ids": [[1, 1, 1, 0], [1, 0, 0, 0]],
            "global_breakpoints": [[0, 1, 1, 0], [1, 0, 0, 0]],
        }
        self.assertEqual(set(expected), set(features))
        for name, value in expected.items():
            self.assertAllEqual(value, features[name], name)
            self.assertEqual(tf.int32, features[name].dtype)
        self.assertAllEqual(
            [[0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]], is_continuation
        )
        self.assertEqual([2, 6], np.shape(is_continuation))


if __name__ == "__main__":
    tf.test.main()
