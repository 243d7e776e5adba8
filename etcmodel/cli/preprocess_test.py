import os
import time
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.cli import preprocess
from etcmodel.feature_utils import etc_features
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.preprocessor import Preprocessor
from testing import tasks
from testing.tasks import run_cli


@tasks.shared_writers()
class PreprocessTest(tasks.CommandTestCase):
    def setUp(self):
        super().setUp()
        self.input, self.vocab_file = tasks.write_small_wikihop(
            self.directory, 5
        )
        self.output = self.path("out", "records")

    def _run(self, *more):
        with tasks.without_tracing():
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
        return tasks.read_json(os.path.join(self.output, name))

    def _read(self, extra):
        (serialized,) = tf.data.TFRecordDataset(
            tfrecords.find_files(self.output), "GZIP"
        ).batch(99)
        return etc_features.parse(serialized, 64, 16, extra=extra)

    def test_writes_records_stats_and_vocabulary(self):
        out = self.assert_succeeds(self._run())
        self.assertIn("Wrote 5 of 5 records", out)
        shards = [f"train-0000{i}-of-00002.tfrecord.gz" for i in range(2)]
        self.assertCountEqual(
            [
                *(
                    "preprocessing_config.json",
                    "stats.json",
                    "tokenizer_config.json",
                ),
                *("vocab.txt", *shards),
            ],
            os.listdir(self.output),
        )
        stats = self._json("stats.json")
        expected = {
            "records_read": 5,
            "records_written": 5,
            "records_dropped": 0,
            "candidates": 20,
            "documents": 10,
            "sentences": 15,
            "links": 5,
            "tokens_cut": 0,
            # 4 candidates, 2 of the query, 4 + 7 of the documents.
            "tokens": 5 * 17,
        }
        self.assertEqual(expected, {name: stats[name] for name in expected})
        self.assertEqual(
            {"long_length": 64, "global_length": 16, "max_num_sentences": 200},
            self._json("preprocessing_config.json")["preprocessing_config"],
        )
        self.assertEqual(
            dict(zip(shards, (3, 2), strict=True)),
            {
                name: shard["examples"]
                for name, shard in self._json("preprocessing_config.json")[
                    "shards"
                ].items()
            },
        )
        parsed = self._read({"label_id": tf.io.FixedLenFeature([], tf.float32)})
        # Records 0, 2, 4 are in the first file, 1 and 3 in the second.
        self.assertAllEqual([0, 2, 0, 1, 3], parsed["label_id"])
        self.assertAllEqual([5, 64], parsed["long_token_ids"].shape)

    def test_several_files_are_as_one(self):
        self.assert_succeeds(self._run("--num_shards=1"))
        (whole,) = tfrecords.find_files(self.output)
        whole = list(tf.data.TFRecordDataset(whole, "GZIP"))
        records = tasks.read_json(self.input)
        paths = [self.path(f"part-{name}.json") for name in "ba"]
        for path, part in zip(paths, (records[3:], records[:3]), strict=True):
            tasks.write_json(path, part)
        pattern = self.path("part-?.json")
        self.assert_succeeds(
            self._run("--num_shards=1", "--overwrite", f"--input={pattern}")
        )
        self.assertEqual(sorted(paths), self._json("stats.json")["input"])
        (parts,) = tfrecords.find_files(self.output)
        self.assertAllEqual(whole, list(tf.data.TFRecordDataset(parts, "GZIP")))

    def test_text_is_prepared_as_the_vocabulary_says(self):
        """Or as flags say; what was decided is told and stored."""
        out = self.assert_succeeds(self._run("--split=dev"))
        self.assertIn("Tokenizer: lower case, accents removed", out)
        self.assertIn("(from the vocabulary itself)", out)
        config = os.path.join(
            os.path.dirname(self.vocab_file), "tokenizer_config.json"
        )
        tasks.write_json(
            config, {"do_lower_case": True, "strip_accents": False}
        )
        stored = {
            "lower_case": True,
            "strip_accents": False,
            "tokenize_chinese_chars": True,
            "clean_text": True,
            "max_chars_per_word": 100,
        }
        out = self.assert_succeeds(self._run("--overwrite"))
        self.assertIn("Tokenizer: lower case, accents kept", out)
        self.assertIn(f"(from {config})", out)
        self.assertEqual(
            stored, self._json("preprocessing_config.json")["tokenizer"]
        )
        # The copy of the vocabulary is used likewise.
        own = os.path.join(self.output, "vocab.txt")
        other = self.path("other")
        flags = (f"--vocab_file={own}", f"--output_dir={other}")
        self.assert_succeeds(self._run(*flags))
        note = os.path.join(other, "preprocessing_config.json")
        self.assertEqual(stored, tasks.read_json(note)["tokenizer"])
        out = self.assert_succeeds(
            self._run(*flags, "--lower_case=false", "--overwrite")
        )
        self.assertIn("Tokenizer: case kept, accents kept", out)
        self.assertIn(f"(from flags, {self.output}", out)
        self.assertFalse(tasks.read_json(note)["tokenizer"]["lower_case"])

    def test_predict_split_has_no_labels(self):
        records = tasks.read_json(self.input)
        for record in records:
            del record["answer"]
        tasks.write_json(self.input, records)
        self.assert_fails(self._run(), "--split=predict")
        self.assert_succeeds(self._run("--split=predict"))
        parsed = self._read({"label_id": tf.io.RaggedFeature(tf.float32)})
        self.assertAllEqual([0] * 5, parsed["label_id"].row_lengths())

    @parameterized.parameters(*tasks.SMALL_RECORDS)
    def test_workers_and_batches_do_not_matter(self, task):
        """The same bytes, though batches are ready in another order."""
        write, sizes = tasks.SMALL_RECORDS[task]
        path, vocab_file = write(self.directory, 13)
        more = ["--include_unknown_rate=0.5"] if task == "nq" else []
        encode = preprocess._make_examples

        def encode_late(encoder, records, split):
            time.sleep(0.02 * (records[0].index % 3))
            return encode(encoder, records, split)

        def files(workers, batch_size):
            output = os.path.join(self.directory, f"{workers} {batch_size}")
            with (
                mock.patch.object(os, "cpu_count", return_value=workers),
                mock.patch.object(Preprocessor, "RECORDS_AT_ONCE", batch_size),
                mock.patch.object(preprocess, "_make_examples", encode_late),
            ):
                result = run_cli(
                    "preprocess",
                    f"--task={task}",
                    f"--input={path}",
                    f"--vocab_file={vocab_file}",
                    f"--output_dir={output}",
                    "--num_shards=3",
                    *sizes,
                    *more,
                )
            self.assert_succeeds(result)
            found = {}
            for name in os.listdir(output):
                with open(os.path.join(output, name), "rb") as stream:
                    found[name] = stream.read()
            return found

        expected = files(1, 13)
        # Three shards, the vocabulary, its settings and two notes.
        self.assertLen(expected, 7)
        for workers, batch_size in ((1, 4), (4, 1)):
            self.assertEqual(expected, files(workers, batch_size))


if __name__ == "__main__":
    tf.test.main()
