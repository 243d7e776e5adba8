import numpy as np
import tensorflow as tf

from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.tasks.nq import model as model_lib
from etcmodel.tasks.nq.task import TASK
from testing.nq_answers import zero_logits

_NAMES = (
    "short_answer_start",
    "short_answer_end",
    "long_answer_start",
    "long_answer_end",
)


class HeadTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(1)
        self.inputs = self.rng.normal(size=[2, 5, 8]).astype(np.float32)
        self.types = np.array([[1, 3, 3, 1, 1], [1, 3, 1, 3, 0]], np.int32)

    def _head(self, **options):
        """Makes a head with random weights."""
        head = model_lib.NQHead(**options)
        head(self.inputs, self.types)
        head.set_weights(
            [self.rng.normal(size=w.shape) for w in head.get_weights()]
        )
        return head

    def test_matches_the_formula(self):
        head = self._head()
        logits = head(self.inputs, self.types)
        kernel, bias = (
            np.array(x) for x in (head.positions.kernel, head.positions.bias)
        )
        self.assertEqual((8, 4), kernel.shape)
        positions = self.inputs @ kernel + bias
        for i, name in enumerate(_NAMES):
            self.assertAllClose(
                np.where(self.types == 1, positions[..., i], -10000.0),
                logits[f"{name}_logits"],
                rtol=1e-4,
                atol=1e-4,
            )
        kernel, bias = (
            np.array(x)
            for x in (head.answer_type.kernel, head.answer_type.bias)
        )
        # Types are computed from the first token: null, yes, no, long, short.
        self.assertAllClose(
            self.inputs[:, 0] @ kernel + bias,
            logits["answer_type_logits"],
            rtol=1e-4,
            atol=1e-4,
        )
        self.assertLen(head.trainable_variables, 4)


class TaskModelTest(tf.test.TestCase):
    def test_losses_and_metrics(self):
        rng = np.random.default_rng(2)
        logits = {
            name: rng.normal(size=[3, 6]).astype(np.float32) for name in _NAMES
        }
        # Masked positions have a probability of 0.
        for value in logits.values():
            value[:, 1:3] = -10000.0
        types = rng.uniform(size=[3, 5]) + np.eye(5)[[0, 1, 2]]
        logits["answer_type"] = types.astype(np.float32)
        labels = {name: rng.choice([0, 3, 4, 5], 3) for name in _NAMES}
        labels["answer_type"] = np.array([0, 4, 2])
        outputs = {f"{name}_logits": value for name, value in logits.items()}
        tensors = {x: tf.constant(y, tf.int32) for x, y in labels.items()}
        losses = TASK.make_model().losses(outputs, tensors)
        self.assertEqual(set(labels), set(losses))
        for name, value in logits.items():
            exponents = np.exp(value.astype(np.float64))
            probability = exponents[range(3), labels[name]] / exponents.sum(1)
            self.assertAllClose(-np.log(probability), losses[name])
        metrics = TASK.make_model().metrics(outputs, tensors)
        self.assertAllEqual([1, 0, 1], metrics.pop("answer_type_accuracy"))
        self.assertEmpty(metrics)

    def test_short_answers_have_at_most_38_words(self):
        logits = zero_logits(1, 60)
        logits["short_answer_end_logits"][0] = np.arange(60)
        logits["long_answer_end_logits"][0] = np.arange(60)
        chosen = TASK.make_model().select_candidates(
            logits, {}, {"words": tf.range(60)[tf.newaxis]}
        )
        self.assertAllEqual([38], chosen["short_end"])
        self.assertAllEqual([60], chosen["long_end"])

    def test_predictions_have_answers_with_any_score(self):
        columns = {
            "best_long_answer_start": [0, 6, -1],
            "best_long_answer_end": [5, 11, -1],
            "long_answer_score": np.array([-2.5, 3.0, -2e9], np.float32),
            "best_short_answer_start": [1, -1, -1],
            "best_short_answer_end": [3, -1, -1],
            "short_answer_score": np.array([-4.0, 1.5, -2e9], np.float32),
            "best_yes_no": np.array([0, 2, 1], np.int32),
            # The score does not use these outputs, which a threshold has
            # filtered.
            "long_answer_start": [-1, 6, -1],
            "long_answer_end": [-1, 11, -1],
            "yes_no": [0, 0, 0],
        }
        expected = [
            NQPrediction((0, 5), -2.5, ((1, 3),), -4.0),
            NQPrediction((6, 11), 3.0, (), 1.5, "no"),
            NQPrediction((-1, -1), -2e9, (), -2e9, "yes"),
        ]
        for i, prediction in enumerate(expected):
            answers = {name: np.array(x)[i] for name, x in columns.items()}
            self.assertEqual(
                prediction, TASK.make_model().to_prediction(answers, None)
            )


if __name__ == "__main__":
    tf.test.main()
