"""Tests of the model: labels, decoding, predictions and official metrics."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.tasks.hotpotqa.preprocessor import HotpotQAPreprocessor
from etcmodel.tasks.hotpotqa.task import TASK
from etcmodel.tasks.hotpotqa.task import HotpotQAModelOptions
from etcmodel.tasks.hotpotqa.task import HotpotQAOptions
from etcmodel.training import evaluation


class LabelsTest(tf.test.TestCase):
    """Uses three records: an answer that occurs twice, "yes", and no answer."""

    FIELDS = {
        "supporting_facts": np.array([[-1, 1, 0], [-1, 0, 1], [-1, -1, -1]]),
        "answer_type": np.array([0, 1, 0]),
    }

    def _check(self, encoding, **expected):
        model = TASK.make_model(HotpotQAModelOptions(encoding))
        labels = model.labels(
            {
                "long_token_ids": np.full([3, 6], 7),
                "long_token_type_ids": np.array([[1, 2, 2, 3, 1, 1]] * 3),
                "long_sentence_ids": np.array([[-1, 1, 1, 2, 3, 3]] * 3),
            },
            {
                **self.FIELDS,
                "answer_begins": tf.ragged.constant([[1, 4], [], []], tf.int32),
                "answer_ends": tf.ragged.constant([[2, 4], [], []], tf.int32),
            },
        )
        self.assertEqual({*self.FIELDS, *expected}, {*labels})
        for name, value in {**self.FIELDS, **expected}.items():
            self.assertAllEqual(value, labels[name], name)

    def test_span_labels_are_the_first_occurrence(self):
        self._check(
            "span",
            answer_begin=[[1], [-1], [-1]],
            answer_end=[[2], [-1], [-1]],
        )

    def test_bio_labels_are_all_occurrences(self):
        self._check(
            "bio",
            answer_bio=[[2, 0, 1, 2, 0, 2], [2] * 6, [2] * 6],
            is_answer_token=[[False, True, True, False, True, True]] * 3,
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


class PredictTest(tf.test.TestCase, parameterized.TestCase):
    def _predict(self, threshold, answer=b"Moravia"):
        answers = {
            "answer": answer,
            # A record of two paragraphs, padded to three paragraphs.
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
        # Cut, empty and padding sentences have the probability 0 and are never
        # facts.
        (0.0, [("Jan", 0), ("Jan", 1), ("Brno", 0)]),
    )
    def test_facts(self, threshold, expected):
        self.assertEqual(("Moravia", expected), self._predict(threshold))

    def test_answers_in_utf8(self):
        for answer, expected in (
            ("\u00e9".encode(), "\u00e9"),
            (b"\xc3", "\ufffd"),
        ):
            self.assertEqual(expected, self._predict(0.5, answer)[0])


class ScoreTest(tf.test.TestCase, parameterized.TestCase):
    """Tests decoding and the official metrics on two records.

    The first record's answer is "town" up to the threshold 0.5, and the gold
    answer above it. With thresholds from 0.6 to 0.8, exactly its one gold fact
    is predicted.
    """

    RECORDS = (
        evaluation.StoredRecord(
            "first",
            {
                "units": [
                    *["Bâle".encode(), b"A town.", b""],
                    " né: Émile X".encode(),
                ],
                "paragraph_sizes": [4],
                "titles": ["Bâle"],
            },
            ("the Émile X.", [("Bâle", 2)]),
        ),
        evaluation.StoredRecord(
            "second",
            {
                "units": [b"Q", b"One two.", b"R", b"Three."],
                "paragraph_sizes": [2, 2],
                "titles": ["Q", "R"],
            },
            ("yes", [("Q", 0), ("R", 0)]),
        ),
    )

    def setUp(self):
        super().setUp()
        self.chosen = {
            "answer_type_probabilities": np.array(
                [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], np.float32
            ),
            "global_units": np.array(
                [[-1, -1, 0, 1, 2, 3, -1], [-1, -1, 0, 1, -1, 2, 3]], np.int32
            ),
            # The third unit of the first record is empty.
            "fact_probabilities": np.array(
                [
                    [-1.0, -1.0, 0.95, 0.55, 0.95, 0.85, -1.0],
                    [-1.0, -1.0, 0.0, 0.9, -1.0, 0.0, 0.9],
                ],
                np.float32,
            ),
            # Titles and empty units have no spans.
            "scores": np.array(
                [[-1e9, -1e9, -1e9, -1, -1e9, -2, -1e9], [-1e9] * 7], np.float32
            ),
            "probabilities": np.full([2, 7], 0.5, np.float32),
            "starts": np.array(
                [[-1, -1, -1, 2, -1, 6, -1], [-1] * 7], np.int32
            ),
            "ends": np.array([[-1, -1, -1, 6, -1, 14, -1], [-1] * 7], np.int32),
        }

    def _score(self, *options, **more):
        batch = {
            **self.chosen,
            "record": record_keys([x.id for x in self.RECORDS]).numpy(),
            "window": np.zeros([2], np.int32),
            "weight": np.ones([2], np.float32),
        }
        return evaluation.score(
            TASK,
            TASK.make_model(options=HotpotQAOptions(*options, **more)),
            HotpotQAPreprocessor.SCHEMA,
            [batch],
            self.RECORDS,
        )

    def test_metrics(self):
        """The first record's answer has an extra word, the second lacks a fact.

        "né Émile X" has a precision of 2/3 and a recall of 1. Above the
        threshold 0.5, all predicted facts are correct.
        """
        self.chosen["fact_probabilities"][1, 6] = 0.2
        self.chosen["starts"][0, 5] = 1
        self.assertAllClose(
            {
                "em": 0.5,
                "f1": (0.8 + 1.0) / 2,
                "prec": (2 / 3 + 1.0) / 2,
                "recall": 1.0,
                "sp_em": 0.5,
                "sp_f1": (1.0 + 2 / 3) / 2,
                "sp_prec": 1.0,
                "sp_recall": (1.0 + 0.5) / 2,
                "joint_em": 0.0,
                "joint_f1": (0.8 + 2 / 3) / 2,
                "joint_prec": (2 / 3 + 1.0) / 2,
                "joint_recall": (1.0 + 0.5) / 2,
                "supporting_fact_threshold": 0.6,
            },
            self._score(),
        )

    # The spans of both sentences have the scores -1 and -2; only the second
    # sentence is above the threshold. 0.85 * exp(-2) is 0.3127 * exp(-1).
    @parameterized.parameters(
        (0.35, False, 1.0), (0.35, True, 0.5), (0.3, True, 1.0)
    )
    def test_multiply_fact_probability(self, probability, is_product, em):
        self.chosen["fact_probabilities"][0, 3] = probability
        result = self._score(0.5, multiply_fact_probability=is_product)
        self.assertEqual(em, result["em"])

    @parameterized.parameters(0.0, 0.3, 0.6, 0.7, 1.0)
    def test_chooses_the_best_threshold(self, threshold):
        """Selects facts by the threshold; empty sentences are never facts."""
        facts = self.chosen["fact_probabilities"]
        facts[0, 3] = threshold - 0.001
        facts[0, 4:6] = max(threshold, 1e-6)
        facts[1, [3, 6]] = 1.0
        result = self._score()
        self.assertAllClose(1.0, result["joint_em"])
        self.assertEqual(threshold, result["supporting_fact_threshold"])

    def test_probabilities_have_the_shape_of_the_request(self):
        text = {
            "units": tf.ragged.constant(
                [x.text["units"] for x in self.RECORDS]
            ),
            "paragraph_sizes": tf.ragged.constant(
                [x.text["paragraph_sizes"] for x in self.RECORDS]
            ),
            "shape": tf.constant([3, 5]),
        }
        chosen = {name: tf.constant(x) for name, x in self.chosen.items()}
        answers = TASK.make_model().decode(chosen, tf.range(2), text)
        facts = answers["supporting_fact_probabilities"]
        self.assertAllClose([0.55, 0, 0.85, 0, 0], facts[0, 0])
        self.assertEqual([2, 3, 5], facts.shape)


if __name__ == "__main__":
    tf.test.main()
