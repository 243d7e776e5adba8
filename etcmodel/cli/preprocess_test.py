import functools
import json
import os
import shutil
import time
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.pipeline import example_maker
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.preprocessor import Preprocessor
from testing import own_documents
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
                *("vocab.txt", ".etcmodel_files.json", *shards),
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
            # Each record has 4 tokens in candidates, 2 in the query, 4 + 7 in
            # documents.
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

    def test_into_a_bucket(self):
        """TensorFlow treats ram:// as it treats gs://."""
        self.assert_succeeds(self._run())
        bucket = f"ram://{self.id()}"
        self.assert_succeeds(self._run(f"--output_dir={bucket}/new"))
        self.assertCountEqual(
            os.listdir(self.output), tf.io.gfile.listdir(f"{bucket}/new")
        )
        read = tfrecords.read_metadata
        local, remote = (
            read(tfrecords.find_files(x))
            for x in (self.output, f"{bucket}/new")
        )
        self.assertEqual(local.pop("directory"), self.output)
        self.assertEqual(remote.pop("directory"), f"{bucket}/new")
        self.assertEqual(local, remote)

    def test_several_files_equal_one(self):
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

    def test_settings_of_the_tokenizer(self):
        """Prints and stores settings of the vocabulary and of flags."""
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
        # The copy of the vocabulary has the same settings.
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
        self.assertIn(f"(from options, {self.output}", out)
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
    def test_output_is_independent_of_workers_and_batches(self, task):
        """Writes the same bytes although batches finish in another order."""
        write, sizes = tasks.SMALL_RECORDS[task]
        path, vocab_file = write(self.directory, 13)
        more = ["--include_unknown_rate=0.5"] if task == "nq" else []
        encode = example_maker.ExampleMaker.make_examples

        def encode_late(encoder, records, split):
            time.sleep(0.02 * (records[0].index % 3))
            return encode(encoder, records, split)

        def files(workers, batch_size):
            output = os.path.join(self.directory, f"{workers} {batch_size}")
            with (
                mock.patch.object(os, "cpu_count", return_value=workers),
                mock.patch.object(Preprocessor, "RECORDS_AT_ONCE", batch_size),
                mock.patch.object(
                    example_maker.ExampleMaker, "make_examples", encode_late
                ),
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
        # Three shards, the vocabulary, its settings and three notes.
        self.assertLen(expected, 8)
        for workers, batch_size in ((1, 4), (4, 1)):
            self.assertEqual(expected, files(workers, batch_size))


@tasks.shared_writers()
class OwnDocumentsTest(tasks.CommandTestCase):
    """Tests `like`, `validation_fraction`, and notes about records."""

    def setUp(self):
        super().setUp()
        # Three labels with four records each.
        self.input, self.vocab_file = own_documents.write_small_labels(
            self.directory, 12
        )
        with open(self.input, encoding="utf-8") as stream:
            self.rows = [json.loads(line) for line in stream]

    def _write_rows(self, rows, name="other.jsonl"):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        return path

    def _run(self, output, *more, path=None, task="classify"):
        with tasks.without_tracing():
            return run_cli(
                "preprocess",
                f"--task={task}",
                f"--input={path or self.input}",
                f"--output_dir={self.path(output)}",
                "--num_shards=2",
                *more,
            )

    def _train(self, *more, **options):
        """Preprocesses the training records."""
        vocab = f"--vocab_file={self.vocab_file}"
        out = self._run("train", vocab, *own_documents.SIZES, *more, **options)
        return self.assert_succeeds(out)

    def _note(self, *names):
        return tasks.read_json(self.path(*names, "preprocessing_config.json"))

    def _ids(self, *names):
        found = tfrecords.read_examples(self.path(*names))
        return [name for name, *_ in found]

    def test_records_that_are_too_large(self):
        sizes = [len(json.dumps(x)) for x in self.rows]
        path = self._write_rows(self.rows)
        self._train(f"--max_record_bytes={max(sizes)}", path=path)
        line = 1 + sizes.index(max(sizes))
        self.assert_fails(
            self._run(
                "new",
                f"--like={self.path('train')}",
                f"--max_record_bytes={max(sizes) - 1}",
                path=path,
            ),
            rf"other.jsonl, line {line}: .* raise --max_record_bytes",
        )
        self.assertFalse(os.path.exists(self.path("new")))

    def test_like_other_records(self):
        """Takes sizes, labels and vocabulary from `like`."""
        self._train("--lower_case=false", "--units=paragraphs")
        # One of the three labels, and an unknown label.
        rows = [self.rows[0], {**self.rows[1], "label": "Wien"}]
        like = f"--like={self.path('train')}"
        dev = self._write_rows(rows)
        # "auto" takes the value of `like`.
        out = self._run("dev", like, "--split=dev", "--units=auto", path=dev)
        self.assertRegex(
            self.assert_succeeds(out), r" 1  labels not in training data\n"
        )
        self.assertEqual(["small_0", "small_1"], self._ids("dev"))
        names = ("preprocessing_config", "tokenizer", "vocab_fingerprint")
        train, made = self._note("train"), self._note("dev")
        self.assertEqual([train[x] for x in names], [made[x] for x in names])
        sizes = made["preprocessing_config"]
        self.assertEqual(["Bonn", "Oslo", "Rome"], sizes["labels"])
        self.assertEqual([4, 4, 4], sizes["label_counts"])
        self.assertEqual(
            ("paragraphs", 32), (sizes["units"], sizes["long_length"])
        )
        self.assertFalse(made["tokenizer"]["lower_case"])
        # A flag overrides `like`. The labels are still the training labels.
        more = ("--long_length=40", "--split=predict", "--overwrite")
        self.assert_succeeds(self._run("dev", like, *more, path=dev))
        self.assertEqual(
            {**sizes, "long_length": 40},
            self._note("dev")["preprocessing_config"],
        )

    def test_unusable_like(self):
        path, vocab = tasks.write_small_wikihop(self.directory, 2)
        vocab = f"--vocab_file={vocab}"
        made = self._run("wikihop", vocab, path=path, task="wikihop")
        self.assert_succeeds(made)
        shutil.copytree(self.path("wikihop"), self.path("without"))
        os.remove(self.path("without", "preprocessing_config.json"))
        for like, message in (
            ("wikihop", "of the task 'wikihop', expected 'classify'"),
            ("without", "--like=.*without has no preprocessing_config"),
        ):
            self.assert_fails(
                self._run("dev", f"--like={self.path(like)}"), message
            )
        for split in ("dev", "predict"):
            vocab = f"--vocab_file={self.vocab_file}"
            self.assert_fails(
                self._run("dev", vocab, f"--split={split}"),
                f"--split={split} of classify needs .*labels.*--like=DIR",
            )
        self.assertFalse(os.path.exists(self.path("dev")))

    def test_validation_fraction(self):
        """Holds out a quarter of each label; the seed changes the records."""
        parts = {}
        for seed in (0, 0, 1):
            out = self._train(
                "--validation_fraction=0.25", f"--seed={seed}", "--overwrite"
            )
            for split, number in (("train", 9), ("dev", 3)):
                place = self.path("train", split)
                self.assertIn(
                    f"Wrote {number} of {number} records to {place}.", out
                )
                self.assertEqual(split, self._note("train", split)["split"])
            train, dev = self._ids("train", "train"), self._ids("train", "dev")
            self.assertSameElements([x["id"] for x in self.rows], train + dev)
            labels = [self.rows[int(x.split("_")[1])]["label"] for x in dev]
            self.assertCountEqual(["Bonn", "Oslo", "Rome"], labels)
            self.assertEqual(dev, parts.setdefault(seed, dev))
        self.assertNotEqual(*parts.values())
        names = ("preprocessing_config", "vocab_fingerprint", "special_ids")
        train, dev = (self._note("train", x) for x in ("train", "dev"))
        self.assertEqual([train[x] for x in names], [dev[x] for x in names])
        # Only training records are counted.
        counts = train["preprocessing_config"]["label_counts"]
        self.assertEqual([3, 3, 3], counts)

    @parameterized.parameters(
        ("0", "0: expected a number between 0 and 1"),
        ("1.5", "1.5: expected a number between 0 and 1"),
        (
            "0.01",
            "0.01 of 12 records gives 0 for validation and 12 for training",
        ),
        ("0.99", "0.99 of 12 records gives 12 for validation and 0 for"),
        ("0.5 --split=dev", "both splits, train and dev. Leave out --split"),
    )
    def test_invalid_fractions(self, fraction, message):
        vocab = f"--vocab_file={self.vocab_file}"
        flags = f"--validation_fraction={fraction}".split()
        self.assert_fails(self._run("train", vocab, *flags), message)
        self.assertFalse(os.path.exists(self.path("train")))

    def test_fields_of_other_names(self):
        rows = [
            {"nr": i, "body": x["text"], "topic": x["label"], "label": 5}
            for i, x in enumerate(self.rows)
        ]
        names = ("--text_field=body", "--label_field=topic", "--id_field=nr")
        path = self._write_rows(rows)
        self._train(*names, path=path)
        self.assertSameElements(map(str, range(12)), self._ids("train"))
        sizes = self._note("train")["preprocessing_config"]
        self.assertEqual(["Bonn", "Oslo", "Rome"], sizes["labels"])
        # Field names are stored for later files, not as sizes of the model.
        self.assertNoCommonElements(["text_field", "label_kind"], sizes)
        like = f"--like={self.path('train')}"
        dev = functools.partial(self._run, "dev", like, "--split=dev")
        self.assert_succeeds(dev(path=path))
        self.assertEqual(
            {
                "text_field": "body",
                "id_field": "nr",
                "label_field": "topic",
                "label_kind": "single",
            },
            self._note("dev")["reading"],
        )
        self.assert_fails(
            dev("--text_field=text", "--overwrite", path=path),
            "field 'text': it is missing",
        )

    def test_vocabulary_of_another_language(self):
        """Counts unknown tokens, and prints a note if there are many."""
        self.assertNotIn("unknown. The", self._train())
        stats = tasks.read_json(self.path("train", "stats.json"))
        self.assertEqual(0, stats["tokens_unknown"])
        # Two unknown words and the CLS token.
        thai = [
            {"text": "\u0e2a\u0e27\u0e31\u0e2a \u0e14\u0e35", "label": x}
            for x in ("a", "b")
        ]
        out = self._train("--overwrite", path=self._write_rows(thai))
        self.assertIn("Note: 67 % of the tokens are unknown", out)
        stats = tasks.read_json(self.path("train", "stats.json"))
        self.assertEqual(
            (6, 4), (stats["tokens_stored"], stats["tokens_unknown"])
        )

    @parameterized.parameters("classify", "select")
    def test_records_without_query(self, task):
        """Prints a note if the training records had queries."""
        rows = [
            {"text": "Jan is here.", "ask": "Who?", "label": x, "selected": []}
            for x in ("a", "b")
        ]
        path = self._write_rows(rows)
        self._train("--query_field=ask", path=path, task=task)
        like = (f"--like={self.path('train')}", "--split=dev", "--overwrite")
        run = functools.partial(self._run, "dev", *like, task=task)
        others = [{**x, "ask": None} for x in rows]
        for path_, number in (
            (self._write_rows(others, "b.json"), 2),
            (path, 0),
        ):
            out = self.assert_succeeds(run(path=path_))
            (self.assertIn if number else self.assertNotIn)(
                "Note: 2 records have no query, but the training records", out
            )
            stats = tasks.read_json(self.path("dev", "stats.json"))
            self.assertEqual(number, stats["records_without_query"])
        # No note if the training records had no queries.
        self._train("--overwrite", path=path, task=task)
        self.assertNotIn("no query", self.assert_succeeds(run(path=path)))

    def test_a_kind_of_labels_is_kept(self):
        """A label 1 is a number if the training labels are numbers."""
        self._train(
            path=self._write_rows(
                [{**x, "label": i + 0.5} for i, x in enumerate(self.rows)]
            )
        )
        dev = self._write_rows([{**self.rows[0], "label": 1}])
        like = f"--like={self.path('train')}"
        self.assert_succeeds(self._run("dev", like, "--split=dev", path=dev))
        (serialized,) = tf.data.TFRecordDataset(
            tfrecords.find_files(self.path("dev")), "GZIP"
        )
        example = tf.train.Example.FromString(serialized.numpy())
        number = example.features.feature["number"].float_list.value
        self.assertEqual([1.0], number)

    def test_records_with_the_same_id(self):
        path = self._write_rows([*self.rows, self.rows[3]])
        vocab = f"--vocab_file={self.vocab_file}"
        self.assert_fails(
            self._run("train", vocab, path=path),
            r"record 12 \(id 'small_3'\), field 'id': an earlier record has",
        )
        out = self._train("--skip_bad_records", path=path)
        self.assertIn("Skipped 1 bad records", out)
        stats = tasks.read_json(self.path("train", "stats.json"))
        self.assertEqual({"duplicate 'id'": 1}, stats["records_dropped_why"])
        self.assertEqual(
            [4, 4, 4],
            self._note("train")["preprocessing_config"]["label_counts"],
        )


if __name__ == "__main__":
    tf.test.main()
