import io
import json

import tensorflow as tf

from etcmodel.datasets import predictions


class PredictionsTest(tf.test.TestCase):
    def test_one_object_as_the_official_scripts_read_it(self):
        stream = io.StringIO()
        predictions.write_predictions({"a": "Ä", "b": 'x"'}, stream)
        self.assertEqual({"a": "Ä", "b": 'x"'}, json.loads(stream.getvalue()))
        self.assertIn("Ä", stream.getvalue())

    def test_lines(self):
        """A lone surrogate, which UTF-8 cannot encode, becomes "?"."""
        stream = io.StringIO()
        predictions.write_lines([{"a": "Ä"}, {"b": ["\ud83d"]}], stream)
        self.assertEqual('{"a": "Ä"}\n{"b": ["?"]}\n', stream.getvalue())


if __name__ == "__main__":
    tf.test.main()
