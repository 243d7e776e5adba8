"""Rows of files and of Python collections."""

import gzip
import json
import os
import sys
from unittest import mock

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import tensorflow as tf
from absl.testing import parameterized
from pyarrow import parquet

from etcmodel.datasets import python_rows
from etcmodel.datasets import tables
from etcmodel.datasets.json_stream import INVALID_UTF8_MARK
from etcmodel.errors import UserError

_ROWS = [{"id": "1", "text": "Brno"}, {"id": "2", "text": "Znojmo, Zlín"}]
_JSON_LINES = "".join(json.dumps(x) + "\n" for x in _ROWS)
_CSV = 'id,text\n1,Brno\n\n2,"Znojmo, Zlín"\n'
_TSV = "id\ttext\n1\tBrno\n2\tZnojmo, Zlín\n"


class ReadRowsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, name, content):
        path = os.path.join(self.get_temp_dir(), name)
        content = content.encode() if isinstance(content, str) else content
        with open(path, "wb") as stream:
            stream.write(content)
        return path

    def _read(self, name, content, **kwargs):
        read = list(tables.read_rows(self._write(name, content), **kwargs))
        self.assertEqual(list(range(len(read))), [x.index for x, _ in read])
        return [row for _, row in read]

    @parameterized.parameters(
        ("a.jsonl", _JSON_LINES),
        ("a.json", json.dumps(_ROWS, indent=1)),
        ("a.ndjson.gz", gzip.compress(_JSON_LINES.encode())),
        ("a.csv", _CSV),
        ("a.CSV", "\ufeff\n" + _CSV.replace("\n", "\r\n")),
        ("a.csv", " \n\t\n" + _CSV),
        ("a.tsv", " \n\t\n" + _TSV),
        ("a.csv", 'id;"text"\n1;Brno\n2;Znojmo, Zlín'),
        ("a.csv.gz", gzip.compress(_CSV.encode())),
        ("a.tsv", _TSV),
        # By their content.
        ("a", json.dumps(_ROWS)),
        ("a", _JSON_LINES),
        ("a.data", _CSV),
        ("a.txt", _TSV),
    )
    def test_kinds(self, name, content):
        positions = []
        rows = self._read(name, content, on_position=positions.append)
        self.assertEqual(_ROWS, rows)
        self.assertEqual(sorted(positions), positions)
        size = os.path.getsize(self._write(name, content))
        self.assertEqual(size, positions[-1])

    def test_cells(self):
        """Quotes, line breaks, lists, and a cell of five million characters."""
        long = "word " * 1_000_000
        rows = self._read(
            "a.csv",
            'text,labels,empty\n"say ""a"",\n\nb",["a"],\n'
            f'{long},"[""a"", ""b""]",\n[1,[1] One,[]\n',
        )
        self.assertEqual(
            [
                {"text": 'say "a",\n\nb', "labels": ["a"], "empty": ""},
                {"text": long, "labels": ["a", "b"], "empty": ""},
                {"text": "[1", "labels": "[1] One", "empty": []},
            ],
            rows,
        )

    def test_lists_that_pandas_wrote(self):
        """Python would join the strings of NumPy's print."""
        lists = [["a", "it's"], np.array(["b", "c"]), [(0, 1)]]
        frame = pd.DataFrame({"labels": lists})
        rows = self._read("a.csv", frame.to_csv(index=False))
        self.assertEqual(
            [["a", "it's"], ["b", "c"], [[0, 1]]], [x["labels"] for x in rows]
        )

    @parameterized.parameters(
        # In quotes, as pandas writes them.
        ('"say ""a"""\tpos\nb\tneg\n', ['say "a"', "b"]),
        ('"a\tb"\tpos\n"c\n\td"\tneg\n', ["a\tb", "c\n\td"]),
        ('"a\n\nb ""c""\n"\tpos\r\nd\tneg', ['a\n\nb "c"\n', "d"]),
        # Quotes of the text itself.
        ('"a" b\tpos\n5" disk\tneg\n', ['"a" b', '5" disk']),
        ('"a, she said\tpos\n"b" or "c\tneg', ['"a, she said', '"b" or "c']),
    )
    def test_quotes_of_tsv(self, lines, expected):
        rows = self._read("a.tsv", f"text\tlabel\n{lines}")
        self.assertEqual(expected, [x["text"] for x in rows])
        self.assertEqual(["pos", "neg"], [x["label"] for x in rows])

    def test_open_quote_of_tsv(self):
        """A row that lacks a cell does not swallow the next one."""
        path = self._write("a.tsv", 'text\tlabel\n"a\nb\tneg\n')
        places, (bad, good) = zip(*tables.read_rows(path), strict=True)
        self.assertEqual(((0, 2), (1, 3)), places)
        self.assertIn("has 1 cells", bad.problem)
        self.assertEqual({"text": "b", "label": "neg"}, good)

    @parameterized.parameters('"a\tpos\nb"\tneg\n', '"a\tpos\n\nb"\tneg\n')
    def test_tsv_that_can_be_read_in_two_ways(self, lines):
        """Two rows, or one whose first cell has a tab and a line break."""
        with self.assertRaisesRegex(UserError, "line 2: the quote.*or begin a"):
            self._read("a.tsv", f"text\tlabel\n{lines}")
        # Other rows may tell.
        row = '"c\nd"\tpos\n'
        first, _ = self._read("a.tsv", f"text\tlabel\n{lines}{row}")
        self.assertStartsWith(first["text"], "a\tpos\n")
        first, *_ = self._read("a.tsv", f'text\tlabel\n{lines}"c" d\tpos\n')
        self.assertEqual({"text": '"a', "label": "pos"}, first)

    def test_tsv_of_one_column(self):
        rows = self._read("a.tsv", 'text\n"a" b\n"c"\n')
        self.assertEqual([{"text": '"a" b'}, {"text": "c"}], rows)

    def test_quotes_of_tsv_behind_a_blank_line(self):
        (row,) = self._read("a.tsv", ' \ntext\tlabel\n"a\tb"\tpos\n')
        self.assertEqual({"text": "a\tb", "label": "pos"}, row)

    def test_rows_of_other_lengths(self):
        path = self._write("a.csv", '\nid,text\n1,"a\nb"\n2\n\n3,c,d\n')
        places, rows = zip(*tables.read_rows(path), strict=True)
        self.assertEqual(((0, 3), (1, 5), (2, 7)), places)
        good, short, long = rows
        self.assertEqual({"id": "1", "text": "a\nb"}, good)
        self.assertIn("has 1 cells, but the header row has 2", short.problem)
        self.assertIn("has 3 cells", long.problem)

    @parameterized.parameters("a.csv", "a.tsv")
    def test_lines_behind_a_long_one(self, name):
        content = f"id,text\n1,{'a b ' * 300_000}\n2,c\n"
        path = self._write(name, content.replace(",", "\t"))
        (_, long), (place, row) = tables.read_rows(path)
        self.assertLen(long["text"], 1_200_000)
        self.assertEqual(((1, 3), {"id": "2", "text": "c"}), (place, row))

    def test_encodings(self):
        (row,) = self._read("a.csv", "text\nZlín\n".encode("latin-1"))
        self.assertEqual({"text": f"Zl{INVALID_UTF8_MARK}n"}, row)
        with self.assertRaisesRegex(UserError, "a.csv: its header row is not"):
            self._read("a.csv", "id,text\n1,Zlín\n".encode("utf-16"))

    @parameterized.parameters(
        ("a.csv", "", "is empty"),
        ("a.csv", "id,text,text\n1,2,3", "names 'text' twice"),
        ("a.csv", 'text\n"a', "line 2: the row that begins there is broken"),
        ("a", "Some text", "its kind is not clear. Expected JSON lines"),
        ("a.jsonl", '{"id": "1"}\n{"id', "line 2: the JSON ends too early"),
        (
            "a.parquet",
            b"PAR1 and so on",
            "data of Parquet or Arrow are damaged",
        ),
    )
    def test_errors(self, name, content, message):
        with self.assertRaisesRegex(UserError, message):
            self._read(name, content)

    def _write_parquet(self, table):
        path = self._write("a.parquet", b"")
        parquet.write_table(table, path)
        return path

    def test_parquet(self):
        values = [
            {"id": i, "sections": [{"title": "a", "paragraphs": [["b"], []]}]}
            for i in range(100)
        ]
        path = self._write_parquet(pa.Table.from_pylist(values))
        positions = []
        rows = list(tables.read_rows(path, positions.append))
        places = [(index, None) for index in range(100)]
        self.assertEqual(list(zip(places, values, strict=True)), rows)
        size = os.path.getsize(path)
        self.assertEqual([size * i // 100 for i in range(1, 101)], positions)
        renamed = path.removesuffix(".parquet")
        os.rename(path, renamed)
        self.assertLen(list(tables.read_rows(renamed)), 100)

    def test_parquet_that_is_not_utf8(self):
        text = pa.array([b"Brno", b"Zl\xedn"]).view(pa.string())
        path = self._write_parquet(pa.table({"id": [1, 2], "text": text}))
        self.assertEqual(
            [
                ((0, None), {"id": 1, "text": "Brno"}),
                ((1, None), {"id": 2, "text": f"Zl{INVALID_UTF8_MARK}n"}),
            ],
            list(tables.read_rows(path)),
        )

    def test_parquet_without_pyarrow(self):
        path = self._write("a.parquet", b"")
        with (
            mock.patch.dict(sys.modules, pyarrow=None),
            self.assertRaisesRegex(UserError, "pip install pyarrow"),
        ):
            list(tables.read_rows(path))


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
        """Classes are stored as integers; -1 is none."""
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
        with self.assertRaisesRegex(TypeError, "several data sets"):
            list(python_rows.rows_of(datasets.DatasetDict({"dev": data})))

    def test_batches_of_tf_data(self):
        """Two documents would be one of two paragraphs with two labels."""
        data = tf.data.Dataset.from_tensor_slices(
            {"text": ["a", "b"], "label": ["x", "y"]}
        ).batch(2)
        with self.assertRaisesRegex(TypeError, "2 values.*to be batched"):
            list(python_rows.rows_of(data))
        # One document with a flag for each paragraph.
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
        ({"a": [1], "b": [1, 2]}, ValueError, "{'a': 1, 'b': 2}"),
    )
    def test_errors(self, source, error, message):
        with self.assertRaisesRegex(error, message):
            list(python_rows.rows_of(source))


if __name__ == "__main__":
    tf.test.main()
