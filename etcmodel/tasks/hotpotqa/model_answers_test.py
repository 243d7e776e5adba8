"""From HotpotQA's logits to answers: evaluation and serving."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.hotpotqa import metrics
from etcmodel.feature_utils.etc_features import FEATURES
from etcmodel.models import EtcConfig
from etcmodel.pipeline.record_keys import record_keys
from etcmodel.serving import signatures
from etcmodel.tasks.hotpotqa.preprocessor import HotpotQAPreprocessor
from etcmodel.tasks.hotpotqa.task import TASK
from etcmodel.tasks.hotpotqa.task import HotpotQAOptions
from etcmodel.training import evaluation
from testing.conformance.cases import randomize
from testing.span_answers import inputs_of
from testing.span_answers import random_batch
from testing.span_answers import reference_answer
from testing.span_answers import reference_facts
from testing.tasks import write_test_vocab


class ScoreTest(tf.test.TestCase, parameterized.TestCase):
    """The official metrics, by way of thresholds."""

    def _score(self, model, chosen, records):
        """The metrics of records with one row each."""
        batch = {
            **{name: np.array(x) for name, x in chosen.items()},
            "record": record_keys([record.id for record in records]).numpy(),
            "window": np.zeros([len(records)], np.int32),
            "weight": np.ones([len(records)], np.float32),
        }
        schema = HotpotQAPreprocessor.SCHEMA
        return evaluation.score(TASK, model, schema, [batch], records)

    @parameterized.parameters("span", "bio")
    def test_all_thresholds(self, encoding):
        """Random records, in plain Python."""
        records, logits = random_batch(8, encoding)
        titles = ["A", "B", "C"]
        # Those of the paper.
        thresholds = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
        answers, facts = {}, {}
        for threshold in thresholds:
            answers[threshold], facts[threshold] = {}, {}
            for i, record in enumerate(records):
                _, text, _ = reference_answer(logits, i, record, threshold, 3)
                answers[threshold][str(i)] = text.decode()
                facts[threshold][str(i)] = [
                    (titles[paragraph], sentence)
                    for (paragraph, sentence), probability in reference_facts(
                        logits, i, record
                    ).items()
                    if probability >= threshold
                ]
        model = TASK.make_model(options=HotpotQAOptions(max_answer_length=3))
        features, context, _ = inputs_of(records)
        chosen = model.select_candidates(logits, features, context)
        best = set()
        for right in (0.1, 0.4, 0.7):
            # As if what is predicted at this threshold were right.
            gold = {
                key: (answer, facts[right][key])
                for key, answer in answers[right].items()
            }
            results = {
                x: metrics.evaluate(answers[x], facts[x], gold)
                for x in thresholds
            }
            # The best one, and the nearest to 0.5 of several.
            threshold = max(
                thresholds,
                key=lambda x: (results[x]["joint_f1"], -abs(x - 0.5)),
            )
            best.add(threshold)
            self.assertAllClose(
                {**results[threshold], "supporting_fact_threshold": threshold},
                self._score(
                    model,
                    chosen,
                    [
                        evaluation.StoredRecord(
                            str(i),
                            {
                                "units": record["units"],
                                "paragraph_sizes": record["sizes"],
                                "titles": titles,
                            },
                            gold[str(i)],
                        )
                        for i, record in enumerate(records)
                    ],
                ),
            )
        self.assertLen(best, 3)

    def _hand_made(self):
        """What was chosen in two records, and the records.

        The first one's answer is "town" up to the threshold 0.5, and the right
        one above. Its only fact is the only one predicted from 0.6 to 0.8.
        """
        chosen = {
            "answer_type_probabilities": [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]],
            "global_units": [
                [-1, -1, 0, 1, 2, 3, -1],
                [-1, -1, 0, 1, -1, 2, 3],
            ],
            # The third unit of the first record is empty.
            "fact_probabilities": [
                [-1.0, -1.0, 0.95, 0.55, 0.95, 0.85, -1.0],
                [-1.0, -1.0, 0.0, 0.9, -1.0, 0.0, 0.9],
            ],
            # The title has no span; nor has what is empty.
            "scores": [
                [-1e9, -1e9, -1e9, -1.0, -1e9, -2.0, -1e9],
                [-1e9] * 7,
            ],
            "probabilities": [[0.5] * 7] * 2,
            "starts": [[-1, -1, -1, 2, -1, 6, -1], [-1] * 7],
            "ends": [[-1, -1, -1, 6, -1, 14, -1], [-1] * 7],
        }
        return {
            name: np.array(
                value,
                np.int32
                if name in ("global_units", "starts", "ends")
                else np.float32,
            )
            for name, value in chosen.items()
        }, [
            evaluation.StoredRecord(
                "first",
                {
                    "units": [
                        "Bâle".encode(),
                        b"A town.",
                        b"",
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
        ]

    def test_metrics(self):
        """One fact of two, and an answer with a word too many."""
        chosen, records = self._hand_made()
        chosen["fact_probabilities"][1, 6] = 0.2
        chosen["starts"][0, 5] = 1
        # "né Émile X" has a precision of 2/3 and a recall of 1; and, above
        # 0.5, all facts are right but that one.
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
            self._score(TASK.make_model(), chosen, records),
        )

    # The spans of both sentences have the scores -1 and -2; the second sentence
    # is the only one above the threshold.
    @parameterized.parameters(
        (0.35, False, 1.0), (0.35, True, 0.5), (0.3, True, 1.0)
    )
    def test_multiply_fact_probability(self, probability, is_product, em):
        """0.85 times exp(-2) is 0.3127 times exp(-1)."""
        chosen, records = self._hand_made()
        chosen["fact_probabilities"][0, 3] = probability
        options = HotpotQAOptions(0.5, multiply_fact_probability=is_product)
        result = self._score(TASK.make_model(options=options), chosen, records)
        self.assertEqual(em, result["em"])

    @parameterized.parameters(0.0, 0.3, 0.6, 0.7, 1.0)
    def test_threshold(self, threshold):
        """A fact has at least that probability; an empty one is none."""
        chosen, records = self._hand_made()
        # Just too little for "A town."; enough for what is empty, and the fact.
        chosen["fact_probabilities"][0, 3] = threshold - 0.001
        chosen["fact_probabilities"][0, 4:6] = max(threshold, 1e-6)
        chosen["fact_probabilities"][1, [3, 6]] = 1.0
        result = self._score(TASK.make_model(), chosen, records)
        self.assertAllClose(1.0, result["joint_em"])
        self.assertEqual(threshold, result["supporting_fact_threshold"])


# The second has less of everything, the third has no text at all.
_REQUEST = {
    "question": ["where is jan ?", "city", ""],
    "titles": [["Jan", "Rome"], ["\u00d6sl\u00f6", ""], ["", ""]],
    "sentences": [
        [["Jan is in ROME.", "", " He is."], ["Rome is a city.", "", ""]],
        [["\u00d6sl\u00f6 is \u65e5\u672c.", "", ""], ["", "", ""]],
        [["", "", ""], ["", "", ""]],
    ],
}


def _simple_model(task_model, vocab_size):
    """The head on what tokens and their neighbours are."""
    inputs = {name: tf.keras.Input([None], name=name) for name in FEATURES}
    outputs = {}
    for kind in ("long", "global"):
        embedded = tf.keras.layers.Embedding(
            vocab_size, 8, name=f"{kind}_embedding"
        )(inputs[f"{kind}_token_ids"])
        outputs[f"{kind}_output"] = tf.keras.layers.Conv1D(
            8, 5, padding="same", name=f"{kind}_mix"
        )(embedded)
    head = task_model.head(EtcConfig.from_preset("tiny"))
    model = tf.keras.Model(inputs, head(outputs, inputs))
    randomize(model, seed=8)
    # It does not answer "yes" or "no".
    layer = model.get_layer("output_layer")
    layer.answer_type.bias.assign([50.0, 0.0, 0.0])
    return model


class ServingTest(tf.test.TestCase):
    def test_raw_text(self):
        vocab_file = write_test_vocab(
            self.get_temp_dir(),
            "where is jan ? city rome oslo in he . a \u65e5 \u672c",
        )
        preprocessor = TASK.make_preprocessor(
            TASK.preprocessing_config_class(40, 20), vocab_file
        )
        task_model = TASK.make_model(
            options=HotpotQAOptions(0.2, max_answer_length=3)
        )
        model = _simple_model(task_model, preprocessor.tokenizer.vocab_size)
        module, _ = signatures.make_serving_module(
            model, preprocessor, task_model
        )
        serve = module.signatures()["serving_default"]
        inputs = {name: tf.constant(x) for name, x in _REQUEST.items()}
        made = preprocessor(**inputs)
        logits = {
            name: x.numpy() for name, x in model(made.layout.features).items()
        }
        # What the reference takes.
        columns = {
            "types": made.layout.features["long_token_type_ids"],
            "sentences": made.layout.features["long_sentence_ids"],
            "starts": made.context["long_starts"],
            "ends": made.context["long_ends"],
            "cuts": made.context["long_word_cuts"],
            "global_units": made.context["global_units"],
            "units": made.text["units"],
            "sizes": made.text["paragraph_sizes"],
        }
        records = [
            {name: x[i].numpy().tolist() for name, x in columns.items()}
            for i in range(3)
        ]
        # As much padding as there must be, and more.
        for more in (0, 2):
            paddings = [[0, 0], [0, more], [0, 2 * more]]
            outputs = serve(
                question=inputs["question"],
                titles=tf.pad(inputs["titles"], paddings[:2]),
                sentences=tf.pad(inputs["sentences"], paddings),
            )
            expected = np.zeros([3, 2 + more, 3 + 2 * more])
            for i, record in enumerate(records):
                kind, text, probability = reference_answer(
                    logits, i, record, 0.2, 3
                )
                self.assertEqual(kind, outputs["answer_type"][i])
                self.assertEqual(text, outputs["answer"][i])
                # As it stands in the text, not as in the vocabulary.
                self.assertIn(text.decode(), str(_REQUEST["sentences"][i]))
                self.assertAllClose(
                    probability, outputs["answer_probability"][i]
                )
                for place, fact in reference_facts(logits, i, record).items():
                    expected[(i, *place)] = fact
            found = outputs["supporting_fact_probabilities"].numpy()
            self.assertAllClose(expected, found)
            # Any sentence with text can be a fact, and nothing else.
            self.assertAllEqual(
                np.array(_REQUEST["sentences"]) != "", found[:, :2, :3] > 0
            )


if __name__ == "__main__":
    tf.test.main()
