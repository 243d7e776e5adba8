"""Tests of reading rows from Python collections."""

import datasets
import numpy as np
import pandas as pd
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.readers import python_rows

_ROWS = [{"id": "1", "text": "Brno"}, {"id": "2", "text": "Znojmo, Zlín"}]


class RowsOfTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (["Brno", "Zlín"], [{"text": "Brno"}, {"text": "Zlín"}]),
        (iter(_ROWS), _ROWS),
        ({"id": ["1", "2"], "n": np.arange(2)}, [("1", 0), ("2", 1)]),
        (
            pd.DataFrame(
                {"features": ["1", None], "n": [1.5, np.nan], 7: [1, 2]}
            ),
            [
                {"features": "1", "n": 1.5, "7": 1},
                {"features": None, "n": None, "7": 2},
            ],
        ),
        (
            [{"a": np.array([["b"]]), "c": (np.float32(0.5), b"d")}],
            [{"a": [["b"]], "c": [0.5, "d"]}],
        ),
        (
            [{"a": [np.nan, {"b": pd.NA}], "c": -0.0}],
            [{"a": [None, {"b": None}], "c": -0.0}],
        ),
    )
    def test_collections(self, source, expected):
        expected = [
            x if isinstance(x, dict) else dict(zip(("id", "n"), x, strict=True))
            for x in expected
        ]
        rows = list(python_rows.rows_of(source))
        self.assertEqual(expected, rows)
        for row in rows:
            for value in row.values():
                self.assertEqual("builtins", type(value).__module__)

    def test_tf_data(self):
        ragged = tf.ragged.constant([["a", "b"], []])
        data = tf.data.Dataset.from_tensor_slices(
            {"text": ["Brno", "Zlín"], "labels": ragged, "n": [1, 2]}
        )
        self.assertEqual(
            [
                {"text": "Brno", "labels": ["a", "b"], "n": 1},
                {"text": "Zlín", "labels": [], "n": 2},
            ],
            list(python_rows.rows_of(data)),
        )
        texts = tf.data.Dataset.from_tensor_slices(["Brno"])
        self.assertEqual([{"text": "Brno"}], list(python_rows.rows_of(texts)))

    def test_hugging_face(self):
        """Integers of a `ClassLabel` become names; -1 means no class."""
        kind = datasets.ClassLabel(names=["bad", "good"])
        data = datasets.Dataset.from_dict(
            {"text": ["Brno", "Zlín"], "label": [1, -1], "labels": [[], [0]]},
            datasets.Features(
                {
                    "text": datasets.Value("string"),
                    "label": kind,
                    "labels": datasets.Sequence(kind),
                }
            ),
        )
        expected = [
            {"text": "Brno", "label": "good", "labels": []},
            {"text": "Zlín", "label": None, "labels": ["bad"]},
        ]
        self.assertEqual(expected, list(python_rows.rows_of(data)))
        stream = data.to_iterable_dataset()
        self.assertEqual(expected, list(python_rows.rows_of(stream)))
        with self.assertRaisesRegex(TypeError, "a dict of datasets"):
            list(python_rows.rows_of(datasets.DatasetDict({"dev": data})))

    def test_formats_and_batches_of_hugging_face(self):
        kind = datasets.ClassLabel(names=["bad", "good"])
        features = {"text": datasets.Value("string"), "label": kind}
        data = datasets.Dataset.from_dict(
            {"text": ["a", "b"], "label": [0, 1]}, datasets.Features(features)
        )
        expected = list(python_rows.rows_of(data))
        self.assertEqual(["bad", "good"], [x["label"] for x in expected])
        for name in ("pandas", "arrow", "numpy"):
            rows = python_rows.rows_of(data.with_format(name))
            self.assertEqual(expected, list(rows))
        with self.assertRaisesRegex(TypeError, "lists of 2 values.*batched"):
            list(python_rows.rows_of(data.batch(2)))

    def test_batches_of_tf_data(self):
        """Rejects a batch of two, which looks like a row with two labels."""
        data = tf.data.Dataset.from_tensor_slices(
            {"text": ["a", "b"], "label": ["x", "y"]}
        ).batch(2)
        with self.assertRaisesRegex(TypeError, "2 values.*to be batched"):
            list(python_rows.rows_of(data))
        # One document with a boolean for each paragraph is not a batch.
        data = tf.data.Dataset.from_tensors(
            {"text": ["a", "b"], "selected": [True, False]}
        )
        expected = {"text": ["a", "b"], "selected": [True, False]}
        self.assertEqual([expected], list(python_rows.rows_of(data)))

    def test_text_field(self):
        rows = python_rows.rows_of(iter(["a"]), text_field="body")
        self.assertEqual([{"body": "a"}], list(rows))

    @parameterized.parameters(
        ("data.csv", TypeError, "Got 'data.csv', expected rows"),
        (5, TypeError, "Got 5"),
        ([5], TypeError, "Element 0 is 5"),
        ({"text": "Brno"}, TypeError, "Column 'text' is 'Brno'"),
        ({"text": {0: "Brno"}}, TypeError, "Column 'text' is {0: 'Brno'}, exp"),
        ([{7: "a", "7": "b"}], UserError, "two columns have the name '7'"),
        ({"a": [1], "b": [1, 2]}, ValueError, "{'a': 1, 'b': 2}"),
    )
    def test_errors(self, source, error, message):
        with self.assertRaisesRegex(error, message):
            list(python_rows.rows_of(source))


if __name__ == "__main__":
    tf.test.main()
