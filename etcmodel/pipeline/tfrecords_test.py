import os
import tempfile

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.feature_utils import etc_features
from etcmodel.pipeline import tfrecords


def _example(number):
    """Returns an example of `number + 1` tokens."""
    return etc_features.serialize(
        {"long_token_ids": [7] * (number + 1), "global_token_ids": [8]}
    )


class TfrecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())

    def _write(self, directory, num_records, num_shards, **metadata):
        os.makedirs(directory, exist_ok=True)
        with tfrecords.ShardedWriter(directory, "train", num_shards) as writer:
            for i in range(num_records):
                writer.write(_example(i))
        self.assertEqual(num_records, writer.count)
        if metadata:
            tfrecords.write_json(
                directory, "preprocessing_config.json", metadata
            )
        return writer.paths

    def test_distributes_records(self):
        paths = self._write(self.root, 5, 3)
        self.assertEqual(
            [f"train-0000{i}-of-00003.tfrecord.gz" for i in range(3)],
            [os.path.basename(path) for path in paths],
        )
        content = [
            list(tf.data.TFRecordDataset(path, "GZIP").as_numpy_iterator())
            for path in paths
        ]
        expected = [[_example(i) for i in x] for x in ([0, 3], [1, 4], [2])]
        self.assertEqual(expected, content)
        self.assertEqual("GZIP", tfrecords.compression_type(paths))

    def test_finds_files(self):
        paths = self._write(self.root, 2, 2)
        for given in (
            self.root,
            [self.root],
            ",".join(paths),
            os.path.join(self.root, "train-*"),
        ):
            self.assertEqual(paths, tfrecords.find_files(given))
        for given in ("", "/no/such/dir", os.path.join(self.root, "dev-*")):
            with self.assertRaisesRegex(UserError, "preprocess"):
                tfrecords.find_files(given)

    def test_reads_examples(self):
        def example(name, number):
            made = tf.train.Example()
            feature = made.features.feature
            feature["example_id"].bytes_list.value.append(name.encode())
            feature["number"].int64_list.value.append(number)
            return made.SerializeToString()

        names = ["a", "-7", "\u00e9"]
        with tfrecords.ShardedWriter(self.root, "dev", 2) as sharded:
            for number, name in enumerate(names):
                sharded.write(example(name, number))
        plain = os.path.join(self.root, "plain.tfrecord")
        with tf.io.TFRecordWriter(plain) as writer:
            writer.write(example("b", 5))

        def read(path):
            return [
                (name, stored["number"].int64_list.value[0])
                for name, _, stored in tfrecords.read_examples(path)
            ]

        # Files are read one after the other; the second record is in another
        # file.
        expected = [("a", 0), ("\u00e9", 2), ("-7", 1)]
        self.assertEqual(expected, read(self.root))
        self.assertEqual(expected, read(",".join(sharded.paths)))
        self.assertEqual([("b", 5)], read(plain))
        self.assertEqual("", tfrecords.compression_type([plain]))
        with self.assertRaisesRegex(UserError, "/no/such/dir"):
            read("/no/such/dir")

    def test_metadata(self):
        note = {
            "task": "x",
            "split": "train",
            "format": tfrecords.FORMAT,
            "preprocessing_config": {"long_length": 8},
            "vocab_file": "vocab.txt",
            "vocab_fingerprint": "ab",
            "vocab_size": 9,
            "tokenizer": None,
            "num_examples": 3,
        }
        first = os.path.join(self.root, "a")
        paths = self._write(first, 1, 1, **note)
        self.assertEqual(
            {**note, "directory": first, "longest": {}},
            tfrecords.read_metadata(paths),
        )
        self.assertIsNone(tfrecords.read_metadata([]))
        plain = self._write(os.path.join(self.root, "c"), 1, 1)
        self.assertIsNone(tfrecords.read_metadata(plain))
        note["vocab_fingerprint"] = "cd"
        paths += self._write(os.path.join(self.root, "b"), 1, 1, **note)
        with self.assertRaisesRegex(UserError, "vocab_fingerprint"):
            tfrecords.read_metadata(paths)

    def test_longest_inputs(self):
        """Files know their longest inputs, without another reading."""
        with tfrecords.ShardedWriter(self.root, "train", 2) as writer:
            for number in (4, 1, 2, 3):
                writer.write(_example(number))
        described = writer.describe()
        for path in writer.paths:
            self.assertEqual(
                described[os.path.basename(path)],
                tfrecords.describe_shard(path),
            )
        note = {
            "task": "x",
            "split": "train",
            "format": tfrecords.FORMAT,
            "preprocessing_config": {},
            "vocab_file": "vocab.txt",
            "vocab_fingerprint": "ab",
            "vocab_size": 9,
            "tokenizer": None,
            "num_examples": 4,
            "shards": described,
        }
        tfrecords.write_json(self.root, "preprocessing_config.json", note)
        first, second = writer.paths
        for files, number, length in (
            ([first], 2, 5),
            ([second], 2, 4),
            ([second, first], 4, 5),
        ):
            found = tfrecords.read_metadata(files)
            self.assertEqual(number, found["num_examples"])
            self.assertEqual(
                {"long_length": length, "global_length": 1}, found["longest"]
            )
        # A pattern may select a directory's empty files only.
        other = os.path.join(self.root, "other")
        os.makedirs(other)
        with tfrecords.ShardedWriter(other, "dev", 1) as empty:
            pass
        tfrecords.write_json(
            other,
            "preprocessing_config.json",
            {**note, "num_examples": 0, "shards": empty.describe()},
        )
        found = tfrecords.read_metadata([first, *empty.paths])
        self.assertEqual(
            {"long_length": 5, "global_length": 1}, found["longest"]
        )
        # Files of another version, or of another program, lack the lengths.
        del described[os.path.basename(second)]["long_length"]
        tfrecords.write_json(self.root, "preprocessing_config.json", note)
        found = tfrecords.read_metadata(writer.paths)
        self.assertEqual({"global_length": 1}, found["longest"])

    def test_longest_of_several_directories(self):
        """A length is known only if all of them know it."""
        short = {"long_length": 3, "global_length": 9}
        long = {"long_length": 7, "examples": 2}
        self.assertEqual({"long_length": 7}, tfrecords.longest([short, long]))
        self.assertEqual({}, tfrecords.longest([short, {}]))
        empty = {"examples": 0, "bytes": 20}
        self.assertEqual(short, tfrecords.longest([short, empty]))
        self.assertEqual({}, tfrecords.longest([]))

    def test_json_is_readable(self):
        tfrecords.write_json(self.root, "x.json", {"b": 1, "a": "\u00e9"})
        with open(os.path.join(self.root, "x.json"), encoding="utf-8") as f:
            self.assertEqual('{"a":"\u00e9","b":1}', "".join(f.read().split()))

    def test_fingerprint(self):
        path = os.path.join(self.root, "x")
        with open(path, "wb") as stream:
            stream.write(b"abc")
        # The SHA-256 of "abc", from FIPS 180-2.
        self.assertEqual("ba7816bf8f01cfea", tfrecords.fingerprint(path))


if __name__ == "__main__":
    tf.test.main()
