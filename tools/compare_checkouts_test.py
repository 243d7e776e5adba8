import json
import pathlib
import tempfile
import unittest

import tensorflow as tf

from tools import compare_checkouts


def _example(**values):
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=x))
                for name, x in values.items()
            }
        )
    ).SerializeToString()


class CompareCheckoutsTest(unittest.TestCase):
    def folder(self, examples, **stats):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        folder = pathlib.Path(folder.name)
        (folder / "stats.json").write_text(json.dumps(stats))
        (folder / "features.json").write_text("{}")
        with tf.io.TFRecordWriter(
            str(folder / "train-0.tfrecord.gz"),
            tf.io.TFRecordOptions(compression_type="GZIP"),
        ) as writer:
            for example in examples:
                writer.write(example)
        return folder

    def test_differences(self):
        ids, more = _example(ids=[1, 2]), _example(ids=[1, 2], more=[])
        first = self.folder([ids, ids], input="a", tokens=3)
        same = self.folder([ids, ids], input="b", tokens=3)
        compare = compare_checkouts.differences
        self.assertEqual([], compare(first, same, ["input"]))
        self.assertEqual(["stats.json: input: a -> b"], compare(first, same))
        other = self.folder([ids, _example(ids=[2, 1])], input="a")
        self.assertEqual(
            ["stats.json: tokens: 3 -> None", "example 1: ids differs"],
            compare(first, other),
        )
        fewer = self.folder([more], input="a", tokens=3)
        self.assertEqual(
            ["examples: 2 -> 1", "example 0: more differs"],
            compare(first, fewer),
        )


if __name__ == "__main__":
    unittest.main()
