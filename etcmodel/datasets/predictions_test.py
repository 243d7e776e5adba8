import io
import json

import numpy as np
import tensorflow as tf

from etcmodel.datasets import predictions


class PredictionsTest(tf.test.TestCase):
    def test_one_object_as_the_official_scripts_read_it(self):
        stream = io.StringIO()
        predictions.write_predictions({"a": "Ä", "b": 'x"'}, stream)
        self.assertEqual({"a": "Ä", "b": 'x"'}, json.loads(stream.getvalue()))
        self.assertIn("Ä", stream.getvalue())

    def test_numbers_have_the_fewest_digits(self):
        """Digits identify a float32 number, and keep other numbers."""
        stream = io.StringIO()
        third = float(np.float32(1 / 3))
        row = {"a": [third, 1 / 3, 123456792.0], "b": {"c": (0.5, 3, None)}}
        predictions.write_lines([row], stream)
        self.assertEqual(
            '{"a": [0.33333334, 0.3333333333333333, 123456792.0], '
            '"b": {"c": [0.5, 3, null]}}\n',
            stream.getvalue(),
        )

    def test_lines(self):
        """A lone surrogate, which UTF-8 cannot encode, becomes "?"."""
        stream = io.StringIO()
        predictions.write_lines([{"a": "Ä"}, {"b": ["\ud83d"]}], stream)
        self.assertEqual('{"a": "Ä"}\n{"b": ["?"]}\n', stream.getvalue())


if __name__ == "__main__":
    tf.test.main()
