import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq.metrics import NQPrediction
from etcmodel.models import EtcConfig
from etcmodel.tasks.nq import model as model_lib
from etcmodel.tasks.nq.task import TASK
from testing import model_inputs
from testing.conformance.cases import randomize
from testing.nq_answers import zero_logits

_NAMES = (
    "short_answer_start",
    "short_answer_end",
    "long_answer_start",
    "long_answer_end",
)
# The CLS and the page can be chosen.
_CAN_BE_CHOSEN = [1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0]


class HeadTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(1)
        self.inputs = self.rng.normal(size=[2, 5, 8]).astype(np.float32)
        self.types = np.array([[1, 3, 3, 1, 1], [1, 3, 1, 3, 0]], np.int32)

    def _head(self, **options):
        """A head whose weights all have values of their own."""
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
        # Null, yes, no, long, short: of the first token.
        self.assertAllClose(
            self.inputs[:, 0] @ kernel + bias,
            logits["answer_type_logits"],
            rtol=1e-4,
            atol=1e-4,
        )
        self.assertLen(head.trainable_variables, 4)

    def test_initial_weights(self):
        head = model_lib.NQHead(initializer_range=0.02)
        head(np.zeros([1, 3, 4096], np.float32), np.ones([1, 3], np.int32))
        # A normal distribution cut at two standard deviations, which leaves
        # 0.88 of its standard deviation.
        for layer in (head.positions, head.answer_type):
            kernel = np.array(layer.kernel)
            self.assertLess(np.abs(kernel).max(), 0.0400001)
            self.assertAllClose(0.0176, kernel.std(), rtol=0.05)
            self.assertAllEqual(tf.zeros_like(layer.bias), layer.bias)
        self.assertNotAllClose(
            np.array(head.positions.kernel), head.answer_type.kernel[:, :4]
        )


class ModelTest(tf.test.TestCase, parameterized.TestCase):
    def _model(self, **options):
        config = EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=2, **options
        )
        model = TASK.make_model().build(config)
        randomize(model)
        return model

    @parameterized.parameters(True, False)
    def test_hard_mask_has_no_exceptions(self, hard):
        """Not even for the CLS: a global token sees its own tokens only."""
        features = model_inputs.nq()
        ids = features["long_token_ids"].numpy()
        ids[:, 8] = 15  # Another last word, of the second candidate.
        changed = dict(features, long_token_ids=tf.constant(ids))
        model = self._model(
            local_radius=1, use_hard_g2l_mask=hard, use_hard_l2g_mask=True
        )
        logits = model(features)
        # Not the question, separators and padding.
        for name in _NAMES:
            value = logits[f"{name}_logits"].numpy()
            self.assertAllEqual([_CAN_BE_CHOSEN] * 2, value > -9000)
        name = "long_answer_start_logits"
        before, after = logits[name], model(changed)[name]
        # In two layers it reaches its neighbours and its own candidate; what
        # is farther away only by global tokens that see all.
        self.assertNotAllClose(before[:, 7], after[:, 7])
        for far in (0, 4, 5):
            if hard:
                self.assertAllEqual(before[:, far], after[:, far])
            else:
                self.assertNotAllClose(before[:, far], after[:, far])

    def test_gradients_reach_all_weights(self):
        """But the global side of the last attention, of which nothing is."""
        model = self._model()
        variables = [
            variable if isinstance(variable, tf.Variable) else variable.value
            for variable in model.trainable_variables
        ]
        labels = {name: tf.constant([4, 8]) for name in _NAMES}
        labels["answer_type"] = tf.constant([4, 0])
        with tf.GradientTape() as tape:
            outputs = model(model_inputs.nq())
            losses = TASK.make_model().losses(outputs, labels)
            loss = tf.add_n(list(losses.values()))
        gradients = tape.gradient(loss, variables)
        encoder = model.get_layer("etc_encoder")
        layers = encoder.get_layer(
            "etc_document_bert"
        ).global_local_transformer_layers
        last = {id(x) for x in layers.fused_att_layers[-1].trainable_variables}
        unreached = [
            id(variable)
            for variable, gradient in zip(
                model.trainable_variables, gradients, strict=True
            )
            if gradient is None
            or not np.any(tf.convert_to_tensor(gradient).numpy())
        ]
        self.assertContainsSubset(unreached, last)
        # Queries, keys and values of two kinds, output (kernels and biases);
        # two tables of relative positions; a normalisation.
        self.assertLen(unreached, 2 * (1 + 2 * 2 + 1) + 2 + 2)


class TaskModelTest(tf.test.TestCase):
    def test_losses_and_metrics(self):
        rng = np.random.default_rng(2)
        logits = {
            name: rng.normal(size=[3, 6]).astype(np.float32) for name in _NAMES
        }
        # What cannot be chosen takes no part.
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

    def test_short_answers_of_at_most_38_words(self):
        logits = zero_logits(1, 60)
        logits["short_answer_end_logits"][0] = np.arange(60)
        logits["long_answer_end_logits"][0] = np.arange(60)
        chosen = TASK.make_model().select_candidates(
            logits, {}, {"words": tf.range(60)[tf.newaxis]}
        )
        self.assertAllEqual([38], chosen["short_end"])
        self.assertAllEqual([60], chosen["long_end"])

    def test_predicts_answers_however_low_their_scores_are(self):
        columns = {
            "best_long_answer_start": [0, 6, -1],
            "best_long_answer_end": [5, 11, -1],
            "long_answer_score": np.array([-2.5, 3.0, -2e9], np.float32),
            "best_short_answer_start": [1, -1, -1],
            "best_short_answer_end": [3, -1, -1],
            "short_answer_score": np.array([-4.0, 1.5, -2e9], np.float32),
            "best_yes_no": np.array([0, 2, 1], np.int32),
            # What is given only above a threshold is not what is scored.
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
