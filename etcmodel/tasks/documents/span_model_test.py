import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.documents import span_model as model_lib
from testing.span_answers import logit_names

# Types of a CLS, a question of two tokens, titles, sentences and padding.
_TYPES = [1, 3, 3, 2, 1, 1, 1, 2, 2, 1, 0, 0]
_SENTENCES = [-1, 1, 2, 4, 5, 5, 6, 8, 8, 9, -1, -1]
_IS_TEXT = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0], bool)
_SHAPES = {
    "supporting_fact_logits": [2, 11],
    "answer_type_logits": [2, 3],
    "answer_begin_logits": [2, 12],
    "answer_end_logits": [2, 12],
    "answer_bio_logits": [2, 12, 3],
}


class HeadTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(3)
        self.long = self.rng.normal(size=[2, 12, 8]).astype(np.float32)
        self.globals = self.rng.normal(size=[2, 11, 8]).astype(np.float32)
        self.inputs = (
            tf.constant(self.long),
            tf.constant(self.globals),
            tf.constant([_TYPES] * 2),
            tf.constant([_SENTENCES] * 2),
        )

    def _randomized(self, head):
        """Sets random weights."""
        head(*self.inputs)
        head.set_weights(
            [self.rng.normal(size=w.shape) for w in head.get_weights()]
        )
        return head

    @parameterized.parameters("span", "bio")
    def test_matches_the_formula(self, encoding):
        head = self._randomized(model_lib.SpanAnswerHead(encoding))
        logits = head(*self.inputs)
        self.assertEqual(logit_names(encoding), set(logits))

        def dense(layer, values):
            return values @ np.array(layer.kernel) + np.array(layer.bias)

        answer = dense(head.answer, self.long)
        expected = {
            "supporting_fact_logits": dense(
                head.supporting_facts, self.globals
            )[..., 0],
            "answer_type_logits": dense(head.answer_type, self.globals[:, 0]),
            "answer_begin_logits": np.where(_IS_TEXT, answer[..., 0], -1e4),
            "answer_end_logits": np.where(_IS_TEXT, answer[..., 1], -1e4),
            "answer_bio_logits": answer,
        }
        for name, value in logits.items():
            self.assertEqual(_SHAPES[name], value.shape)
            self.assertAllClose(expected[name], value, rtol=1e-5, atol=1e-5)

    def test_initial_weights(self):
        head = model_lib.SpanAnswerHead(initializer_range=0.5)
        head(*self.inputs)
        self.assertLen(head.trainable_variables, 6)
        for layer in (head.supporting_facts, head.answer_type, head.answer):
            # Truncated at two standard deviations.
            self.assertAllInRange(np.array(layer.kernel), -1.0, 1.0)
            self.assertGreater(np.abs(np.array(layer.kernel)).max(), 0.2)
            self.assertAllEqual(np.zeros_like(layer.bias), layer.bias)

    def test_prior_of_supporting_facts(self):
        """The initial probability of a supporting fact is `unit_prior`."""
        head = model_lib.SpanAnswerHead(initializer_range=1e-6, unit_prior=0.05)
        logits = head(*self.inputs)["supporting_fact_logits"]
        self.assertAllClose(tf.fill([2, 11], 0.05), tf.sigmoid(logits), 1e-3)
        for prior in (0.0, 1.0):
            with self.assertRaisesRegex(ValueError, "unit_prior"):
                model_lib.SpanAnswerHead(unit_prior=prior)

    def test_no_answer(self):
        """The fourth answer type has separate weights."""
        head = self._randomized(model_lib.SpanAnswerHead(has_no_answer=True))
        types = head(*self.inputs)["answer_type_logits"]
        self.assertEqual([2, 4], types.shape)
        for layer, logits in (
            (head.answer_type, types[:, :3]),
            (head.no_answer, types[:, 3:]),
        ):
            expected = self.globals[:, 0] @ np.array(layer.kernel)
            self.assertAllClose(expected + np.array(layer.bias), logits, 1e-5)

    def test_unknown_encoding(self):
        with self.assertRaisesRegex(ValueError, "'iob'.*'span', 'bio'"):
            model_lib.SpanAnswerHead("iob")


class BioLabelsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        (
            "spans",
            [[1, 4, -1], [0, -1, -1], [-1, -1, -1]],
            [[2, 4, -1], [5, -1, -1], [-1, -1, -1]],
            [[2, 0, 1, 2, 0, 2], [0, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]],
        ),
        ("neighbours", [[0, 2, 3]], [[1, 2, 4]], [[0, 1, 0, 0, 1]]),
        ("no_spans", [[], []], [[], []], [[2, 2, 2]] * 2),
    )
    def test_by_hand(self, begins, ends, expected):
        number = len(expected[0])
        for dtype, length in (
            (tf.int32, number),
            (tf.int64, tf.constant(number)),
        ):
            labels = model_lib.bio_labels(
                tf.constant(begins, dtype), tf.constant(ends, dtype), length
            )
            self.assertEqual(tf.int32, labels.dtype)
            self.assertAllEqual(expected, labels)


class PlaceLossesTest(tf.test.TestCase):
    # The three places have the probabilities 1/2, 1/4 and 1/4.
    _LOGITS = [[math.log(2), 0.0, 0.0]] * 4
    _PLACES = [[0, -1], [0, 2], [1, 2], [-1, -1]]

    def test_by_hand(self):
        self.assertAllClose(
            [math.log(2), -math.log(3 / 4), math.log(2), 0.0],
            model_lib.place_losses(
                tf.constant(self._LOGITS), tf.constant(self._PLACES)
            ),
        )

    def test_gradients(self):
        """The gradient is p, minus a place's share of the places' total p."""
        logits = tf.constant(self._LOGITS)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = model_lib.place_losses(logits, tf.constant(self._PLACES))
        self.assertAllClose(
            [
                [-1 / 2, 1 / 4, 1 / 4],
                [1 / 2 - 2 / 3, 1 / 4, 1 / 4 - 1 / 3],
                [1 / 2, -1 / 4, -1 / 4],
                [0, 0, 0],
            ],
            tape.gradient(losses, logits),
        )


class LabelsAndLossesTest(tf.test.TestCase):
    def test_different_places(self):
        places = tf.ragged.constant([[4, 4, 7], [5]], tf.int32)
        for number, expected in (
            (2, [[4, 7], [5, -1]]),
            (4, [[4, 7, -1, -1], [5, -1, -1, -1]]),
        ):
            kept = model_lib.different_places(places, number)
            self.assertAllEqual(expected, kept)

    def test_losses_of_equal_logits(self):
        labels = {
            "supporting_facts": tf.constant([[-1, 1, 0], [-1, -1, 0]]),
            "answer_type": tf.constant([0, 3]),
            "answer_begin": tf.constant([[2], [-1]]),
            "answer_end": tf.constant([[3], [-1]]),
            "answer_bio": tf.constant([[2, 2, 0, 1, 2], [2, 2, 2, 2, 0]]),
            "is_answer_token": tf.constant([[0, 1, 1, 1, 1], [0] * 5]) > 0,
        }
        logits = {
            "supporting_fact_logits": tf.zeros([2, 3]),
            "answer_type_logits": tf.zeros([2, 4]),
        }
        log2, log3 = math.log(2), math.log(3)
        expected = {
            "supporting_facts": [2 * log2, log2],
            "answer_type": [2 * log2, 2 * log2],
        }
        span = {
            f"answer_{x}_logits": tf.zeros([2, 6]) for x in ("begin", "end")
        }
        self.assertAllClose(
            expected
            | dict.fromkeys(("answer_begin", "answer_end"), [log2 + log3, 0.0]),
            model_lib.example_losses(logits | span, labels),
        )
        bio = {"answer_bio_logits": tf.zeros([2, 5, 3])}
        self.assertAllClose(
            expected | {"answer_bio": [4 * log3, 0.0]},
            model_lib.example_losses(logits | bio, labels),
        )


if __name__ == "__main__":
    tf.test.main()
