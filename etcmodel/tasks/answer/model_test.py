import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import question_answering
from etcmodel.datasets.question_answering.predictions import Gold
from etcmodel.datasets.unit_positions import Selected
from etcmodel.errors import UserError
from etcmodel.tasks.answer.task import TASK

_UNITS = ["Brno", "Žán is in Brno.", "Is it big?"]
# The best span, in bytes, of a title and of two sentences.
_CANDIDATES = {
    "global_units": [[-1, 0, 1, 2, -1]],
    "scores": [[-1e9, -3.0, -1.0, -2.0, -1e9]],
    "probabilities": [[0.0, 0.2, 0.5, 0.25, 0.0]],
    "starts": [[-1, 0, 12, 6, -1]],
    "ends": [[-1, 4, 16, 9, -1]],
}


class AnswerTest(tf.test.TestCase, parameterized.TestCase):
    def _answer(self, types, fact=0.3, units=_UNITS, **options):
        """Decodes a record; returns the answers and the prediction."""
        model = TASK.make_model(options=TASK.options(**options))
        candidates = {"fact_probabilities": [[-1.0, 0.9, fact, 0.6, -1.0]]}
        candidates = _CANDIDATES | candidates
        if units is not _UNITS:
            # The input has no units.
            candidates |= {
                "global_units": [[-1] * 5],
                "scores": [[-1e9] * 5],
                "fact_probabilities": [[-1.0] * 5],
            }
        number = len(units)
        answers = model.decode(
            {
                **{
                    x: tf.constant(y, tf.float32 if "." in str(y) else tf.int32)
                    for x, y in candidates.items()
                },
                "answer_type_probabilities": tf.constant([types]),
            },
            None,
            {
                name: tf.RaggedTensor.from_row_lengths(values, [number])
                for name, values in (
                    ("units", tf.constant([*units], tf.string)),
                    ("unit_paragraphs", tf.zeros([number], tf.int32)),
                    ("unit_numbers", tf.range(-1, number - 1)),
                )
            },
        )
        answers = {x: y.numpy()[0] for x, y in answers.items()}
        return answers, model.to_prediction(answers, {})

    # Probabilities of a span, yes, no and no answer.
    @parameterized.parameters(
        (None, [0.3, 0.1, 0.1, 0.5], 3, "", 0.5),
        (None, [0.3, 0.2, 0.1, 0.4], 0, "Brno", 0.3 * 0.5),
        (0.4, [0.3, 0.2, 0.1, 0.4], 3, "", 0.4),
        (0.6, [0.1, 0.2, 0.15, 0.55], 1, "yes", 0.2),
        (1.0, [0.0, 0.05, 0.1, 0.85], 2, "no", 0.1),
        # "No answer" reaches the threshold, although a span is more probable.
        (0.05, [0.9, 0.02, 0.02, 0.06], 3, "", 0.06),
    )
    def test_no_answer(self, threshold, types, kind, text, probability):
        answers, prediction = self._answer(types, no_answer_threshold=threshold)
        self.assertEqual(kind, answers["answer_type"])
        self.assertEqual(text, prediction["answer"])
        self.assertAllClose(probability, answers["answer_probability"])
        self.assertAllClose(types[3], answers["no_answer_probability"])
        self.assertAllClose(types[3], prediction["no_answer_probability"])

    @parameterized.product(
        units=([], ["", ""], [*_UNITS]),
        options=(
            {},
            {"answer_in_evidence": True},
            {"multiply_fact_probability": True},
            {"no_answer_threshold": 1.0},
        ),
    )
    def test_documents_without_text(self, units, options):
        """Without text in the input, the answer is "", "yes" or "no"."""
        answers, prediction = self._answer(
            [0.6, 0.2, 0.1, 0.1], units=units, **options
        )
        self.assertEqual(3, answers["answer_type"])
        self.assertEqual("", prediction["answer"])
        self.assertEqual(0.0, answers["answer_probability"])
        answers, _ = self._answer([0.2, 0.6, 0.1, 0.1], units=units, **options)
        self.assertEqual(
            (1, b"yes"), (answers["answer_type"], answers["answer"])
        )

    @parameterized.parameters(
        (False, 0.5, "Brno", 0.9 * 0.5),
        (True, 0.5, "big", 0.9 * 0.25),
        (True, 0.2, "Brno", 0.9 * 0.5),
        # No unit reaches the threshold, so the most probable unit, the title,
        # gives the answer.
        (True, 0.95, "Brno", 0.9 * 0.2),
    )
    def test_answer_in_evidence(self, wanted, threshold, text, probability):
        answers, prediction = self._answer(
            [0.9, 0.0, 0.0, 0.1],
            answer_in_evidence=wanted,
            evidence_threshold=threshold,
        )
        self.assertEqual(text, prediction["answer"])
        self.assertAllClose(probability, answers["answer_probability"])

    # The units compared have span scores of -1 and -2, and fact probabilities
    # of `fact` and 0.6.
    @parameterized.parameters(
        (0.25, "Brno", 0.9 * 0.5), (0.2, "big", 0.9 * 0.25)
    )
    def test_multiply_fact_probability(self, fact, text, probability):
        answers, prediction = self._answer(
            [0.9, 0.0, 0.0, 0.1], fact, multiply_fact_probability=True
        )
        self.assertEqual(text, prediction["answer"])
        self.assertAllClose(probability, answers["answer_probability"])

    def test_options_that_exclude_each_other(self):
        with self.assertRaisesRegex(
            UserError, "answer_in_evidence and task.multiply_fact_probability"
        ):
            self._answer(
                [0.9, 0.0, 0.0, 0.1],
                multiply_fact_probability=True,
                answer_in_evidence=True,
            )

    @parameterized.parameters(
        (Selected(((0, 1),)), 1.0, 1.0),
        # Gold evidence is given as text, or as a whole paragraph.
        (Selected((), ("Is it big?",)), 1.0, 1.0),
        (Selected(((0, -1),)), 1.0, 0.5),
        (Selected((), ("Žán is in Brno.",)), 0.0, 0.0),
        (Selected(), 0.0, 0.0),
    )
    def test_evidence(self, right, precision, recall):
        """The predicted evidence is the second sentence."""
        answers, prediction = self._answer([0.9, 0.0, 0.0, 0.1])
        self.assertAllClose([0.3, 0.6], answers["unit_probabilities"])
        scores = question_answering.score(
            {"a": prediction}, {"a": Gold(("Brno",), right)}
        )
        self.assertEqual(1.0, scores["exact_match"])
        self.assertEqual(
            (precision, recall),
            (scores["evidence_precision"], scores["evidence_recall"]),
        )


class LossTest(tf.test.TestCase):
    def test_labels_are_the_first_places(self):
        fields = {
            name: tf.ragged.constant([[1, 4, 6], []], tf.int32)
            for name in ("answer_begins", "answer_ends")
        }
        for options, expected in (
            ({}, [[1, 4, 6] + [-1] * 5, [-1] * 8]),
            ({"answer_places": 2}, [[1, 4], [-1, -1]]),
        ):
            model = TASK.make_model(TASK.model_options(**options))
            labels = model.labels({}, dict(fields))
            for name in ("answer_begin", "answer_end"):
                self.assertAllEqual(expected, labels[name])


if __name__ == "__main__":
    tf.test.main()
