import os
import re
import shutil
import tempfile
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from etcmodel.training import damaged_records
from etcmodel.training import evaluation
from etcmodel.training import trainer
from testing import toy_task as toy
from testing.toy_task import write_records

_TASK, _CONFIG = trainer.task_classes(toy.TASK)
_NOTE = {
    "task": "toy",
    "format": tfrecords.FORMAT,
    "split": "dev",
    "preprocessing_config": {"long_length": 4, "global_length": 2},
    "vocab_file": "vocab.txt",
    "vocab_fingerprint": "f",
    "vocab_size": 200,
    "tokenizer": None,
    # Four records make seven windows.
    "num_examples": 7,
}


def _example(serialized=None, **ids):
    """Returns an example with changed integer features."""
    made = tf.train.Example.FromString(serialized or b"")
    for name, values in ids.items():
        made.features.feature[name].int64_list.value[:] = values
    return made.SerializeToString()


def _text(serialized, name, values):
    """Returns an example with a changed string feature."""
    made = tf.train.Example.FromString(serialized)
    made.features.feature[name].bytes_list.value[:] = values
    return made.SerializeToString()


class DamagedRecordsTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.good = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.good)
        write_records(cls.good)
        tfrecords.write_json(cls.good, tfrecords.METADATA_FILE, _NOTE)

    def setUp(self):
        super().setUp()
        self.data = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), "x")
        shutil.copytree(self.good, self.data)
        self.paths = tfrecords.find_files(self.data)
        self.records = [
            list(tf.data.TFRecordDataset(x, "GZIP").as_numpy_iterator())
            for x in self.paths
        ]
        self.assertEqual([4, 3], [len(x) for x in self.records])

    def _task(self, train=True):
        params = _CONFIG()
        params.model.encoder.preset = "tiny"
        params.train_data.input_path = self.data if train else ""
        params.train_data.global_batch_size = 2
        params.validation_data.input_path = self.data
        return _TASK(params)

    def _write(self, records, path=None):
        """Replaces the second file by one with the given examples."""
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        with tf.io.TFRecordWriter(path or self.paths[1], options) as writer:
            for record in records:
                writer.write(record)

    def _damage(self, change):
        with open(self.paths[1], "r+b") as stream:
            content = bytearray(stream.read())
            change(content)
            stream.seek(0)
            stream.truncate()
            stream.write(content)

    def _train(self, task):
        """Reads 20 batches of the repeated records, as training does."""
        batches = iter(task.build_inputs(task.task_config.train_data))
        for _ in range(20):
            next(batches)

    def _check(self, message, evaluates=True):
        """Asserts that training and evaluation name the file and record."""
        message = f"^{re.escape(self.paths[1])}{message}"
        error = damaged_records.find(self._task(train=False))
        self.assertRegex(str(error), message)
        if evaluates:
            with self.assertRaisesRegex(UserError, message):
                evaluation.read_records(
                    toy.TASK, toy.ToyPreprocessor.SCHEMA, self.data
                )
        return str(error)

    def test_intact_records(self):
        task = self._task()
        self._train(task)
        self.assertIsNone(damaged_records.find(task))
        for other, is_searched in (
            (tf.errors.DataLossError(None, None, "lost"), True),
            (tf.errors.InvalidArgumentError(None, None, "indices[3]"), True),
            # These errors are not about records, so the records are not read
            # again.
            (tf.errors.InvalidArgumentError(None, None, "of the model"), False),
            (tf.errors.ResourceExhaustedError(None, None, "OOM"), False),
        ):
            with (
                mock.patch.object(
                    damaged_records, "find", return_value=None
                ) as find,
                self.assertRaises(type(other)) as raised,
                damaged_records.explained(task),
            ):
                raise other
            self.assertIs(other, raised.exception)
            self.assertEqual(is_searched, find.called)

    def test_flipped_byte(self):
        def flip(content):
            content[len(content) // 2] ^= 1

        self._damage(flip)
        task = self._task()
        with (
            self.assertRaisesRegex(UserError, f"{self.paths[1]} is damaged"),
            damaged_records.explained(task),
        ):
            self._train(task)
        text = self._check(r" is damaged: inflate\(\) failed.*after 0 records")
        self.assertIn("Copy it again", text)

    def test_truncated_file(self):
        def cut(content):
            del content[len(content) // 2 :]

        self._damage(cut)
        text = self._check(" is damaged: truncated record at")
        self.assertIn("preprocess the data again", text)

    def test_flipped_byte_without_compression(self):
        """Without compression, the error gives the number of intact records."""
        path = os.path.join(self.data, "plain.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for record in self.records[0]:
                writer.write(record)
        with open(path, "r+b") as stream:
            content = stream.read()
            # Flips a byte of the last record, before the four bytes of its
            # checksum.
            stream.seek(len(content) - 10)
            stream.write(bytes([content[-10] ^ 1]))
        with self.assertRaisesRegex(
            UserError, f"{path} is damaged: corrupted record.*after 3 records"
        ):
            list(tfrecords.read_examples(path))

    def test_no_example(self):
        self._write([self.records[1][0], b"garbage"])
        self._check(r", record 1: ")

    def test_record_of_another_task(self):
        other = _text(_example(long_token_ids=[1]), "example_id", [b"z"])
        self._write([*self.records[1], other])
        text = self._check(
            r", record 3 \(id 'z'\): Feature: longest .*could not be found; "
            "expected a record of the task toy with global_length=2, "
            r"long_length=4\. Copy",
            # Evaluation skips this example, since it has no answer.
            evaluates=False,
        )
        self.assertNotIn("{{", text)

    def test_longer_record(self):
        first, *rest = self.records[1]
        self._write([_example(first, long_token_ids=[7] * 9), *rest])
        self._check(
            r", record 0 \(id '\w+'\): .*'long_token_ids' of an .* is longer "
            "than 4.*expected a record of the task toy with .*long_length=4",
            evaluates=False,
        )

    def test_tokens_of_another_vocabulary(self):
        first, *rest = self.records[1]
        self._write([first, _example(rest[0], long_token_ids=[7, 200])])
        error = damaged_records.find(self._task(train=False))
        self.assertRegex(
            str(error),
            "record 1.*long_token_ids: expected 0 to 199.*It has:.*200",
        )
        # Training raises this error as well, even if XLA compiles the model.
        task = self._task()
        with (
            self.assertRaisesRegex(UserError, "record 1.*long_token_ids"),
            damaged_records.explained(task),
        ):
            self._train(task)

    @parameterized.parameters(b"[3, 4]", b"{", b'["a"]')
    def test_answers_of_another_task(self, gold):
        first, *rest = self.records[1]
        self._write([*rest, _text(first, "gold", [gold])])
        with self.assertRaisesRegex(
            UserError,
            rf"{self.paths[1]}, record 2 \(id '\w+'\) is not a record of the "
            "task toy: its answer cannot be read",
        ):
            # All windows of a record store its answer; only the first window's
            # is read.
            with mock.patch.object(
                tfrecords, "find_files", lambda _: self.paths[1:]
            ):
                evaluation.read_records(
                    toy.TASK, toy.ToyPreprocessor.SCHEMA, self.data
                )

    def test_missing_file(self):
        task = self._task()
        with (
            self.assertRaisesRegex(UserError, f"{self.data} lacks 1 of 2 sh"),
            damaged_records.explained(task),
        ):
            dataset = task.build_inputs(task.task_config.train_data)
            os.remove(self.paths[1])
            for _ in zip(range(20), dataset, strict=False):
                pass

    @parameterized.parameters(True, False)
    def test_counts_while_evaluating(self, is_listed):
        """Checks record counts even if only their total is stored."""
        if is_listed:
            tfrecords.write_json(
                self.data,
                tfrecords.METADATA_FILE,
                {
                    **_NOTE,
                    "shards": {
                        os.path.basename(path): {
                            "examples": len(records),
                            "bytes": os.path.getsize(path),
                        }
                        for path, records in zip(
                            self.paths, self.records, strict=True
                        )
                    },
                },
            )
        read = tfrecords.read_stored
        self.assertLen(list(read(self.data)), 7)
        self._write(self.records[1][:2])
        message = "has .* bytes" if is_listed else "holds 6 rec.* says 7.*Copy"
        with self.assertRaisesRegex(UserError, message):
            list(read(self.data))
        # Without counts per file, a part of the files is not checked.
        self.assertLen(list(read(self.paths[0])), 4)


if __name__ == "__main__":
    tf.test.main()
