"""Tests of finding missing, truncated and foreign shards before training."""

import os
import shutil
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.pipeline import shards
from etcmodel.pipeline import tfrecords

_NOTE = {
    "task": "x",
    "split": "train",
    "format": tfrecords.FORMAT,
    "preprocessing_config": {"long_length": 8},
    "vocab_file": "vocab.txt",
    "vocab_fingerprint": "ab",
    "vocab_size": 100,
    "tokenizer": {"lower_case": True},
}


def write_shards(directory, num_records=7, num_shards=4, stem="train", **note):
    """Writes records and `preprocessing_config.json` as `preprocess` does."""
    os.makedirs(directory, exist_ok=True)
    with tfrecords.ShardedWriter(directory, stem, num_shards) as writer:
        for i in range(num_records):
            writer.write(etc_features.serialize({}, {"x": f"{i}" * 50}))
    note = {
        **_NOTE,
        "num_examples": writer.count,
        "shards": writer.describe(),
        **note,
    }
    note = {name: value for name, value in note.items() if value is not None}
    tfrecords.write_json(directory, "preprocessing_config.json", note)
    return writer.paths


class ShardsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())
        self.data = os.path.join(self.root, "a")

    def _number(self, input_path):
        """Returns the number of examples that the metadata give for a path."""
        files = tfrecords.find_files(input_path)
        return tfrecords.read_metadata(files)["num_examples"]

    def test_describes_shards(self):
        paths = write_shards(self.data)
        found = tfrecords.read_metadata(paths)["shards"]
        self.assertEqual(
            {
                os.path.basename(path): {
                    # Seven records in four files.
                    "examples": number,
                    "bytes": os.path.getsize(path),
                }
                for path, number in zip(paths, (2, 2, 2, 1), strict=True)
            },
            found,
        )

    def test_counts_only_given_files(self):
        paths = write_shards(self.data)
        write_shards(os.path.join(self.root, "b"), num_records=5)
        for given, expected in (
            (self.data, 7),
            (f"{self.root}/a,{self.root}/b", 12),
            (f"{self.root}/*/train-*", 12),
            (f"file://{self.data}", 7),
            # A pattern may select only some shards.
            (paths[0], 2),
            (f"{paths[0]},{paths[3]}", 3),
            (f"{self.data}/train-0000[13]-*", 3),
        ):
            self.assertEqual(expected, self._number(given), given)

    @parameterized.parameters(
        "{root}/a", "{root}/a/train-*", "{root}/*/train-*.gz"
    )
    def test_missing_shard(self, pattern):
        paths = write_shards(self.data)
        write_shards(os.path.join(self.root, "b"))
        for is_noted in (True, False):
            if not is_noted:
                # Without the metadata, file names show the number of shards.
                os.remove(os.path.join(self.data, "preprocessing_config.json"))
            if os.path.exists(paths[2]):
                os.remove(paths[2])
            with self.assertRaisesRegex(
                UserError,
                f"{self.data} lacks 1 of 4 shards: {os.path.basename(paths[2])}"
                ".*Copy.*preprocess",
            ):
                tfrecords.find_files(pattern.format(root=self.root))
        self.assertEqual(paths[:2], tfrecords.find_files(paths[:2]))

    def test_all_shards_of_a_directory_are_missing(self):
        paths = write_shards(self.data)
        write_shards(os.path.join(self.root, "b"))
        for path in paths:
            os.remove(path)
        with self.assertRaisesRegex(UserError, f"{self.data} lacks 4 of 4"):
            tfrecords.find_files(f"{self.root}/*/train-*")
        with self.assertRaisesRegex(UserError, f"No TFRecord.*{self.data}"):
            tfrecords.find_files(self.data)

    @parameterized.parameters(0, 10, 90)
    def test_truncated_shard(self, size):
        paths = write_shards(self.data)
        before = os.path.getsize(paths[3])
        size = min(size, before - 1)
        os.truncate(paths[3], size)
        for given in (self.data, paths[3], f"file://{self.data}"):
            with self.assertRaisesRegex(
                UserError,
                f"{paths[3]} has {size} bytes, but "
                f"preprocessing_config.json says {before}.*truncated.*prep",
            ):
                tfrecords.find_files(given)
        # Files can be found if the truncated shard is not among them.
        self.assertLen(tfrecords.find_files(paths[:3]), 3)

    @parameterized.parameters(None, "preprocessing_config.json")
    def test_empty_file_without_a_list_of_shards(self, note):
        """Finds an empty file although the metadata list no sizes."""
        paths = write_shards(self.data, shards=None)
        if note is None:
            os.remove(os.path.join(self.data, "preprocessing_config.json"))
        self.assertLen(tfrecords.find_files(self.data), 4)
        os.truncate(paths[3], 0)
        with self.assertRaisesRegex(UserError, f"{paths[3]} has 0 bytes"):
            tfrecords.find_files(self.data)

    def test_fewer_records_than_shards(self):
        """Accepts shards without records."""
        paths = write_shards(self.data, num_records=1)
        self.assertEqual(paths, tfrecords.find_files(self.data))
        self.assertEqual(1, self._number(self.data))

    def test_foreign_shard(self):
        paths = write_shards(self.data)
        other = os.path.join(self.data, "dev-00000-of-00001.tfrecord.gz")
        shutil.copy(paths[0], other)
        for given in (self.data, other):
            with self.assertRaisesRegex(
                UserError,
                f"{other}.*not one of the 4 shards.*preprocessing_config.json",
            ):
                tfrecords.find_files(given)
        # A pattern that does not match the foreign file finds the shards.
        pattern = os.path.join(self.data, "train-*")
        self.assertEqual(paths, tfrecords.find_files(pattern))

    @parameterized.parameters(
        ({"num_examples": None}, "'num_examples' is missing"),
        ({"num_examples": 8}, "'num_examples' is 8, but .*shards hold 7"),
        ({"shards": {"x": 3}}, "shards.*'x'"),
        ({"shards": [1]}, "'shards' is .*, not an object"),
        ({"vocab_fingerprint": None}, "'vocab_fingerprint' is missing"),
        (
            {"preprocessing_config": 3},
            "'preprocessing_config' is 3, not an object",
        ),
        ({"tokenizer": 3}, "'tokenizer' is 3, not an object or null"),
        ({"tokenizer": {"x": 1}}, "'tokenizer': Unknown settings x."),
        ({"format": 1}, "another version.*Preprocess the data again"),
        ({"format": None}, "another version.*Preprocess the data again"),
    )
    def test_damaged_metadata(self, note, message):
        write_shards(self.data, **note)
        with self.assertRaisesRegex(UserError, f"{self.data}.*{message}"):
            self._number(self.data)

    def test_counts(self):
        """Record counts reveal a replaced file even if its size is the same."""
        paths = write_shards(self.data)
        shards.check_counts(dict(zip(paths, (2, 2, 2, 1), strict=True)))
        shards.check_counts({paths[3]: 1})
        with self.assertRaisesRegex(
            UserError,
            f"{paths[3]} holds 2 records, but preprocessing_config.json says 1",
        ):
            shards.check_counts({paths[0]: 2, paths[3]: 2})

    def test_compression_of_all_files(self):
        paths = write_shards(self.data)
        self.assertEqual("GZIP", tfrecords.compression_type(paths))
        plain = os.path.join(self.root, "plain.tfrecord")
        with tf.io.TFRecordWriter(plain) as writer:
            writer.write(b"1")
        self.assertEqual("", tfrecords.compression_type([plain]))
        with self.assertRaisesRegex(
            UserError, f"{paths[0]} is gzipped, but {plain} is not"
        ):
            tfrecords.compression_type([plain, *paths])


if __name__ == "__main__":
    tf.test.main()
