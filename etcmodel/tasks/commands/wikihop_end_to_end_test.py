import json
import os
import unittest

import tensorflow as tf

from etcmodel.tasks import export_lib
from etcmodel.tasks import task_testing
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import run_cli
from etcmodel.tasks.task_testing import run_without_package
from etcmodel.testing import real_data_path


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class Keras2EndToEndTest(task_testing.EndToEndTestCase):
    """From the official file to answers: 22 real records, learned by heart."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.input = real_data_path("wikihop/train_22.json")
        cls.vocab_file = real_data_path("vocab/bert_uncased_vocab.txt")
        cls.train_output = cls.make_saved_model(
            "wikihop",
            ["--long_length=256", "--global_length=96"],
            {
                "task.train_data.global_batch_size": 11,
                "task.validation_data.global_batch_size": 8,
            },
            cls.vocab_file,
            learning_rate=0.002,
            steps=120,
            mode="train_and_eval",
        )

    def test_train_leaves_logs_and_configuration(self):
        self.assertContainsSubset(
            [
                "best_ckpt",
                "checkpoint",
                "etcmodel.json",
                "params.yaml",
                "train",
                "validation",
                "vocab.txt",
            ],
            os.listdir(self.model_dir),
        )
        self.assertIn("120 steps, of which 11 are warm-up", self.train_output)
        self.assertIn("tensorboard --logdir", self.train_output)

    def test_evaluates(self):
        metrics = self.evaluate()
        self.assertEqual(1.0, metrics["accuracy"])
        self.assertEqual(120, metrics["step"])

    def test_predicts_all_from_raw_text(self):
        out, predictions = self.predict(self.input, "--batch_size=4")
        self.assertIn("accuracy: 1.0000 (22 records", out)
        with open(self.input, encoding="utf-8") as stream:
            expected = {r["id"]: r["answer"] for r in json.load(stream)}
        self.assertEqual(expected, predictions)

    def test_answers_without_this_package(self):
        with open(self.input, encoding="utf-8") as stream:
            record = json.load(stream)[3]
        request = {
            "query": [record["query"]],
            "candidates": [record["candidates"]],
            "supports": [record["supports"]],
        }
        result = run_without_package(self.saved_model, request)
        self.assertEqual([record["answer"]], result["python"]["answer"])
        self.assertEqual([record["answer"]], result["session"]["answer"])

    def test_predict_mistakes(self):
        output = self.path("nothing.json")
        for saved_model, path, message in (
            (self.model_dir, self.input, "not a SavedModel"),
            (self.saved_model, "/no/such/file", "no such file"),
            (self.saved_model, self.vocab_file, "the JSON is broken"),
        ):
            code, _, err = run_cli(
                "predict",
                f"--saved_model={saved_model}",
                f"--input={path}",
                f"--output={output}",
            )
            self.assertEqual(1, code)
            self.assertIn(message, err)
            self.assertFalse(os.path.exists(output))

    def test_predict_skips_bad_records(self):
        with open(self.input, encoding="utf-8") as stream:
            records = json.load(stream)[:3]
        records[1]["candidates"] = []
        del records[2]["answer"]
        path = self.path("bad.json")
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(records, stream)
        out, predictions = self.predict(path, "--skip_bad_records")
        self.assertIn("Skipped 1 bad records", out)
        self.assertIn("accuracy: 1.0000 (1 records", out)
        self.assertLen(predictions, 2)

    def test_export_mistakes(self):
        for model_dir, more, message in (
            (self.records, [], "not the directory of a run"),
            (self.model_dir, ["--checkpoint=/no/such"], "No checkpoint"),
        ):
            code, _, err = run_cli(
                "export",
                f"--model_dir={model_dir}",
                f"--output_dir={self.path('other')}",
                *more,
            )
            self.assertEqual(1, code)
            self.assertIn(message, err)
        metadata = export_lib.read_export_metadata(self.saved_model)
        self.assertEqual("wikihop", metadata["task"])
        self.assertEqual(256, metadata["features"]["long_length"])

    def test_inspects(self):
        output = self.path("picture.png")
        out = self.run_command(
            "inspect",
            "--task=wikihop",
            f"--input={self.input}",
            "--record=WH_train_3",
            f"--vocab_file={self.vocab_file}",
            f"--output={output}",
            "--max_long_tokens=40",
            "--max_global_tokens=20",
        )
        self.assertIn("3 (id WH_train_3)", out)
        self.assertIn("8, of which 0 cut", out)
        with open(output, "rb") as stream:
            self.assertEqual(b"\x89PNG", stream.read(4))
        code, _, err = run_cli(
            "inspect",
            "--task=wikihop",
            f"--input={self.input}",
            "--record=22",
            f"--vocab_file={self.vocab_file}",
            f"--output={output}",
        )
        self.assertEqual(1, code)
        self.assertIn("the last one is 21", err)


class MistakesTest(tf.test.TestCase):
    def _fails(self, message, *arguments):
        code, _, err = run_cli(*arguments)
        self.assertEqual(1, code)
        self.assertRegex(err, message)
        self.assertNotIn("Traceback", err)

    @unittest.skipIf(KERAS_2, "this is about Keras 3")
    def test_training_under_keras_3(self):
        self._fails(
            "TF_USE_LEGACY_KERAS=1",
            "train",
            "--experiment=etc/wikihop",
            f"--model_dir={self.get_temp_dir()}",
        )

    @unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
    def test_configuration(self):
        train = ["train", f"--model_dir={self.get_temp_dir()}"]
        wikihop = [*train, "--experiment=etc/wikihop"]
        self._fails("no such experiment", *train, "--experiment=bert/squad")
        self._fails("no such experiment", *train, "--experiment=etc/wikihop_x")
        self._fails("There is no train_data", *wikihop)
        self._fails(
            "'nothing' does not exist",
            *wikihop,
            "--params_override=task.nothing=1",
        )
        self._fails(
            "do not fit.*no/such", *wikihop, "--config_file=/no/such.yaml"
        )
        self._fails(
            "no TFRecord files",
            *wikihop,
            "--params_override=task.train_data.input_path=/no/such",
        )
        self._fails(
            "not the directory of a run",
            "evaluate",
            f"--model_dir={self.get_temp_dir()}",
        )


if __name__ == "__main__":
    tf.test.main()
