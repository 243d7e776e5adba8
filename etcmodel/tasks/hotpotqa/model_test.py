import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.feature_utils import token_types
from etcmodel.models import EtcConfig
from etcmodel.serving.saved_model import model_variables
from etcmodel.tasks.documents import span_model
from etcmodel.tasks.hotpotqa.task import TASK
from etcmodel.tasks.hotpotqa.task import HotpotQAModelOptions
from etcmodel.tasks.hotpotqa.task import HotpotQAOptions
from testing import model_inputs
from testing.conformance.cases import randomize
from testing.span_answers import logit_names

_IS_TEXT = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0], bool)


def _model(config=None, **options):
    config = config or EtcConfig.from_preset(
        "tiny", vocab_size=20, num_hidden_layers=1
    )
    model = TASK.make_model(HotpotQAModelOptions(**options)).build(config)
    randomize(model)
    return model


class ModelTest(tf.test.TestCase, parameterized.TestCase):
    def test_only_text_is_an_answer(self):
        logits = _model()(model_inputs.hotpotqa())
        for name in ("answer_begin_logits", "answer_end_logits"):
            value = logits[name][0].numpy()
            self.assertAllEqual([-10000.0] * 5, value[~_IS_TEXT])
            self.assertAllInRange(value[_IS_TEXT], -100.0, 100.0)

    @parameterized.parameters(
        ({}, (token_types.CLS_GLOBAL,)),
        (
            {"query_ignore_hard_g2l": True},
            (token_types.CLS_GLOBAL, token_types.QUESTION_GLOBAL),
        ),
    )
    def test_what_the_hard_mask_exempts(self, options, expected):
        made = TASK.make_model(HotpotQAModelOptions(**options))
        self.assertEqual(
            expected, made.encoder_options()["ignore_hard_g2l_types"]
        )

    def test_hard_mask_exempts_cls(self):
        config = EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=1, use_hard_g2l_mask=True
        )
        model = _model(config=config)
        ids = list(model_inputs._HOTPOTQA["long_token_ids"])
        ids[9] = 14  # The last sentence.
        before = model(model_inputs.hotpotqa())
        after = model(model_inputs.hotpotqa(long_token_ids=ids))
        # In one layer it reaches a global token only by its own attention.
        name = "answer_type_logits"
        self.assertNotAllClose(before[name], after[name])
        # Others see their own sentence or paragraph.
        name = "supporting_fact_logits"
        changed = np.flatnonzero((before[name] != after[name])[0])
        self.assertEqual([0, 7, 9], changed.tolist())

    def test_flat_sequence(self):
        """Paragraphs are told from each other, unless the text is flat."""
        joined = [1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0]
        changed = model_inputs.hotpotqa(long_paragraph_breakpoints=joined)
        for flat in (False, True):
            model = _model(flat_sequence=flat)
            before = model(model_inputs.hotpotqa())["answer_begin_logits"][
                0, 3:10
            ]
            after = model(changed)["answer_begin_logits"][0, 3:10]
            if flat:
                self.assertAllEqual(before, after)
            else:
                self.assertNotAllClose(before, after)

    @parameterized.parameters("span", "bio")
    def test_gradients_reach_all_weights(self, encoding):
        config = EtcConfig.from_preset(
            "tiny", vocab_size=20, num_hidden_layers=1, use_hard_g2l_mask=True
        )
        model = _model(config, answer_encoding=encoding)
        labels = {
            "supporting_facts": tf.constant(
                [[-1, -1, -1, 1, 1, 1, 0, 0, 0, 0, -1]] * 2
            ),
            "answer_type": tf.constant([0, 1]),
            "answer_begin": tf.constant([[4], [-1]]),
            "answer_end": tf.constant([[5], [-1]]),
            "answer_bio": tf.constant([[2] * 4 + [0, 1] + [2] * 6] * 2),
            "is_answer_token": tf.constant([_IS_TEXT] * 2),
        }
        variables = [v for v in model_variables(model) if v.trainable]
        self.assertNotEmpty(variables)
        with tf.GradientTape() as tape:
            losses = span_model.example_losses(
                model(model_inputs.hotpotqa()), labels
            )
            loss = tf.add_n(list(losses.values()))
        for variable, gradient in zip(
            variables, tape.gradient(loss, variables), strict=True
        ):
            self.assertIsNotNone(gradient, variable.name)
            gradient = tf.convert_to_tensor(gradient)
            self.assertAllInRange(gradient, -1e3, 1e3)
            self.assertGreater(
                tf.reduce_max(tf.abs(gradient)), 0.0, variable.name
            )


class LabelsTest(tf.test.TestCase):
    """Three records: an answer that occurs twice, "yes", nothing known."""

    FIELDS = {
        "supporting_facts": np.array([[-1, 1, 0], [-1, 0, 1], [-1, -1, -1]]),
        "answer_type": np.array([0, 1, 0]),
    }

    def _labels(self, encoding):
        model = TASK.make_model(HotpotQAModelOptions(encoding))
        spans = {
            name: tf.ragged.constant(values, tf.int32)
            for name, values in (
                ("answer_begins", [[1, 4], [], []]),
                ("answer_ends", [[2, 4], [], []]),
            )
        }
        features = {
            "long_token_ids": np.full([3, 6], 7),
            "long_token_type_ids": np.array([[1, 2, 2, 3, 1, 1]] * 3),
            "long_sentence_ids": np.array([[-1, 1, 1, 2, 3, 3]] * 3),
        }
        labels = model.labels(features, {**self.FIELDS, **spans})
        for name, expected in self.FIELDS.items():
            self.assertAllEqual(expected, labels.pop(name))
        return labels

    def test_span(self):
        """The first one is learned."""
        labels = self._labels("span")
        self.assertEqual({"answer_begin", "answer_end"}, set(labels))
        self.assertAllEqual([[1], [-1], [-1]], labels["answer_begin"])
        self.assertAllEqual([[2], [-1], [-1]], labels["answer_end"])

    def test_bio(self):
        """All are learned, of all tokens of titles and sentences."""
        labels = self._labels("bio")
        self.assertEqual({"answer_bio", "is_answer_token"}, set(labels))
        self.assertAllEqual(
            [[2, 0, 1, 2, 0, 2], [2] * 6, [2] * 6], labels["answer_bio"]
        )
        self.assertAllEqual(
            [[False, True, True, False, True, True]] * 3,
            labels["is_answer_token"],
        )


class LossTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(5)
        self.logits = {
            "supporting_fact_logits": rng.normal(size=[2, 4]),
            "answer_type_logits": rng.normal(size=[2, 3]),
            "answer_begin_logits": rng.normal(size=[2, 5]),
            "answer_end_logits": rng.normal(size=[2, 5]),
            "answer_bio_logits": rng.normal(size=[2, 5, 3]),
        }
        # The answer of the second one is "yes".
        self.labels = {
            "supporting_facts": np.array([[-1, 1, 0, 1], [-1, 0, 0, -1]]),
            "answer_type": np.array([0, 1]),
            "answer_begin": np.array([[2], [-1]], np.int32),
            "answer_end": np.array([[3], [-1]], np.int32),
            "answer_bio": np.array([[2, 2, 0, 1, 2], [2, 2, 2, 2, 0]]),
            "is_answer_token": np.array(
                [[0, 1, 1, 1, 1], [0, 1, 1, 1, 0]], bool
            ),
        }
        self.log_probs = {
            name: x - np.log(np.exp(x).sum(-1, keepdims=True))
            for name, x in self.logits.items()
        }

    def _losses(self, encoding):
        model = TASK.make_model(HotpotQAModelOptions(encoding))
        losses = model.losses(
            {
                x: tf.constant(self.logits[x], tf.float32)
                for x in logit_names(encoding)
            },
            {name: tf.constant(x) for name, x in self.labels.items()},
        )
        self.assertEqual(model.loss_names(), tuple(losses))
        facts = 1 / (1 + np.exp(-self.logits["supporting_fact_logits"]))
        self.assertAllClose(
            [
                -np.log(facts[0, 1] * (1 - facts[0, 2]) * facts[0, 3]),
                -np.log((1 - facts[1, 1]) * (1 - facts[1, 2])),
            ],
            losses["supporting_facts"],
        )
        types = self.log_probs["answer_type_logits"]
        self.assertAllClose([-types[0, 0], -types[1, 1]], losses["answer_type"])
        return losses

    def test_span(self):
        losses = self._losses("span")
        self.assertEqual(
            {"supporting_facts", "answer_type", "answer_begin", "answer_end"},
            set(losses),
        )
        begin = self.log_probs["answer_begin_logits"][0, 2]
        self.assertAllClose([-begin, 0.0], losses["answer_begin"])
        end = self.log_probs["answer_end_logits"][0, 3]
        self.assertAllClose([-end, 0.0], losses["answer_end"])

    def test_bio(self):
        losses = self._losses("bio")
        self.assertEqual(
            {"supporting_facts", "answer_type", "answer_bio"}, set(losses)
        )
        tokens = self.log_probs["answer_bio_logits"]
        # The first token is no text; neither is the last one of the second.
        self.assertAllClose(
            [
                -tokens[0, [1, 2, 3, 4], [2, 0, 1, 2]].sum(),
                -tokens[1, [1, 2, 3], [2, 2, 2]].sum(),
            ],
            losses["answer_bio"],
        )

    def test_weight_of_supporting_facts(self):
        options = HotpotQAOptions(supporting_fact_weight=0.2)
        self.assertEqual(
            {
                "supporting_facts_loss": 0.2,
                "answer_type_loss": 1.0,
                "answer_begin_loss": 1.0,
                "answer_end_loss": 1.0,
            },
            TASK.make_model(options=options).loss_factors(),
        )
        options = HotpotQAOptions(supporting_fact_weight=-0.2)
        with self.assertRaisesRegex(
            UserError, "supporting_fact_weight is -0.2.*at least 0"
        ):
            TASK.make_model(options=options)

    def test_answer_type_accuracy(self):
        model = TASK.make_model()
        metrics = model.metrics(
            {"answer_type_logits": tf.constant([[0.0, -1, -2], [1, 0, -1]])},
            {"answer_type": tf.constant([0, 1])},
        )
        self.assertEqual(model.METRICS, tuple(metrics))
        self.assertAllEqual([1.0, 0.0], metrics["answer_type_accuracy"])


class PredictTest(tf.test.TestCase, parameterized.TestCase):
    def _predict(self, threshold, answer=b"Moravia"):
        answers = {
            "answer": answer,
            # Three paragraphs of a record of two, which was padded.
            "supporting_fact_probabilities": np.array(
                [[0.5, 0.49, 0.0], [0.9, 0.0, 0.0], [0.0, 0.0, 0.0]], np.float32
            ),
        }
        model = TASK.make_model(options=HotpotQAOptions(threshold))
        return model.to_prediction(answers, {"titles": ["Jan", b"Brno"]})

    @parameterized.parameters(
        (0.4, [("Jan", 0), ("Jan", 1), ("Brno", 0)]),
        (0.5, [("Jan", 0), ("Brno", 0)]),
        (0.6, [("Brno", 0)]),
        (0.95, []),
        # What was cut, is empty or padding has 0 and is never one.
        (0.0, [("Jan", 0), ("Jan", 1), ("Brno", 0)]),
    )
    def test_facts(self, threshold, expected):
        self.assertEqual(("Moravia", expected), self._predict(threshold))

    def test_answers_of_other_languages(self):
        for answer, expected in (
            ("\u00e9".encode(), "\u00e9"),
            (b"\xc3", "\ufffd"),
        ):
            self.assertEqual(expected, self._predict(0.5, answer)[0])


if __name__ == "__main__":
    tf.test.main()
