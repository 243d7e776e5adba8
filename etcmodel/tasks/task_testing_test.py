import json
import os

import tensorflow as tf

from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import export_lib
from etcmodel.tasks import task_testing
from etcmodel.tasks import tfrecords
from etcmodel.tasks.wikihop import records as records_lib


class TaskTestingTest(tf.test.TestCase):
    def test_vocabulary_holds_each_word_once(self):
        path = task_testing.write_test_vocab(
            self.get_temp_dir(), "rome oslo rome [CLS]"
        )
        with open(path, encoding="utf-8") as stream:
            tokens = stream.read().splitlines()
        self.assertEqual(
            [*tokenizers.WORDPIECE_RESERVED_TOKENS, "rome", "oslo"], tokens
        )

    def test_small_records_are_wikihop(self):
        path, vocab_file = task_testing.write_small_wikihop(
            self.get_temp_dir(), 6
        )
        records = list(records_lib.read_records(path, "train"))
        self.assertLen(records, 6)
        tokenizer = tokenizers.make_tokenizer(vocab_file)
        (unknown,) = tokenizer.tokenize(["zebra"]).to_list()[0]
        for record in records:
            text = " ".join(record.supports)
            self.assertEqual(
                [record.answer], [c for c in record.candidates if c in text]
            )
            ids = tokenizer.tokenize(
                [record.query, *record.supports, *record.candidates]
            )
            self.assertNotIn(unknown, ids.flat_values.numpy())
        self.assertEqual(
            ["paris", "rome", "oslo", "bonn", "paris", "rome"],
            [record.answer for record in records],
        )

    def test_small_records_are_preprocessed(self):
        directory = self.get_temp_dir()
        # A second time in the same place is fine.
        for _ in range(2):
            output = task_testing.write_small_records(directory, 3)
        files = tfrecords.find_files(output)
        self.assertLen(files, 2)
        metadata = tfrecords.read_metadata(files)
        self.assertEqual(32, metadata["features"]["long_length"])
        self.assertEqual(16, metadata["features"]["global_length"])
        with open(os.path.join(output, "stats.json"), encoding="utf-8") as file:
            stats = json.load(file)
        self.assertEqual(3, stats["records_written"])
        self.assertEqual(0, stats["tokens_cut"])

    def test_small_saved_model_takes_the_first_candidate(self):
        path = task_testing.write_small_saved_model(self.get_temp_dir())
        self.assertEqual(
            {"task": "wikihop"}, export_lib.read_export_metadata(path)
        )
        loaded = tf.saved_model.load(path)
        self.assertEqual(["serving_default"], list(loaded.signatures))
        outputs = loaded.signatures["serving_default"](
            query=tf.constant(["a", "b"]),
            candidates=tf.constant([["rome", "oslo"], ["bonn", ""]]),
            supports=tf.constant([["x"], ["y"]]),
        )
        self.assertAllEqual([b"rome", b"bonn"], outputs["answer"])
        self.assertAllEqual(
            [[1, 0], [1, 0]], outputs["candidate_probabilities"]
        )

    def test_runs_without_this_package(self):
        path = task_testing.write_small_saved_model(self.get_temp_dir())
        request = {
            "query": ["q"],
            "candidates": [["b", "\u00e9"]],
            "supports": [["s"]],
        }
        result = task_testing.run_without_package(path, request)
        for loader in ("python", "session"):
            self.assertEqual(
                {"answer": ["b"], "candidate_probabilities": [[1.0, 0.0]]},
                result[loader],
            )
        self.assertContainsSubset(["OneHot"], result["ops"])
        self.assertEmpty(result["other"])
        self.assertEmpty(result["unknown"])


if __name__ == "__main__":
    tf.test.main()
