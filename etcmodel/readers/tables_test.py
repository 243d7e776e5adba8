"""Tests of reading rows from JSON, CSV, TSV, Parquet and Arrow files."""

import csv
import gzip
import json
import os
from concurrent import futures

import fsspec
import numpy as np
import pandas as pd
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.readers import files
from etcmodel.readers import tables
from etcmodel.readers.json_values import INVALID_UTF8_MARK
from testing.helpers import write_file

_ROWS = [{"id": "1", "text": "Brno"}, {"id": "2", "text": "Znojmo, Zlín"}]
_JSON_LINES = "".join(json.dumps(x) + "\n" for x in _ROWS)
_CSV = 'id,text\n1,Brno\n\n2,"Znojmo, Zlín"\n'
_TSV = "id\ttext\n1\tBrno\n2\tZnojmo, Zlín\n"


class ReadRowsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, name, content):
        return write_file(self, content, name)

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
        # Formats recognized by the content.
        ("a", json.dumps(_ROWS)),
        ("a", _JSON_LINES),
        ("a.data", _CSV),
        ("a.txt", _TSV),
    )
    def test_formats(self, name, content):
        positions = []
        rows = self._read(name, content, on_position=positions.append)
        self.assertEqual(_ROWS, rows)
        self.assertEqual(sorted(positions), positions)
        size = os.path.getsize(self._write(name, content))
        self.assertEqual(size, positions[-1])

    def test_separator_line_of_excel(self):
        for content in ("sep=;\nid;text\n1;a,b\n", "SEP=|\r\nid|text\r\n1|a,b"):
            self.assertEqual(
                [{"id": "1", "text": "a,b"}], self._read("a.csv", content)
            )

    @parameterized.parameters("columns", "index", "split", "table", "")
    def test_tables_in_one_object(self, orient):
        """Rejects a table in one JSON object, which is not a record."""
        frame = pd.DataFrame({"text": ["a", "b"], "label": ["x", "y"]})
        if orient:
            content, kind = frame.to_json(orient=orient), f"orient='{orient}'"
        else:
            content, kind = json.dumps(frame.to_dict("list")), "columns"
        with self.assertRaisesRegex(UserError, f"{kind}.*one record per line"):
            self._read("a.json", content, used={"text", "label"})

    def test_one_record_that_is_not_a_table(self):
        for record in (
            {"id": "1", "text": ["a", "b"], "labels": ["x", "y"]},
            {"text": ["a", "b"], "labels": []},
        ):
            self.assertEqual([record], self._read("a.json", json.dumps(record)))
        # The suffix .jsonl means that each line is a record.
        record = {"text": ["a"], "labels": ["x"]}
        self.assertEqual([record], self._read("a.jsonl", json.dumps(record)))

    @parameterized.parameters("a.jsonl", "a.json")
    def test_repeated_fields(self, name):
        rows = ['{"text": "a", "id": 1, "text": "b"}', '{"text": "c"}']
        rows.append('{"text": [{"text": "d", "text": "e"}], "x": 1}')
        rows.append('{"x": {"y": 1, "y": 2}, "text": "f"}')
        content = "\n".join(rows)
        if name == "a.json":
            content = f"[{','.join(rows)}]"
        bad, good, nested, unused = self._read(name, content, used={"text"})
        self.assertIn("the field 'text' twice", bad.problem)
        self.assertEqual({"text": "c"}, good)
        self.assertIn("an object has 'text' twice", nested["text"].problem)
        self.assertEqual({"x": None, "text": "f"}, unused)

    def test_address_of_fsspec(self):
        """fsspec opens an address whose scheme TensorFlow does not support."""
        fsspec.filesystem("memory").pipe(
            "/tables/a.csv.gz", gzip.compress(_CSV.encode())
        )
        (path,) = files.find("memory://tables/*.gz")
        for address in (path, "memory://tables/a.csv.gz"):
            rows = [row for _, row in tables.read_rows(address)]
            self.assertEqual(_ROWS, rows)
        for address, message in (
            ("memory://tables/b.csv", "there is no such file"),
            ("nothing://tables/b.csv", "cannot be opened"),
        ):
            with self.assertRaisesRegex(UserError, message):
                files.find(address)

    def test_cells(self):
        """Reads quotes, line breaks, lists and very long cells."""
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
        """Separates adjacent strings of NumPy, which Python would join."""
        lists = [["a", "it's"], np.array(["b", "c"]), [(0, 1)]]
        frame = pd.DataFrame({"labels": lists})
        rows = self._read("a.csv", frame.to_csv(index=False))
        self.assertEqual(
            [["a", "it's"], ["b", "c"], [[0, 1]]], [x["labels"] for x in rows]
        )

    @parameterized.parameters(
        # Quoted cells, as pandas writes them.
        ('"say ""a"""\tpos\nb\tneg\n', ['say "a"', "b"]),
        ('"a\tb"\tpos\n"c\n\td"\tneg\n', ["a\tb", "c\n\td"]),
        ('"a\n\nb ""c""\n"\tpos\r\nd\tneg', ['a\n\nb "c"\n', "d"]),
        # Quotes that belong to the text.
        ('"a" b\tpos\n5" disk\tneg\n', ['"a" b', '5" disk']),
        ('"a, she said\tpos\n"b" or "c\tneg', ['"a, she said', '"b" or "c']),
    )
    def test_quotes_of_tsv(self, lines, expected):
        rows = self._read("a.tsv", f"text\tlabel\n{lines}")
        self.assertEqual(expected, [x["text"] for x in rows])
        self.assertEqual(["pos", "neg"], [x["label"] for x in rows])

    def test_open_quote_of_tsv(self):
        """An open quote in a row with too few cells ends with the row."""
        path = self._write("a.tsv", 'text\tlabel\n"a\nb\tneg\n')
        places, (bad, good) = zip(*tables.read_rows(path), strict=True)
        self.assertEqual(((0, 2), (1, 3)), places)
        self.assertIn("has 1 cells", bad.problem)
        self.assertEqual({"text": "b", "label": "neg"}, good)

    @parameterized.parameters('"a\tpos\nb"\tneg\n', '"a\tpos\n\nb"\tneg\n')
    def test_ambiguous_quotes_of_tsv(self, lines):
        """The quotes may belong to the texts of two rows, or enclose a cell."""
        with self.assertRaisesRegex(UserError, "line 2: the quote.*or open a"):
            self._read("a.tsv", f"text\tlabel\n{lines}")
        # Other rows can resolve the ambiguity.
        row = '"c\nd"\tpos\n'
        first, _ = self._read("a.tsv", f"text\tlabel\n{lines}{row}")
        self.assertStartsWith(first["text"], "a\tpos\n")
        first, *_ = self._read("a.tsv", f'text\tlabel\n{lines}"c" d\tpos\n')
        self.assertEqual({"text": '"a', "label": "pos"}, first)

    @parameterized.parameters(
        ('text\n"a" b\n"c"\n', [{"text": '"a" b'}, {"text": "c"}]),
        # The header row follows a blank line.
        (' \ntext\tn\n"a\tb"\t1\n', [{"text": "a\tb", "n": "1"}]),
    )
    def test_other_tsv(self, content, expected):
        self.assertEqual(expected, self._read("a.tsv", content))

    def test_rows_of_other_lengths(self):
        path = self._write("a.csv", '\nid,text\n1,"a\nb"\n2\n\n3,c,d\n')
        places, rows = zip(*tables.read_rows(path), strict=True)
        self.assertEqual(((0, 3), (1, 5), (2, 7)), places)
        good, short, long = rows
        self.assertEqual({"id": "1", "text": "a\nb"}, good)
        self.assertIn("has 1 cells, but the header row has 2", short.problem)
        self.assertIn("has 3 cells", long.problem)

    @parameterized.parameters("a.csv", "a.tsv")
    def test_lines_after_a_long_one(self, name):
        content = f"id,text\n1,{'a b ' * 300_000}\n2,c\n"
        path = self._write(name, content.replace(",", "\t"))
        (_, long), (place, row) = tables.read_rows(path)
        self.assertLen(long["text"], 1_200_000)
        self.assertEqual(((1, 3), {"id": "2", "text": "c"}), (place, row))

    @parameterized.parameters("a.csv", "a.tsv")
    def test_csv_limit_is_restored(self, name):
        limit = csv.field_size_limit(1000)
        self.addCleanup(csv.field_size_limit, limit)
        content = "id,text\n" + f'1,"{"a " * 1000}"\n' * 3
        path = self._write(name, content.replace(",", "\t"))
        # Two readers alternate.
        readers = [tables.read_rows(path) for _ in range(2)]
        for rows in zip(*readers, strict=True):
            self.assertEqual(1000, csv.field_size_limit())
            for _, row in rows:
                self.assertLen(row["text"], 2000)
        with self.assertRaises(UserError):
            self._read("b.csv", 'text\n"a')
        self.assertEqual(1000, csv.field_size_limit())

    def test_csv_limit_is_restored_by_threads(self):
        limit = csv.field_size_limit(1000)
        self.addCleanup(csv.field_size_limit, limit)
        path = self._write("a.csv", "text\n" + f"{'a ' * 1000}\n" * 300)

        def count(_):
            return sum(len(row["text"]) for _, row in tables.read_rows(path))

        with futures.ThreadPoolExecutor(4) as executor:
            counts = list(executor.map(count, range(8)))
        self.assertEqual([600_000] * 8, counts)
        self.assertEqual(1000, csv.field_size_limit())

    def test_csv_limit_set_meanwhile_is_kept(self):
        limit = csv.field_size_limit()
        self.addCleanup(csv.field_size_limit, limit)

        def rows():
            csv.field_size_limit(2000)
            yield ["a"]

        self.assertEqual([["a"]], list(tables._parsed(rows())))
        self.assertEqual(2000, csv.field_size_limit())

    def test_encodings(self):
        (row,) = self._read("a.csv", "text\nZlín\n".encode("latin-1"))
        self.assertEqual({"text": f"Zl{INVALID_UTF8_MARK}n"}, row)
        with self.assertRaisesRegex(UserError, "a.csv: its header row is not"):
            self._read("a.csv", "id,text\n1,Zlín\n".encode("utf-16"))

    @parameterized.parameters(
        ("a.csv", "", "is empty"),
        ("a.csv", "id,text,text\n1,2,3", "two columns have the name 'text'"),
        ("a.csv", 'text\n"a', "line 2: the row that begins there is invalid"),
        ("a", "Some text", "unknown file format. Expected JSON lines"),
        ("a.jsonl", '{"id": "1"}\n{"id', "line 2: the JSON ends too early"),
        ("a.parquet", b"PAR1 and so on", "Parquet or Arrow data are dam"),
    )
    def test_errors(self, name, content, message):
        with self.assertRaisesRegex(UserError, message):
            self._read(name, content)


if __name__ == "__main__":
    tf.test.main()
