import gzip
import json
import os
import shutil
import tempfile

import tensorflow as tf

from etcmodel.tasks import task_testing
from etcmodel.tasks.commands import predict
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.task_testing import run_cli


class PredictTest(tf.test.TestCase):
    """With a model that always takes the first candidate, `paris`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.saved_model = task_testing.write_small_saved_model(cls.root)

    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.get_temp_dir(), self._testMethodName)
        os.makedirs(self.directory)
        self.input, _ = task_testing.write_small_wikihop(self.directory, 5)
        with open(self.input, encoding="utf-8") as stream:
            self.records = json.load(stream)
        self.output = os.path.join(self.directory, "new", "answers.json")

    def _write(self):
        with open(self.input, "w", encoding="utf-8") as stream:
            json.dump(self.records, stream)

    def _predict(self, *arguments):
        return run_cli(
            "predict",
            f"--saved_model={self.saved_model}",
            f"--input={self.input}",
            f"--output={self.output}",
            *arguments,
        )

    def _answers(self):
        with open(self.output, encoding="utf-8") as stream:
            return json.load(stream)

    def test_official_format_and_metric(self):
        # In two batches, of which the last is not full.
        code, out, err = self._predict("--batch_size=3")
        self.assertEqual((0, ""), (code, err))
        self.assertEqual(
            {f"small_{i}": "paris" for i in range(5)}, self._answers()
        )
        # The answers are paris, rome, oslo, bonn, paris.
        self.assertEqual(
            f"Wrote 5 answers to {self.output}.\n"
            "accuracy: 0.4000 (5 records with an answer)\n",
            out,
        )

    def test_metric_is_of_the_records_with_an_answer(self):
        for record in self.records[1:]:
            del record["answer"]
        self._write()
        _, out, _ = self._predict()
        self.assertIn("accuracy: 1.0000 (1 records with an answer)", out)

    def test_without_answers_no_metric(self):
        for record in self.records:
            del record["answer"]
        self._write()
        code, out, _ = self._predict()
        self.assertEqual(0, code)
        self.assertEqual(f"Wrote 5 answers to {self.output}.\n", out)

    def test_answers_keep_their_letters(self):
        self.records[0]["candidates"] = [" Zürich", "oslo"]
        self._write()
        self._predict("--batch_size=1")
        self.assertEqual(" Zürich", self._answers()["small_0"])

    def test_gzipped_input(self):
        with open(self.input, "rb") as stream:
            content = stream.read()
        with gzip.open(self.input + ".gz", "wb") as stream:
            stream.write(content)
        self.input += ".gz"
        self.assertEqual(0, self._predict()[0])
        self.assertLen(self._answers(), 5)

    def test_bad_record(self):
        self.records[3]["supports"] = [""]
        self._write()
        code, out, err = self._predict("--batch_size=2")
        self.assertEqual((1, ""), (code, out))
        self.assertIn(f"{self.input}, record 3 (id 'small_3')", err)
        # Nothing half-written.
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))
        code, out, _ = self._predict("--batch_size=2", "--skip_bad_records")
        self.assertEqual(0, code)
        self.assertIn("Skipped 1 bad records", out)
        self.assertNotIn("small_3", self._answers())
        self.assertLen(self._answers(), 4)

    def test_nothing_usable(self):
        self.records = [{"_id": "x"}]
        self._write()
        code, _, err = self._predict("--skip_bad_records")
        self.assertEqual(1, code)
        self.assertIn(f"{self.input}: no usable record was found", err)
        self.assertIn("Skipped 1 bad records", err)
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))

    def test_earlier_output_stays_if_it_fails(self):
        self.assertEqual(0, self._predict()[0])
        before = self._answers()
        self.records = []
        self._write()
        self.assertEqual(1, self._predict()[0])
        self.assertEqual(before, self._answers())

    def test_output_is_a_directory(self):
        self.output = self.directory
        code, _, err = self._predict()
        self.assertEqual(1, code)
        self.assertIn(f"{self.directory} is a directory", err)

    def test_required_flags(self):
        code, _, err = run_cli("predict")
        self.assertEqual(1, code)
        self.assertIn("predict needs --saved_model, --input, --output", err)

    def test_other_directories(self):
        with self.assertRaisesRegex(UserError, "is not a SavedModel"):
            predict.load_saved_model(self.directory)
        broken = os.path.join(self.directory, "broken")
        shutil.copytree(self.saved_model, broken)
        with open(os.path.join(broken, "saved_model.pb"), "wb") as stream:
            stream.write(b"no graph")
        with self.assertRaisesRegex(UserError, "broken cannot be loaded"):
            predict.load_saved_model(broken)

    def test_loads_model_and_metadata(self):
        model, metadata = predict.load_saved_model(self.saved_model)
        self.assertEqual({"task": "wikihop"}, metadata)
        self.assertIn("serving_default", model.signatures)


if __name__ == "__main__":
    tf.test.main()
