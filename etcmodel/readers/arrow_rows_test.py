"""Tests of Parquet and Arrow files.

sources_conformance_test.py tests which values these files can hold.
"""

import os
import sys
from unittest import mock

import pyarrow as pa
import tensorflow as tf
from pyarrow import parquet

from etcmodel.errors import UserError
from etcmodel.readers import tables
from etcmodel.readers.json_values import INVALID_UTF8_MARK


class ArrowRowsTest(tf.test.TestCase):
    def _write_parquet(self, table):
        path = os.path.join(self.get_temp_dir(), "a.parquet")
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
        path = os.path.join(self.get_temp_dir(), "a.parquet")
        with (
            mock.patch.dict(sys.modules, pyarrow=None),
            self.assertRaisesRegex(UserError, "pip install pyarrow"),
        ):
            list(tables.read_rows(path))

    def test_arrow(self):
        """Reads Arrow files and streams of any name; rejects truncated ones."""
        table = pa.table({"id": ["1", "2"], "text": ["a", "b"]})
        expected = table.to_pylist()
        for name, make in (
            ("a.arrow", pa.ipc.new_file),
            ("b.arrow", pa.ipc.new_stream),
            ("a", pa.ipc.new_file),
            ("b", pa.ipc.new_stream),
        ):
            path = os.path.join(self.get_temp_dir(), name)
            with make(path, table.schema) as stream:
                stream.write_table(table)
            positions = []
            rows = [x for _, x in tables.read_rows(path, positions.append)]
            self.assertEqual(expected, rows)
            self.assertEqual([os.path.getsize(path)], positions)
            with open(path, "r+b") as stream:
                stream.truncate(os.path.getsize(path) // 2)
            with self.assertRaisesRegex(UserError, "are damaged or truncated"):
                list(tables.read_rows(path))


if __name__ == "__main__":
    tf.test.main()
