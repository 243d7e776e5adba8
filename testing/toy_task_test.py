import io
import json

import tensorflow as tf

from etcmodel.datasets.records import Record
from testing import toy_task as toy


class ToyDatasetTest(tf.test.TestCase):
    def test_score(self):
        gold = {"x": "ccc", "y": "bb", "z": "a"}
        self.assertEqual(
            {"right": 1 / 3, "given": 2 / 3},
            toy.score({"x": "ccc", "y": "a", "z": ""}, gold),
        )
        self.assertEqual({"right": 0.0, "given": 0.0}, toy.score({}, gold))

    def test_predictions(self):
        stream = io.StringIO()
        toy.write_predictions({"x": "ccc"}, stream)
        self.assertEqual({"x": "ccc"}, json.loads(stream.getvalue()))

    def test_gold(self):
        self.assertEqual("bb", toy.gold(toy.ToyRecord("x", "a bb", "bb")))
        self.assertIsNone(toy.gold(toy.ToyRecord("x", "a bb")))
        self.assertIsInstance(toy.ToyRecord("x", "a"), Record)


if __name__ == "__main__":
    tf.test.main()
