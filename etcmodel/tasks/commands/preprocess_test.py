import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.tasks import tfrecords
from etcmodel.tasks.task_testing import run_cli
from etcmodel.tasks.task_testing import write_small_wikihop

_KINDS = (
    "other_answer",
    "zero_candidates",
    "many_candidates",
    "empty_documents",
    "missing_field",
    "long_query",
    "invalid_utf8",
)


class PreprocessTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = self.get_temp_dir()
        self.input, self.vocab_file = write_small_wikihop(self.root, 5)
        self.output = os.path.join(self.root, "out", "records")
        with open(self.input, encoding="utf-8") as stream:
            self.records = json.load(stream)

    def _write(self, records):
        content = records
        if not isinstance(records, bytes):
            content = json.dumps(records).encode()
        with open(self.input, "wb") as stream:
            stream.write(content)

    def _run(self, *more):
        return run_cli(
            "preprocess",
            "--task=wikihop",
            f"--input={self.input}",
            f"--vocab_file={self.vocab_file}",
            f"--output_dir={self.output}",
            "--long_length=64",
            "--global_length=16",
            "--num_shards=2",
            *more,
        )

    def _json(self, name):
        with open(os.path.join(self.output, name), encoding="utf-8") as stream:
            return json.load(stream)

    def _read(self, extra):
        (serialized,) = tf.data.TFRecordDataset(
            tfrecords.find_files(self.output), "GZIP"
        ).batch(99)
        return etc_features.parse(serialized, 64, 16, extra=extra)

    def test_writes_records_stats_and_vocabulary(self):
        code, out, err = self._run()
        self.assertEqual((0, ""), (code, err))
        self.assertIn("Wrote 5 of 5 records", out)
        self.assertEqual(
            [
                "features.json",
                "stats.json",
                "train-00000-of-00002.tfrecord.gz",
                "train-00001-of-00002.tfrecord.gz",
                "vocab.txt",
            ],
            sorted(os.listdir(self.output)),
        )
        stats = self._json("stats.json")
        self.assertEqual(5, stats["records_read"])
        self.assertEqual(5, stats["records_written"])
        self.assertEqual(0, stats["records_dropped"])
        self.assertEqual(20, stats["candidates"])
        self.assertEqual(10, stats["documents"])
        self.assertEqual(15, stats["sentences"])
        self.assertEqual(5, stats["links"])
        self.assertEqual(0, stats["tokens_cut"])
        # 4 candidates, 2 of the query, 4 + 7 of the documents.
        self.assertEqual(5 * 17, stats["tokens"])
        metadata = self._json("features.json")
        self.assertEqual(
            {"long_length": 64, "global_length": 16, "max_num_sentences": 200},
            metadata["features"],
        )
        parsed = self._read({"label_id": tf.io.FixedLenFeature([], tf.float32)})
        # Records 0, 2, 4 are in the first file, 1 and 3 in the second.
        self.assertAllEqual([0, 2, 0, 1, 3], parsed["label_id"])
        self.assertAllEqual([5, 64], parsed["long_token_ids"].shape)

    def test_predict_split_has_no_labels(self):
        for record in self.records:
            del record["answer"]
        self._write(self.records)
        code, _, err = self._run()
        self.assertEqual(1, code)
        self.assertIn("--split=predict", err)
        code, _, _ = self._run("--split=predict")
        self.assertEqual(0, code)
        parsed = self._read({"label_id": tf.io.RaggedFeature(tf.float32)})
        self.assertAllEqual([0] * 5, parsed["label_id"].row_lengths())

    def _make_bad(self, record, kind):
        if kind == "other_answer":
            record["answer"] = "bern"
        elif kind == "zero_candidates":
            record["candidates"] = []
        elif kind == "many_candidates":
            record["candidates"] = ["oslo"] * 5000
        elif kind == "empty_documents":
            record["supports"] = ["", " "]
        elif kind == "missing_field":
            del record["query"]
        elif kind == "long_query":
            record["query"] = "city " * 99
        elif kind == "invalid_utf8":
            record["supports"] = ["BYTES"]

    def _write_with_bytes(self, records):
        content = json.dumps(records).encode()
        self._write(content.replace(b"BYTES", b"\xe9t\xe9"))

    @parameterized.parameters(*_KINDS)
    def test_bad_record(self, kind):
        self._make_bad(self.records[2], kind)
        self._write_with_bytes(self.records)
        code, out, err = self._run()
        self.assertEqual((1, ""), (code, out))
        self.assertIn(f"{self.input}, record 2 (id 'small_2')", err)
        self.assertNotIn("Traceback", err)
        # Nothing half-written, not even under another name.
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))

    def test_skips_bad_records(self):
        bad = []
        for kind in _KINDS:
            record = dict(self.records[2], id=kind)
            self._make_bad(record, kind)
            bad.append(record)
        self._write_with_bytes([*self.records[:2], *bad, *self.records[2:]])
        code, out, _ = self._run("--skip_bad_records")
        self.assertEqual(0, code)
        self.assertIn("Skipped 7 bad records", out)
        self.assertIn("Wrote 5 of 12 records", out)
        stats = self._json("stats.json")
        self.assertEqual(12, stats["records_read"])
        self.assertEqual(5, stats["records_written"])
        self.assertEqual(7, stats["records_dropped"])
        self.assertEqual([1] * 7, list(stats["records_dropped_why"].values()))
        parsed = self._read({"label_id": tf.io.FixedLenFeature([], tf.float32)})
        self.assertAllEqual([0, 2, 0, 1, 3], parsed["label_id"])

    @parameterized.named_parameters(
        ("empty", b"", "is empty"),
        ("truncated", b'[{"id": "a", "query": "b", ', "ends too early"),
        ("no_json", b"id,query,answer", "is not JSON"),
        ("object", b'{"data": []}', "JSON object"),
        ("no_records", b"[]", "no usable record"),
        ("other_format", b'[{"_id": "x", "question": "y"}]', "'id'.*missing"),
    )
    def test_bad_file(self, content, message):
        self._write(content)
        code, _, err = self._run()
        self.assertEqual(1, code)
        self.assertRegex(err, message)
        self.assertIn(self.input, err)
        self.assertEmpty(os.listdir(os.path.dirname(self.output)))

    def test_nothing_is_left_of_another_format(self):
        self._write([{"_id": "x"}, {"_id": "y"}])
        code, _, err = self._run("--skip_bad_records")
        self.assertEqual(1, code)
        self.assertIn("no usable record", err)
        self.assertIn("Skipped 2 bad records", err)

    def test_wrong_vocabulary(self):
        self.vocab_file = self.input
        code, _, err = self._run()
        self.assertEqual(1, code)
        self.assertIn(f"--vocab_file={self.input} cannot be used", err)
        self.assertFalse(os.path.exists(self.output))

    def test_long_document(self):
        self.records[0]["supports"] = ["Jan is here. " * 31_000]
        self.assertGreater(len(self.records[0]["supports"][0]), 400_000)
        self._write(self.records)
        code, _, _ = self._run()
        self.assertEqual(0, code)
        stats = self._json("stats.json")
        self.assertEqual(5, stats["records_written"])
        self.assertEqual(1, stats["records_cut"])
        self.assertGreater(stats["tokens_cut"], 120_000)

    def test_existing_output(self):
        self.assertEqual(0, self._run()[0])
        code, _, err = self._run()
        self.assertEqual(1, code)
        self.assertIn("--overwrite", err)
        self.assertEqual(0, self._run("--overwrite")[0])

    def test_unknown_split(self):
        code, _, err = self._run("--split=dev")
        self.assertEqual(1, code)
        self.assertIn("train, predict", err)


if __name__ == "__main__":
    tf.test.main()
