import json
import os
import tempfile
from unittest import mock

import tensorflow as tf

import etcmodel
from etcmodel.api import estimators
from etcmodel.errors import UserError
from testing.tasks import run_cli
from testing.tasks import without_tracing
from testing.tasks import write_test_vocab

_TOWNS = ("brno", "oslo")
_ROWS = [
    {"id": str(i), "body": f"{_TOWNS[i % 2]} is big . it is", "town": town}
    for i, town in enumerate(_TOWNS * 4)
]
_OPTIONS = {
    "long_length": 16,
    "global_length": 8,
    "text_field": "body",
    "label_field": "town",
    "pooling": "max",
}


class ClassifierTest(tf.test.TestCase):
    """One small training, and all that can be done with it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.vocab_file = write_test_vocab(cls.folder, "brno oslo is big it .")
        cls.model = etcmodel.DocumentClassifier.from_pretrained(
            "tiny", vocab_file=cls.vocab_file, **_OPTIONS
        )
        with without_tracing():
            cls.model.fit(
                _ROWS,
                validation=_ROWS[:2],
                epochs=2,
                small=True,
                seed=1,
                verbose=False,
                params={"task.model.encoder.num_hidden_layers": 1},
            )
        cls.predictions = cls.model.predict(
            [x["body"] for x in _ROWS], batch_size=3, progress=False
        )

    def test_options_reach_the_run(self):
        with open(f"{self.model.model_dir}/etcmodel.json") as stream:
            config = json.load(stream)["records"]["preprocessing_config"]
        self.assertEqual(
            (16, 8, ["brno", "oslo"], "single"),
            tuple(
                config[x]
                for x in ("long_length", "global_length", "labels", "kind")
            ),
        )
        with open(f"{self.model.model_dir}/params.yaml") as stream:
            self.assertIn("pooling: max", stream.read())

    def test_predictions_are_those_of_the_command(self):
        """Of rows, of texts alone, of a saved run and a SavedModel."""
        input_file = os.path.join(self.folder, "rows.jsonl")
        with open(input_file, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in _ROWS)
        saved_model = os.path.join(self.folder, "saved_model")
        self.model.export(saved_model)
        output = os.path.join(self.folder, "predictions.jsonl")
        code, _, err = run_cli(
            "predict",
            f"--saved_model={saved_model}",
            f"--input={input_file}",
            f"--output={output}",
            "--text_field=body",
            "--label_field=town",
        )
        self.assertEqual((0, ""), (code, err))
        with open(output, encoding="utf-8") as stream:
            expected = [json.loads(line) for line in stream]
        run = os.path.join(self.folder, "run")
        self.model.save(run)
        for found in (
            self.predictions,
            self.model.predict(_ROWS, progress=False),
            etcmodel.load(saved_model).predict(
                [x["body"] for x in _ROWS], progress=False
            ),
            etcmodel.load(saved_model, text_field="body").predict(
                _ROWS, progress=False
            ),
        ):
            self.assertLen(found, len(_ROWS))
            for one, line in zip(found, expected, strict=True):
                self.assertEqual(line["label"], one["label"])
                self.assertAllClose(
                    line["probabilities"], one["probabilities"], 1e-5
                )
        loaded = etcmodel.load(run)
        self.assertIsInstance(loaded, etcmodel.DocumentClassifier)
        self.assertEqual(self.vocab_file_of(run), loaded._vocab_file)
        with self.assertRaisesRegex(UserError, "exists. Choose another"):
            self.model.save(run)

    @staticmethod
    def vocab_file_of(run):
        return os.path.join(run, "vocab.txt")

    def test_evaluate(self):
        right = [
            prediction["label"] == row["town"]
            for prediction, row in zip(self.predictions, _ROWS, strict=True)
        ]
        metrics = self.model.evaluate(_ROWS, progress=False)
        self.assertAllClose(sum(right) / len(right), metrics["accuracy"])


class ErrorsTest(tf.test.TestCase):
    def _folder(self):
        return self.enterContext(tempfile.TemporaryDirectory())

    def _make(self, **options):
        vocab_file = write_test_vocab(self._folder(), "a b")
        return etcmodel.SentenceSelector.from_pretrained(
            "tiny", vocab_file=vocab_file, **options
        )

    def test_options(self):
        with self.assertRaisesRegex(
            UserError, "no option 'pooling'. Choose from: lo"
        ):
            self._make(pooling="max")
        with self.assertRaisesRegex(UserError, "tiny has no vocabulary"):
            etcmodel.QuestionAnswerer.from_pretrained("tiny")

    def test_not_trained(self):
        model = self._make()
        for call in (
            lambda: model.predict(["a"]),
            lambda: model.save("somewhere"),
            lambda: model.export("somewhere"),
        ):
            with self.assertRaisesRegex(UserError, "Call `fit` first"):
                call()

    def test_records(self):
        model = self._make()
        with self.assertRaisesRegex(UserError, r"Give \[text\]"):
            model._read("one text", "predict")
        with self.assertRaisesRegex(UserError, "Give either `validation`"):
            model.fit([], validation=[], validation_fraction=0.5)
        with self.assertRaisesRegex(UserError, "record 0.*'selected'"):
            model.fit([{"text": "a"}], verbose=False)

    def test_no_run(self):
        with self.assertRaisesRegex(UserError, "not the directory of a run"):
            etcmodel.load(self._folder())

    def test_keras(self):
        """Training under Keras 3 would fail much later."""
        with mock.patch.object(tf.keras.layers.Layer, "__module__", "keras"):
            with self.assertRaisesRegex(UserError, "Set TF_USE_LEGACY_KERAS=1"):
                self._make().fit([])


class FriendlyTest(tf.test.TestCase):
    def test_units(self):
        from etcmodel.datasets.unit_positions import Unit

        self.assertEqual(
            [
                {
                    "paragraph": 1,
                    "number": 2,
                    "text": "a",
                    "probability": 0.25,
                    "is_selected": False,
                }
            ],
            estimators.SentenceSelector()._friendly(
                [Unit(1, 2, 0.25, False, "a")]
            ),
        )

    def test_evidence(self):
        from etcmodel.datasets.unit_positions import Unit

        units = [Unit(0, 1, 0.75, True, "a"), Unit(1, 0, 0.25, False, "b")]
        self.assertEqual(
            {"answer": "a", "evidence": [(0, 1)]},
            estimators.QuestionAnswerer()._friendly(
                {"answer": "a", "evidence": units}
            ),
        )


if __name__ == "__main__":
    tf.test.main()
