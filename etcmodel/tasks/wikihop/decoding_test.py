import numpy as np
import tensorflow as tf

from etcmodel.tasks.wikihop import decoding


def _softmax(values):
    exponents = np.exp(np.asarray(values) - np.max(values))
    return exponents / exponents.sum()


class DecodingTest(tf.test.TestCase):
    def test_picks_the_most_probable_candidate(self):
        logits = tf.constant(
            [[1.0, 3.0, -10000.0, -10000.0], [0.5, -1.0, 2.0, -10000.0]]
        )
        candidates = tf.constant([["Oslo", "Rome", ""], ["a", "b", "c"]])
        result = decoding.decode_answers(logits, candidates)
        self.assertAllEqual([b"Rome", b"c"], result["answer"])
        self.assertAllEqual([1, 2], result["answer_index"])
        self.assertAllClose(
            [[*_softmax([1.0, 3.0]), 0.0], _softmax([0.5, -1.0, 2.0])],
            result["candidate_probabilities"],
        )

    def test_candidates_beyond_the_global_length(self):
        logits = tf.constant([[-2.0, -3.0]])
        candidates = tf.constant([["a", "b", "c", "d"]])
        result = decoding.decode_answers(logits, candidates)
        self.assertAllEqual([b"a"], result["answer"])
        self.assertAllClose(
            [[*_softmax([-2.0, -3.0]), 0.0, 0.0]],
            result["candidate_probabilities"],
        )

    def test_no_candidates(self):
        logits = tf.fill([2, 3], -10000.0)
        for width in (0, 2):
            result = decoding.decode_answers(logits, tf.fill([2, width], ""))
            self.assertAllEqual([b"", b""], result["answer"])
            self.assertAllEqual([-1, -1], result["answer_index"])
            self.assertAllEqual(
                np.zeros([2, width]), result["candidate_probabilities"]
            )

    def test_dynamic_shapes_and_half_precision(self):
        decode = tf.function(
            decoding.decode_answers,
            input_signature=[
                tf.TensorSpec([None, None], tf.float16),
                tf.TensorSpec([None, None], tf.string),
            ],
        )
        result = decode(
            tf.constant([[2.0, 1.0, -10000.0]], tf.float16),
            tf.constant([["x", "y"]]),
        )
        self.assertAllEqual([b"x"], result["answer"])
        self.assertEqual(tf.float32, result["candidate_probabilities"].dtype)


if __name__ == "__main__":
    tf.test.main()
