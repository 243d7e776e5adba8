import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import EtcConfig
from etcmodel.tasks.wikihop import model as model_lib
from etcmodel.tasks.wikihop.task import TASK
from testing import model_inputs
from testing.conformance.cases import randomize


def _softmax(values):
    exponents = np.exp(np.asarray(values) - np.max(values))
    return exponents / exponents.sum()


class ModelTest(tf.test.TestCase, parameterized.TestCase):
    def _model(self, config=None, **options):
        config = config or EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=1
        )
        model = TASK.make_model(TASK.model_options(**options)).build(config)
        randomize(model)
        return model

    def test_only_candidates_have_logits(self):
        model = self._model()
        logits = model(model_inputs.wikihop())["logits"]
        self.assertAllInRange(logits[:, :2], -100.0, 100.0)
        self.assertAllEqual(tf.fill([2, 6], -10000.0), logits[:, 2:])

    @parameterized.parameters("l2g_linked_ids", "l2g_linked_ids_3")
    def test_links_change_the_logits(self, name):
        features = model_inputs.wikihop()
        features[name] = features["l2g_linked_ids"]
        unlinked = dict(features)
        for name in ("l2g_linked_ids", "l2g_linked_ids_3"):
            unlinked[name] = tf.fill([2, 12], -1)
        model = self._model()
        self.assertNotAllClose(
            model(features)["logits"][:, :2],
            model(unlinked)["logits"][:, :2],
        )
        model = self._model(use_links=False)
        self.assertAllEqual(
            model(features)["logits"], model(unlinked)["logits"]
        )


class LossTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.outputs = {
            "logits": tf.constant(
                [[1.0, 2.0, 0.5, -10000.0], [0.0, 3.0, -10000.0, -10000.0]]
            )
        }
        self.types = tf.constant([[6, 6, 6, 5], [6, 6, 5, 7]])
        self.log_probs = [
            np.log(_softmax(row)) for row in ([1.0, 2.0, 0.5], [0.0, 3.0])
        ]

    def _measure(self, **options):
        task_model = TASK.make_model(options=TASK.options(**options))
        labels = task_model.labels(
            {"global_token_type_ids": self.types},
            {"label_id": tf.constant([2.0, 1.0])},
        )
        metrics = task_model.metrics(self.outputs, labels)
        self.assertAllEqual([0.0, 1.0], metrics["accuracy"])
        return task_model.losses(self.outputs, labels)["cross_entropy"]

    def test_cross_entropy(self):
        self.assertAllClose(
            [-self.log_probs[0][2], -self.log_probs[1][1]], self._measure()
        )

    def test_label_smoothing_goes_to_candidates(self):
        expected = [
            -(np.array([0.1, 0.1, 0.8]) * self.log_probs[0]).sum(),
            -(np.array([0.15, 0.85]) * self.log_probs[1]).sum(),
        ]
        self.assertAllClose(expected, self._measure(label_smoothing=0.3))

    def test_rows_of_padding_have_a_finite_loss(self):
        """Their weight is 0, but 0 times NaN would be NaN."""
        self.types = tf.constant([[6, 6, 6, 5], [0, 0, 0, 0]])
        for smoothing in (0.0, 0.3):
            losses = self._measure(label_smoothing=smoothing)
            self.assertTrue(np.isfinite(losses).all())


class DecodingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        (
            "most_probable",
            [[1.0, 3.0, -10000.0, -10000.0], [0.5, -1.0, 2.0, -10000.0]],
            [["Oslo", "Rome", ""], ["a", "b", "c"]],
            ([b"Rome", b"c"], [1, 2]),
            [[*_softmax([1.0, 3.0]), 0.0], _softmax([0.5, -1.0, 2.0])],
        ),
        # Equal candidates are merged; the logit of the first one is used.
        (
            "equal",
            [[1.0, 2.0, 3.0, 9.0], [1.0, 4.0, 5.0, -10000.0]],
            [["oslo", "rome", " Oslo", "rome"], ["rome", "oslo", "bonn", ""]],
            ([b"rome", b"bonn"], [1, 2]),
            [
                [*_softmax([1.0, 2.0]), 0.0, 0.0],
                [*_softmax([1.0, 4.0, 5.0]), 0.0],
            ],
        ),
        (
            "beyond_the_global_length",
            [[-2.0, -3.0]],
            [["a", "b", "c", "d"]],
            ([b"a"], [0]),
            [[*_softmax([-2.0, -3.0]), 0.0, 0.0]],
        ),
    )
    def test_by_hand(self, logits, candidates, answers, probabilities):
        result = model_lib.decode_answers(
            tf.constant(logits), tf.constant(candidates)
        )
        self.assertAllEqual(answers[0], result["answer"])
        self.assertAllEqual(answers[1], result["answer_index"])
        self.assertAllClose(probabilities, result["candidate_probabilities"])

    def test_no_candidates(self):
        logits = tf.fill([2, 3], -10000.0)
        for width in (0, 2):
            result = model_lib.decode_answers(logits, tf.fill([2, width], ""))
            self.assertAllEqual([b"", b""], result["answer"])
            self.assertAllEqual([-1, -1], result["answer_index"])
            self.assertAllEqual(
                np.zeros([2, width]), result["candidate_probabilities"]
            )

    def test_answer_as_written_and_shape_of_the_request(self):
        task_model = TASK.make_model()
        chosen = {"logits": tf.constant([[1.0, 3.0], [2.0, 5.0]])}
        text = {"candidates": tf.ragged.constant([["a", " B"], ["c"]])}
        for width, request in (
            (2, {}),
            (4, {"num_candidates": tf.constant(4)}),
        ):
            answers = task_model.decode(chosen, tf.range(2), text | request)
            self.assertAllEqual([b" B", b"c"], answers["answer"])
            self.assertEqual(
                [2, width], answers["candidate_probabilities"].shape
            )
        # The prediction file has the candidate as written.
        answer = {"answer": answers["answer"].numpy()[0]}
        self.assertEqual(" B", task_model.to_prediction(answer, None))


if __name__ == "__main__":
    tf.test.main()
