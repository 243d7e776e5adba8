import json
import pathlib
import tempfile
import unittest
from unittest import mock

import tensorflow as tf

from testing import helpers
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
        (folder / "preprocessing_config.json").write_text("{}")
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

    def test_predictions_of_the_same_weights(self):
        """The weights of the first one; each checkout answers itself."""

        def run(checkout, command, *arguments):
            options = dict(
                x.removeprefix("--").split("=", 1) for x in arguments
            )
            if command == "export":
                # A weight, or two of them, of this checkout.
                module = tf.Module()
                module.x = tf.Variable([float(x) for x in checkout.name])
                tf.saved_model.save(module, options["output_dir"])
            if command == "predict":
                model = tf.saved_model.load(options["saved_model"])
                answer = ["answer", str(model.x.numpy().tolist())]
                if checkout.name == "3":
                    answer.append("one more")
                pathlib.Path(options["output"]).write_text("\n".join(answer))

        def compare(*names):
            with tempfile.TemporaryDirectory() as work:
                return compare_checkouts.compare_predictions(
                    [pathlib.Path(name) for name in names],
                    "wikihop",
                    pathlib.Path(work),
                )

        with (
            mock.patch.object(compare_checkouts, "run", run),
            mock.patch.object(helpers, "real_data_path", lambda path: path),
        ):
            self.assertEqual([], compare("1", "2"))
            self.assertEqual(["line 3: nothing -> one more"], compare("1", "3"))
            (found,) = compare("1", "12")
            self.assertRegex(found, r"variables: .*\[1\].* -> .*\[2\]")


if __name__ == "__main__":
    unittest.main()
