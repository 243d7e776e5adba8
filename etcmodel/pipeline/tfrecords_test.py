import os
import tempfile

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords


class TfrecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())

    def _write(self, directory, num_records, num_shards, **metadata):
        os.makedirs(directory, exist_ok=True)
        with tfrecords.ShardedWriter(directory, "train", num_shards) as writer:
            for i in range(num_records):
                writer.write(b"%d" % i)
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
        self.assertEqual([[b"0", b"3"], [b"1", b"4"], [b"2"]], content)
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
            {**note, "directory": first}, tfrecords.read_metadata(paths)
        )
        self.assertIsNone(tfrecords.read_metadata([]))
        plain = self._write(os.path.join(self.root, "c"), 1, 1)
        self.assertIsNone(tfrecords.read_metadata(plain))
        note["vocab_fingerprint"] = "cd"
        paths += self._write(os.path.join(self.root, "b"), 1, 1, **note)
        with self.assertRaisesRegex(UserError, "vocab_fingerprint"):
            tfrecords.read_metadata(paths)

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
