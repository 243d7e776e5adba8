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
from etcmodel.engine import train
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.estimators import estimators
from etcmodel.serving import exported
from etcmodel.training import runs
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
        """A limit of the files' size stands for a full disk."""
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

    def test_fit_goes_on(self):
        """Weights, labels and options are those of the run; no step counts."""
        run = pathlib.Path(self.folder, "first")
        self.model.save(run)
        model = etcmodel.load(run, text_field="body", label_field="town")
        with without_tracing():
            # One label alone would not do for a new model.
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
        """Other labels get a new head; other options are kept."""
        labels = ("brno", "oslo", "zlin")
        model = etcmodel.DocumentClassifier.from_pretrained(
            self.model.model_dir, labels=labels, text_field="body"
        )
        result = train.Result("run", "classify", 1, True, {}, {})
        with (
            mock.patch.object(estimators.preprocess, "preprocess") as read,
            mock.patch.object(
                estimators.processes, "train", return_value=result
            ) as run,
        ):
            model.fit(iter(["a"]))
        options = read.call_args.args[0]
        self.assertIsNone(options.like)
        expected = {"long_length": 16, "global_length": 8, "labels": labels}
        expected |= {"units": "sentences", "text_field": "body"}
        self.assertContainsSubset(
            expected.items(), options.task_options.items()
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

    def test_options_after_training(self):
        """Some hold at once, some after `fit`; none is ignored."""
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
        # What is learned from next is not shorter.
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

    def test_a_run_lives_as_long_as_it_is_used(self):
        """Also in another model's temporary directory."""
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
            self.assertEmpty(caught)
            others = [{"body": "brno", "town": x} for x in ("zlin", "oslo")]
            self.model.evaluate(others, progress=False)
        self.assertAllClose(sum(right) / len(right), metrics["accuracy"])
        (warning,) = caught
        self.assertEqual(__file__, warning.filename)
        self.assertIn(
            "Labels that are not in the training data: 1.", str(warning.message)
        )


class KindsTest(tf.test.TestCase):
    """Labels of other kinds: "oslo" and "brno" tell them."""

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
                params={"task.model.encoder.num_hidden_layers": 1},
            )
        found = model.predict(["oslo is big", "brno is big"], progress=False)
        return model.evaluate(rows, progress=False), found

    def test_numbers(self):
        """The mean alone has a squared error of 100."""
        metrics, (oslo, brno) = self._learn(40.5, 20.5)
        self.assertLess(metrics["mean_squared_error"], 90)
        self.assertLess(brno["label"] + 1, oslo["label"])
        self.assertBetween(brno["label"], 15, 46)
        self.assertBetween(oslo["label"], 15, 46)

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

    def test_records(self):
        model = self._make()
        with self.assertRaisesRegex(UserError, r"Give \[text\]"):
            model._read("one text", "predict")
        with self.assertRaisesRegex(UserError, "Give either `validation`"):
            model.fit([], validation=[], validation_fraction=0.5)
        with self.assertRaisesRegex(UserError, "record 0.*'selected'"):
            model.fit([{"text": "a"}], verbose=False)

    def test_rows_of_any_values(self):
        """What is not used may be anything; what is used is checked."""
        rows = [{"text": "a \ud83d", "n": [float("inf")], "at": {1}}]
        model = self._make()
        with mock.patch.object(model, "_load") as loaded:
            loaded.return_value.sizes = {}
            loaded.return_value.has_queries = False
            (record,) = model._read(rows, "predict")
        self.assertEqual((("a \ud83d",),), record.paragraphs)
        with self.assertRaisesRegex(UserError, "'text'.*of the type object"):
            self._make().fit([{"text": object(), "selected": [0]}])

    def test_strings_of_any_collection(self):
        """Strings are documents in the model's `text_field`."""
        model = etcmodel.DocumentClassifier(text_field="body")
        with mock.patch.object(model, "_load") as loaded:
            loaded.return_value.sizes = {}
            loaded.return_value.has_queries = False
            for source in (["a"], iter(["a"]), pd.Series(["a"])):
                (record,) = model._read(source, "predict")
                self.assertEqual((("a",),), record.paragraphs)

    def test_records_without_a_prediction(self):
        """A record that cannot be used leaves the others their predictions."""
        model = etcmodel.DocumentClassifier()

        def predictions(records, *_):
            for record in records:
                yield record, {"label": record.paragraphs[0][0]}

        with (
            mock.patch.object(model, "_load") as loaded,
            mock.patch.object(model, "_predictions", predictions),
        ):
            loaded.return_value.sizes = {}
            loaded.return_value.has_queries = False
            with self.assertWarnsRegex(UserWarning, "prediction: 2.*record 1"):
                found = model.predict(["a", "", "b", {"text": {"c": 1}}])
            self.assertEqual([{"label": "a"}, {"label": "b"}], found[::2])
            for error, message in zip(
                found[1::2],
                ("it has no text", "expected a string"),
                strict=True,
            ):
                self.assertIsInstance(error, RecordError)
                self.assertRegex(str(error), message)
                # No flag of a command.
                self.assertNotIn("--", str(error))
            with self.assertRaisesRegex(
                RecordError, "record 1 .*, field 'text'"
            ):
                model.predict(["a", ""], on_error="raise")
            with self.assertRaisesRegex(UserError, "on_error='skip': expect"):
                model.predict(["a"], on_error="skip")

    def test_strings_for_lists_of_texts(self):
        """Strings are not split into sentences; a warning says so once."""
        model = etcmodel.SentenceSelector()
        with mock.patch.object(model, "_load") as loaded:
            loaded.return_value.sizes = {"units": "texts"}
            loaded.return_value.has_queries = False
            model.options = {"units": "auto"}
            lists = [{"text": [["a .", "b ."]], "selected": [[0, 1]]}]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                # Positions of texts, which sentences would not have.
                self.assertLen(list(model._read(lists, "dev")), 1)
                self.assertEmpty(caught)
                list(model._read([*lists, "a . b .", "c"], "predict"))
        (warning,) = caught
        self.assertIn("as in record 1, for a single text", str(warning.message))

    def test_records_without_query(self):
        """A warning says so once if the training records had queries."""
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
            etcmodel.DocumentClassifier(saved_model="a").fit([])

    def test_no_run(self):
        with self.assertRaisesRegex(UserError, "not the directory of a run"):
            etcmodel.load(self._folder())

    def test_shows_itself(self):
        model = self._make(long_length=32)
        self.assertEqual(
            "SentenceSelector(task='select', state='not trained', "
            "weights='tiny', long_length=32)",
            repr(model),
        )
        self.assertIn("<th>long_length</th><td>32</td>", model._repr_html_())

    def test_values_are_checked_at_once(self):
        for options, message in (
            ({"poolin": "max"}, "no option 'poolin'. Did you mean pooling"),
            ({"long_length": 0}, "`long_length` is 0"),
            ({"threshold": "high"}, "`threshold` is 'high'"),
        ):
            with self.assertRaisesRegex(UserError, message):
                etcmodel.DocumentClassifier(**options)
        with self.assertRaisesRegex(UserError, "Did you mean 'tiny'"):
            etcmodel.DocumentClassifier.from_pretrained("tniy")
        with self.assertRaisesRegex(UserError, "`verbose` is 3"):
            self._make().fit([], verbose=3)


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
