import os
import shutil
import tempfile
from unittest import mock

import tensorflow as tf

from etcmodel.cli import predict
from testing import reading
from testing import tasks
from testing.tasks import CommandTestCase
from testing.tasks import read_json
from testing.tasks import run_cli
from testing.tasks import write_json


class PredictTest(CommandTestCase):
    """With a model that always takes the first candidate, `paris`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.saved_model = tasks.write_small_saved_model(cls.root)

    def setUp(self):
        super().setUp()
        self.input, _ = tasks.write_small_wikihop(self.directory, 5)
        self.records = read_json(self.input)
        self.output = self.path("new", "answers.json")

    def _predict(self, *arguments):
        return run_cli(
            "predict",
            f"--saved_model={self.saved_model}",
            f"--input={self.input}",
            f"--output={self.output}",
            *arguments,
        )

    def test_official_format_and_metric(self):
        # In two batches, of which the last is not full.
        metrics = self.path("new", "metrics.json")
        out = self.assert_succeeds(
            self._predict("--batch_size=3", f"--metrics={metrics}")
        )
        self.assertEqual({"accuracy": 0.4}, read_json(metrics))
        self.assertEqual(
            {f"small_{i}": "paris" for i in range(5)},
            read_json(self.output),
        )
        # The answers are paris, rome, oslo, bonn, paris.
        self.assertEqual(
            f"Wrote 5 answers to {self.output}.\n"
            "Of 5 records with an answer:\naccuracy: 0.4\n",
            out,
        )

    def test_metric_is_of_the_records_with_an_answer(self):
        # Answers keep their letters.
        zurich = " Z\u00fcrich"
        self.records[0] |= {"candidates": [zurich, "oslo"], "answer": zurich}
        for record in self.records[1:]:
            del record["answer"]
        write_json(self.input, self.records)
        _, out, _ = self._predict("--batch_size=1")
        self.assertIn("Of 1 records with an answer:\naccuracy: 1\n", out)
        self.assertEqual(zurich, read_json(self.output)["small_0"])
        write_json(self.input, self.records[1:])
        _, out, _ = self._predict("--overwrite")
        self.assertEqual(f"Wrote 4 answers to {self.output}.\n", out)

    def test_bad_record(self):
        self.assert_succeeds(self._predict())
        before = read_json(self.output)
        del self.records[3]["supports"]
        write_json(self.input, self.records)
        self.assert_fails(
            self._predict("--batch_size=2", "--overwrite"),
            rf"{self.input}, record 3 \(id 'small_3'\)",
        )
        # The earlier answers stay, and nothing half-written.
        self.assertEqual(before, read_json(self.output))
        self.assertLen(os.listdir(os.path.dirname(self.output)), 1)
        out = self.assert_succeeds(
            self._predict("--skip_bad_records", "--overwrite")
        )
        self.assertIn("Skipped 1 bad records", out)
        self.assertIn("They are not in the metrics", out)
        del before["small_3"]
        self.assertEqual(before, read_json(self.output))

    def test_a_part_of_a_file(self):
        """Of NarrativeQA's; with a model that always answers `x`."""
        path, _ = reading.write_small_narrativeqa(self.directory, 3)
        with open(path, encoding="utf-8") as stream:
            content = stream.read()
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content.replace("1,train", "1,valid"))
        answer = mock.Mock(
            side_effect=lambda question, document: {
                "answer": tf.fill(tf.shape(question), "x")
            }
        )
        model = mock.Mock(signatures={"serving_default": answer})
        metadata = {"task": "read_twice_narrativeqa", "options": {}}
        self.input = path
        with (
            mock.patch.object(predict, "load_saved_model", return_value=model),
            mock.patch.object(
                predict.exported, "read_metadata", return_value=metadata
            ),
        ):
            out = self.assert_succeeds(self._predict("--data_split=valid"))
            self.assert_fails(
                self._predict("--data_split=dev", "--overwrite"),
                "--data_split=dev: read_twice_narrativeqa: .* of all, train",
            )
        self.assertStartsWith(out, "Wrote 1 answers")
        self.assertEqual(
            {"id": "1: Where does Jan live?", "answer": "x"},
            read_json(self.output),
        )

    def test_records_that_nothing_could_be_learned_of(self):
        """They are answered, and count."""
        self.records[1]["supports"] = [""]
        write_json(self.input, self.records)
        out = self.assert_succeeds(self._predict())
        self.assertIn("Of 5 records with an answer:\naccuracy: 0.4\n", out)

    def test_nothing_usable(self):
        write_json(self.input, [{"_id": "x"}])
        self.assert_fails(
            self._predict("--skip_bad_records"),
            f"{self.input}: no usable record was found",
            "Skipped 1 bad records",
        )
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))

    def test_paths_that_do_not_fit(self):
        broken = self.path("broken")
        shutil.copytree(self.saved_model, broken)
        with open(os.path.join(broken, "saved_model.pb"), "wb") as stream:
            stream.write(b"no graph")
        for flag, message in (
            (f"--input={__file__}", "is not JSON"),
            (f"--saved_model={broken}", "broken cannot be loaded"),
        ):
            self.assert_fails(self._predict(flag), message)
            self.assertFalse(os.path.exists(self.output))


if __name__ == "__main__":
    tf.test.main()
