import copy
import gc
import json
import os
import pathlib
import pickle
import resource
import tempfile
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import tensorflow as tf

import etcmodel
from etcmodel.engine import export
from etcmodel.engine import train
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.estimators import estimator
from etcmodel.estimators import predictors
from etcmodel.serving import exported
from etcmodel.training import runs
from testing.own_documents import ONE_PLAIN_LAYER
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
    """Tests the whole API with one small trained model."""

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

    def test_predictions_equal_the_command(self):
        """Compares predictions in Python with those of the command `predict`.

        Predicts rows and texts, and uses a saved run and a SavedModel.
        """
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
            etcmodel.load(saved_model).predict(_ROWS, progress=False),
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
        with self.assertRaisesRegex(UserError, "exists and is not empty"):
            self.model.save(run)

    def test_export_formats(self):
        with mock.patch.object(predictors.export_lib, "export") as export:
            self.model.export("there", format="onnx")
        options = export.call_args.args[0]
        self.assertEqual(
            ("there", "onnx"), (options.output_dir, options.format)
        )

    def test_explain(self):
        found = self.model.explain(_ROWS[0])
        (predicted, gold) = found.map.answers
        self.assertIn(self.predictions[0]["label"], predicted[1])
        self.assertEqual("Gold answer", gold[0])
        path = os.path.join(self.folder, "map.html")
        found.save(path)
        with open(path, encoding="utf-8") as stream:
            self.assertIn(json.dumps(found.map.title), stream.read())
        self.assertStartsWith(found._repr_html_(), "<iframe srcdoc=")
        few = self.model.explain(_ROWS[0]["body"], tokens=[1])
        self.assertLen(few.map.answers, 1)
        self.assertAllClose(
            found.reads(1, "Layer 1", "1"), few.reads(1, "Layer 1", "1")
        )
        with self.assertRaisesRegex(UserError, "no row for the node 0"):
            few.reads(0)

    def test_places_that_a_run_is_not_saved_to(self):
        run = self.model.model_dir
        before = sorted(os.listdir(run))
        for place, message in (
            (run, "and the model's run"),
            (os.path.dirname(run), "contains the model's run"),
            (os.path.join(run, "new"), "is in the run"),
            (os.path.join(run, "best_ckpt"), "is a part of"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self.model.save(place)
        for place in (run, os.path.dirname(run), f"{run}/best_ckpt"):
            with self.assertRaises(UserError):
                self.model.export(place, overwrite=True)
        self.assertEqual(before, sorted(os.listdir(run)))

    def test_run_is_saved_whole_or_not_at_all(self):
        """A limit on the size of files simulates a full disk."""
        folder = tempfile.mkdtemp(dir=self.folder)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with self.assertRaisesRegex(
                UserError, f"^{folder}/new cannot be written: .*large.*\\.$"
            ):
                self.model.save(os.path.join(folder, "new"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assertEmpty(os.listdir(folder))

    @staticmethod
    def vocab_file_of(run):
        return os.path.join(run, "vocab.txt")

    def test_fit_continues(self):
        """A second `fit` starts with the run's weights, labels and options."""
        run = pathlib.Path(self.folder, "first")
        self.model.save(run)
        model = etcmodel.load(run, text_field="body", label_field="town")
        with without_tracing():
            # A new model could not be trained on a single label.
            model.fit(
                _ROWS[:1],
                epochs=1,
                batch_size=1,
                learning_rate=1e-9,
                verbose=False,
            )
        found = model.predict([x["body"] for x in _ROWS], progress=False)
        for one, expected in zip(found, self.predictions, strict=True):
            self.assertAllClose(
                expected["probabilities"], one["probabilities"], 1e-5
            )
        self.assertNotEqual(str(run), model.model_dir)
        before, after = map(runs.read, (str(run), model.model_dir))
        self.assertEqual(before["records"], after["records"])
        options = runs.read_params(model.model_dir)["task"]["model"]
        self.assertEqual("max", options["pooling"])

    def test_other_labels(self):
        """With changed labels, the head is new; all other options are kept."""
        labels = ("brno", "oslo", "zlin")
        model = etcmodel.DocumentClassifier.from_pretrained(
            self.model.model_dir, labels=labels, text_field="body"
        )
        result = train.Result("run", "classify", 1, True, {}, {})
        with (
            mock.patch.object(estimator.preprocess, "preprocess") as read,
            mock.patch.object(
                estimator.processes, "train", return_value=result
            ) as run,
        ):
            model.fit(iter(["a"]), lora_rank=2)
        options = read.call_args.args[0]
        self.assertIsNone(options.like)
        expected = {"long_length": 16, "global_length": 8}
        expected["labels"] = [*labels]
        expected |= {"units": "sentences", "text_field": "body"}
        self.assertEqual(
            expected, {x: options.task_options[x] for x in expected}
        )
        self.assertNotIn("label_kind", options.task_options)
        for options, expected in (
            ({"labels": ("brno", "oslo"), "label_kind": "auto"}, False),
            ({"labels": None, "label_kind": "multiple"}, True),
        ):
            other = etcmodel.load(self.model.model_dir, **options)
            self.assertEqual(expected, other._has_other_labels())
        options = run.call_args.args[0]
        self.assertStartsWith(options.init_checkpoint, self.model.model_dir)
        self.assertEqual(2, options.lora_rank)

    def test_options_after_training(self):
        """Some options apply at once; others raise errors until `fit`."""
        run = self.model.model_dir
        text = [_ROWS[0]["body"]]
        model = etcmodel.DocumentClassifier.from_pretrained(
            run,
            threshold=np.float32(0.25),
            long_length=32,
            labels=("brno", "oslo"),
        )
        self.assertLen(model.predict(text, progress=False), 1)
        self.assertEqual(32, model._load().sizes["long_length"])
        saved_model, saved_run = (
            os.path.join(self.folder, x) for x in ("with_options", "changed")
        )
        model.export(saved_model)
        used = exported.read_metadata(saved_model)
        self.assertEqual(0.25, used["options"]["threshold"])
        self.assertEqual(32, used["preprocessing_config"]["long_length"])
        model.save(saved_run)
        before, after = map(runs.read_params, (run, saved_run))
        before["task"]["threshold"] = 0.25
        before["task"]["model"]["long_length"] = 32
        self.assertEqual(before, after)
        # The next `fit` keeps the longer input.
        self.assertEqual(32, etcmodel.load(saved_run)._reading()["long_length"])
        for source, options, message in (
            (run, {"pooling": "mean"}, "pooling.*has 'max'.*Call `fit`"),
            (run, {"labels": ["a", "b"]}, r"labels=.*'brno'.*Call `fit`"),
            (run, {"treshold": 0.25}, "no option 'treshold'"),
            (saved_model, {"threshold": 0.5}, "threshold.*0.25.*the run"),
            (saved_model, {"pooling": "cls"}, "pooling.*the run"),
        ):
            with self.assertRaisesRegex(UserError, message):
                etcmodel.load(source, **options).predict(text, progress=False)
        same = {"threshold": 0.25, "long_length": 32, "labels": None}
        same["units"] = "auto"
        model = etcmodel.load(saved_model, **same)
        self.assertLen(model.predict(text, progress=False), 1)

    def test_a_run_is_kept_while_it_is_used(self):
        """A model that uses another model's temporary run keeps it on disk."""
        for make in (
            etcmodel.DocumentClassifier.from_pretrained,
            etcmodel.load,
        ):
            first = etcmodel.DocumentClassifier()
            path = first._path("run")
            self.model.save(path)
            second = make(path)
            del first
            gc.collect()
            self.assertTrue(os.path.exists(path))
            del second
            gc.collect()
            self.assertFalse(os.path.exists(path))

    def test_copies_would_lose_the_weights(self):
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with self.assertRaisesRegex(
                UserError, "with `etcmodel.load`; after"
            ):
                call(self.model)

    def test_evaluate(self):
        right = [
            prediction["label"] == row["town"]
            for prediction, row in zip(self.predictions, _ROWS, strict=True)
        ]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            metrics = self.model.evaluate(_ROWS, progress=False)
            is_majority = metrics["accuracy"] <= metrics["majority_accuracy"]
            self.assertLen(caught, int(is_majority))
            others = [{"body": "brno", "town": x} for x in ("zlin", "oslo")]
            self.model.evaluate(others, progress=False)
        self.assertAllClose(sum(right) / len(right), metrics["accuracy"])
        unknown = "Labels that are not in the training data: 1."
        (warning,) = [x for x in caught if unknown in str(x.message)]
        self.assertEqual(__file__, warning.filename)


class KindsTest(tf.test.TestCase):
    """Trains on several labels per document, numbers, and non-string labels."""

    def _learn(self, oslo, brno):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        rows = [
            {"text": f"{town} is big . it is", "label": label}
            for town, label in (("oslo", oslo), ("brno", brno)) * 4
        ]
        model = etcmodel.DocumentClassifier.from_pretrained(
            "tiny",
            vocab_file=write_test_vocab(folder, "brno oslo is big it ."),
            long_length=16,
            global_length=8,
        )
        with without_tracing():
            model.fit(
                rows,
                epochs=10,
                batch_size=8,
                learning_rate=0.05,
                seed=1,
                verbose=False,
                params=ONE_PLAIN_LAYER,
            )
        self.model = model
        found = model.predict(["oslo is big", "brno is big"], progress=False)
        return model.evaluate(rows, progress=False), found

    def test_numbers(self):
        """Predictions beat the mean, which has a squared error of 100."""
        metrics, (oslo, brno) = self._learn(40.5, 20.5)
        self.assertLess(metrics["mean_squared_error"], 90)
        self.assertLess(brno["label"] + 1, oslo["label"])
        self.assertBetween(brno["label"], 15, 46)
        self.assertBetween(oslo["label"], 15, 46)

    def test_labels_of_other_types(self):
        """Predicted labels keep their types, even when saved or exported."""
        metrics, found = self._learn(3, np.int64(7))
        # Metrics count no label as unknown.
        self.assertGreaterEqual(metrics["accuracy"], 0.5)
        run, saved_model = (
            os.path.join(self.get_temp_dir(), x) for x in ("run", "exported")
        )
        self.model.save(run)
        self.model.export(saved_model)
        text = ["oslo is big", "brno is big"]
        for model in (self.model, *map(etcmodel.load, (run, saved_model))):
            self.assertEqual([3, 7], model.labels)
            self.assertIn("labels='[3, 7]'", repr(model))
            again = model.predict(text, progress=False)
            for one, other in zip(found, again, strict=True):
                self.assertIs(int, type(other["label"]))
                self.assertIn(other["label"], (3, 7))
                self.assertEqual([3, 7], [*other["probabilities"]])
                self.assertAllClose(
                    one["probabilities"], other["probabilities"], 1e-5
                )

    def test_several_labels(self):
        metrics, (oslo, brno) = self._learn(["north", "town"], ["town"])
        self.assertEqual(1.0, metrics["exact_match"])
        self.assertEqual(["north", "town"], oslo["label"])
        self.assertEqual(["town"], brno["label"])


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

    def test_export_has_the_options_of_the_command(self):
        model = self._make()
        model.model_dir = "run"
        options = {
            "overwrite": True,
            "weights": "int8",
            "validation_data": "dev",
            "tolerance": 0.5,
            "license": "mit",
            "language": ["en"],
        }
        place = pathlib.Path("out")
        with (
            mock.patch.object(model, "_overrides", return_value={}),
            mock.patch.object(export, "export") as exported_with,
        ):
            model.export(place, **{**options, "language": ("en",)})
        exported_with.assert_called_once_with(
            export.Options(model_dir="run", output_dir="out", **options)
        )

    def test_records(self):
        model = self._make()
        with self.assertRaisesRegex(UserError, r"Give \[text\]"):
            model._read("one text", "predict")
        with self.assertRaisesRegex(UserError, "Give only one of them"):
            model.fit([], validation=[], validation_fraction=0.5)
        with self.assertRaisesRegex(UserError, "record 0.*'selected'"):
            model.fit([{"text": "a"}], verbose=False)

    def test_values_of_unused_fields(self):
        """Values of unused fields may have any type."""
        rows = [{"text": "a \ud83d", "n": [float("inf")], "at": {1}}]
        model = self._make()
        with mock.patch.object(model, "_load") as loaded:
            loaded.return_value.sizes = {}
            loaded.return_value.has_queries = False
            (record,) = model._read(rows, "predict")
        self.assertEqual((("a \ud83d",),), record.paragraphs)
        with self.assertRaisesRegex(UserError, "'text'.*of type object"):
            self._make().fit([{"text": object(), "selected": [0]}])

    def test_collections_of_strings(self):
        """Strings are documents in the model's `text_field`."""
        model = etcmodel.DocumentClassifier(text_field="body")
        with mock.patch.object(model, "_load") as loaded:
            loaded.return_value.sizes = {}
            loaded.return_value.has_queries = False
            for source in (["a"], iter(["a"]), pd.Series(["a"])):
                (record,) = model._read(source, "predict")
                self.assertEqual((("a",),), record.paragraphs)

    def test_records_without_a_prediction(self):
        """A bad record does not affect the predictions for other records."""
        model = etcmodel.DocumentClassifier()

        def predictions(records, *_):
            for record in records:
                label = record.paragraphs[0][0]
                yield record, {"label": label, "probabilities": {}}

        with (
            mock.patch.object(model, "_load") as loaded,
            mock.patch.object(model, "_predictions", predictions),
        ):
            loaded.return_value.sizes = {}
            loaded.return_value.has_queries = False
            with self.assertWarnsRegex(UserWarning, "prediction: 2.*record 1"):
                found = model.predict(["a", "", "b", {"text": {"c": 1}}])
            self.assertEqual(
                [
                    {"id": "0", "label": "a", "probabilities": {}},
                    {"id": "2", "label": "b", "probabilities": {}},
                ],
                found[::2],
            )
            for error, message in zip(
                found[1::2],
                ("it has no text", "expected a string"),
                strict=True,
            ):
                self.assertIsInstance(error, RecordError)
                self.assertRegex(str(error), message)
                # The message does not mention a flag of a command.
                self.assertNotIn("--", str(error))
            with self.assertRaisesRegex(
                RecordError, "record 1 .*, field 'text'"
            ):
                model.predict(["a", ""], on_error="raise")
            with self.assertRaisesRegex(UserError, "on_error='skip': expect"):
                model.predict(["a"], on_error="skip")

    def test_strings_for_lists_of_texts(self):
        """A string counts as one text, with a single warning."""
        model = etcmodel.SentenceSelector()
        with mock.patch.object(model, "_load") as loaded:
            loaded.return_value.sizes = {"units": "texts"}
            loaded.return_value.has_queries = False
            model.options = {"units": "auto"}
            lists = [{"text": [["a .", "b ."]], "selected": [[0, 1]]}]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                # If all values are lists, there is no warning.
                self.assertLen(list(model._read(lists, "dev")), 1)
                self.assertEmpty(caught)
                list(model._read([*lists, "a . b .", "c"], "predict"))
        (warning,) = caught
        self.assertIn("record 1 is a string, which", str(warning.message))

    def test_records_without_query(self):
        """Records without a query cause one warning if training had queries."""
        rows = [{"text": "a", "query": "b"}, {"text": "a"}, {"text": "a"}]
        for had_queries in (False, True):
            model = etcmodel.SentenceSelector()
            with (
                mock.patch.object(model, "_load") as loaded,
                warnings.catch_warnings(record=True) as caught,
            ):
                warnings.simplefilter("always")
                loaded.return_value.sizes = {}
                loaded.return_value.has_queries = had_queries
                list(model._read(rows[:1], "predict"))
                self.assertEmpty(caught)
                list(model._read(rows, "predict"))
            self.assertLen(caught, int(had_queries))
        self.assertIn("but record 1 has none", str(caught[0].message))

    def test_saved_model(self):
        with self.assertRaisesRegex(
            UserError, "a SavedModel cannot be trained"
        ):
            etcmodel.DocumentClassifier().fit([])

    def test_no_run(self):
        with self.assertRaisesRegex(UserError, "not the directory of a run"):
            etcmodel.load(self._folder())

    def test_repr(self):
        model = self._make(long_length=32)
        self.assertEqual(
            "SentenceSelector(task='select', state='not trained', "
            "weights='tiny', long_length=32)",
            repr(model),
        )
        self.assertIn("<th>long_length</th><td>32</td>", model._repr_html_())

    def test_labels_as_an_option(self):
        model = etcmodel.DocumentClassifier(labels=np.array([4, 5]))
        self.assertEqual([4, 5], model.labels)
        self.assertEqual(["4", "5"], model._reading()["labels_as_json"])
        self.assertEqual(
            [True, "b"], etcmodel.DocumentClassifier(labels=[True, "b"]).labels
        )
        self.assertEmpty(etcmodel.DocumentClassifier().labels)

    def test_values_are_checked_at_once(self):
        for options, message in (
            ({"poolin": "max"}, "no option 'poolin'. Did you mean pooling"),
            ({"long_length": 0}, "`long_length` is 0"),
            ({"threshold": "high"}, "`threshold` is 'high'"),
            ({"labels": "ab"}, "`labels` is 'ab', but must be a list"),
            ({"labels": [1, [2]]}, r"`labels` is \[2\], but must be a string"),
            ({"pooling": "men"}, "`pooling` is 'men'.*one of mean, max, cls"),
        ):
            with self.assertRaisesRegex(UserError, message):
                etcmodel.DocumentClassifier(**options)
        for call in (
            etcmodel.load,
            etcmodel.DocumentClassifier.from_pretrained,
        ):
            with self.assertRaisesRegex(UserError, "Did you mean pooling"):
                call("tiny", poolin="max")
        with self.assertRaisesRegex(UserError, "Did you mean epochs"):
            self._make().fit([], epoch=3)
        with self.assertRaisesRegex(UserError, "Did you mean 'tiny'"):
            etcmodel.DocumentClassifier.from_pretrained("tniy")
        with self.assertRaisesRegex(UserError, "`verbose` is 3"):
            self._make().fit([], verbose=3)


if __name__ == "__main__":
    tf.test.main()
