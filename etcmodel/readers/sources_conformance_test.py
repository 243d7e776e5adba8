"""Tests that every source gives the same results for a table of values."""

import collections
import dataclasses
import datetime
import decimal
import json
import os
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import tensorflow as tf
from absl.testing import parameterized
from pyarrow import feather
from pyarrow import parquet

from etcmodel.datasets import classification
from etcmodel.datasets import question_answering
from etcmodel.datasets import selection
from etcmodel.errors import RecordError
from etcmodel.errors import UserError

_TEXTS = "Jan lives in Brno.", "Brno is in Moravia."
_NO_TYPES = "csv", "tsv"


@dataclasses.dataclass(frozen=True)
class Bad:
    """The expected error of a record, by its reason."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Case:
    """A value of a field.

    Attributes:
        field: the field to test.
        value: the value that is stored in it.
        expected: the value that `_READ` returns, or a `Bad`.
        text: the value from sources that store text, such as CSV, if it
            differs.
        options: arguments of `make_format`.
    """

    field: str
    value: Any
    expected: Any
    text: Any = None
    options: dict = dataclasses.field(default_factory=dict)


_CLASSIFY = {"id": "7", "text": "Snow falls.", "label": "weather"}
_SELECT = {"id": "7", "paragraphs": [[x] for x in _TEXTS], "selected": [[0, 0]]}
_ANSWER = {
    "id": "7",
    "question": "Where?",
    "text": "Jan lives in Brno in 1990.",
    "answers": "Brno",
}
# Field -> module, the row's other fields, a function of the record that returns
# the value to compare.
_READ = {
    "id": (classification, _CLASSIFY, lambda x: x.id),
    "text": (classification, _CLASSIFY, lambda x: x.paragraphs),
    "query": (classification, _CLASSIFY, lambda x: x.query),
    "subject": (classification, _CLASSIFY, lambda x: x.sections[0].title),
    "label": (classification, _CLASSIFY, lambda x: x.label),
    "unused": (classification, _CLASSIFY, lambda x: x.label),
    "selected": (selection, _SELECT, lambda x: x.selected),
    "answers": (question_answering, _ANSWER, lambda x: _answers(x)),
    "answer_start": (question_answering, _ANSWER, lambda x: _answers(x)),
    "is_impossible": (question_answering, _ANSWER, lambda x: _answers(x)),
}


def _answers(record):
    """Returns the text and the start of each answer."""
    places = [x.place and x.place.start for x in record.answers]
    return tuple(zip([x.text for x in record.answers], places, strict=True))


_NUMBER = {"label_kind": "number"}
_PARAGRAPHS = {"units": "paragraphs"}
_BAD_TEXT, _BAD_LABEL = Bad("wrong 'text'"), Bad("wrong 'label'")
_PRINT = Bad("the repr of an object")
_CUT = Bad("a shortened list")
_TITLE = {"title_field": "subject"}
_MANY = np.array([f"s{i}" for i in range(1500)])
_AT_TEN = datetime.datetime(2020, 1, 1, 10)
_CASES = [
    # Values of the field with the text.
    Case("text", "Brno", (("Brno",),)),
    *(
        Case("subject", value, expected, options=_TITLE)
        for value, expected in (
            ("Brno: maps", "Brno: maps"),
            ("[2024]", "[2024]"),
            ("[1] Brno", "[1] Brno"),
            (2024, "2024"),
            ("", ""),
        )
    ),
    Case("text", "[1] Brno, [2]", (("[1] Brno, [2]",),)),
    Case("text", "[...]", (("[...]",),)),
    Case("text", "f(x) = (1)", (("f(x) = (1)",),)),
    Case("text", "['tis, 'twas]", (("['tis, 'twas]",),)),
    Case("text", ["a", "b"], (("a",), ("b",))),
    Case("text", ("a", "b"), (("a",), ("b",))),
    Case("text", [["a", "b"], ["c"]], (("a", "b"), ("c",))),
    Case("text", np.array(["a", "b"]), (("a",), ("b",))),
    Case("text", _MANY, tuple((x,) for x in _MANY.tolist()), _CUT),
    Case("text", "['a' 'b']", (("a",), ("b",))),
    Case("text", "['a' 'b'\n 'c']", (("a",), ("b",), ("c",))),
    Case("text", "['\"a\"' '' 'x[1,]']", (('"a"',), ("",), ("x[1,]",))),
    Case(
        "text",
        "[array(['a', 'b'], dtype=object)\n list(['c'])]",
        (("a", "b"), ("c",)),
    ),
    Case("text", "[1], [2]", (("[1], [2]",),)),
    Case("text", "[1 2]", Bad("wrong 'text[]'")),
    Case("text", "np.save('a')", (("np.save('a')",),)),
    Case("text", "['a' ... 'b']", _CUT),
    Case("text", "array(['a', ..., 'b'], dtype=object)", _CUT),
    Case("text", "array(['a', 'b'], dtype=object)", (("a",), ("b",))),
    Case("text", "[['a', 'b'], ['c']]", (("a", "b"), ("c",))),
    Case("text", "b'caf\\xc3\\xa9'", (("café",),)),
    Case("text", b"caf\xc3\xa9", (("café",),)),
    Case("text", b"caf\xe9", Bad("invalid UTF-8")),
    Case("text", "0    a\n1    b\nName: x, dtype: object", _PRINT),
    Case("text", "<tf.Tensor: shape=(), dtype=string, numpy=b'a'>", _PRINT),
    Case("text", "<builtins.Page object at 0x7f00>", _PRINT),
    Case("text", "{'a': 1}", _BAD_TEXT),
    Case("text", {"a": 1}, _BAD_TEXT),
    Case("text", [{"title": "a", "text": "b"}], (("b",),)),
    Case("text", 1990, (("1990",),)),
    Case("text", 2.5, (("2.5",),)),
    Case("text", [101, 2023], Bad("wrong 'text[]'")),
    Case("text", [["a", None]], Bad("wrong 'text[][]'")),
    Case("text", None, Bad("no field 'text'"), Bad("empty document")),
    Case("text", "", Bad("empty document")),
    # Values of the query and the id.
    Case("query", ["a", "b"], ("a", "b")),
    Case("query", "['a', 'b']", ("a", "b")),
    Case("query", None, ()),
    Case("query", "[1]", ("[1]",)),
    Case("query", 1990, ("1990",)),
    Case("id", 7, "7"),
    Case("id", 7.0, "7.0"),
    Case("id", "007", "007"),
    Case("id", datetime.date(2020, 1, 1), "2020-01-01"),
    Case("id", _AT_TEN, "2020-01-01 10:00:00"),
    Case("id", np.datetime64("2020-01-01T10:00:00"), "2020-01-01 10:00:00"),
    Case("id", "Timestamp('2020-01-01 00:00:00')", "2020-01-01"),
    # Values of the label.
    Case("label", 3, "3"),
    Case("label", np.int64(3), "3"),
    Case("label", "3.0", "3.0"),
    Case("label", True, "true", "True"),
    Case("label", 4.5, 4.5, "4.5"),
    Case("label", 4.5, 4.5, options=_NUMBER),
    Case("label", decimal.Decimal("1.50"), 1.5, options=_NUMBER),
    Case("label", "1.50", 1.5, options=_NUMBER),
    Case("label", float("inf"), Bad("an infinite number"), _BAD_LABEL, _NUMBER),
    Case("label", float("nan"), None),
    Case("label", " ", None),
    Case("label", [], ()),
    Case("label", ["a", "b"], ("a", "b")),
    Case("label", "['a' 'b']", ("a", "b")),
    Case("label", "('a', 'b')", ("a", "b")),
    Case("label", [0, 2], ("0", "2")),
    Case("label", "[0 2]", ("0", "2")),
    Case("label", ["a", None], Bad("wrong 'label[]'")),
    Case("label", [0.9, 0.1], Bad("wrong 'label[]'")),
    Case("label", [0, 1, 0], _BAD_LABEL),
    Case("label", [True, False, True], _BAD_LABEL),
    Case("label", [0.0, 1.0, 0.0], _BAD_LABEL),
    Case("label", "[0. 1. 0.]", _BAD_LABEL),
    Case("label", np.array([[0, 1]]), Bad("wrong 'label[]'")),
    # Values of the field with the selected units.
    Case("selected", [[1, 0]], ((1, 0),)),
    Case("selected", [[1.0, 0.0]], ((1, 0),)),
    Case("selected", "[[1 0]]", ((1, 0),)),
    Case("selected", [1.0], ((1, -1),), options=_PARAGRAPHS),
    Case("selected", "1", Bad("wrong 'selected'"), options=_PARAGRAPHS),
    Case("selected", 1, Bad("wrong 'selected'"), options=_PARAGRAPHS),
    Case("selected", [True, False], ((0, -1),), options=_PARAGRAPHS),
    Case("selected", [0, 1], Bad("wrong 'selected'"), options=_PARAGRAPHS),
    # Values of the answers and their fields.
    Case("answers", 1990, (("1990", None),)),
    Case("answers", "(1, 2)", (("(1, 2)", None),)),
    Case("answers", "[1]", (("[1]", None),)),
    Case("answers", ["Brno", "1990"], (("Brno", None), ("1990", None))),
    Case("answers", {"text": ["Brno"], "answer_start": [13]}, (("Brno", 13),)),
    Case("answer_start", 13, (("Brno", 13),)),
    Case("answer_start", 13.0, (("Brno", 13),)),
    Case("answer_start", "13.0", (("Brno", 13),)),
    Case("answer_start", 13.5, Bad("wrong 'answer_start'")),
    Case("is_impossible", 1.0, ()),
    Case("is_impossible", "TRUE", ()),
    Case("is_impossible", False, (("Brno", None),)),
    Case("is_impossible", 2, Bad("wrong 'is_impossible'")),
    # Fields that are not read.
    Case("unused", b"\xff\xd8", "weather"),
    Case("unused", decimal.Decimal("1.5"), "weather"),
    Case("unused", datetime.datetime(9999, 12, 31), "weather"),
    Case("unused", float("inf"), "weather"),
    Case("unused", ["a", None], "weather"),
    Case("unused", "['a' ... 'b']", "weather"),
]


def _to_list(value):
    """Converts arrays to lists: JSON and some libraries reject arrays."""
    return value.tolist() if hasattr(value, "tolist") else value


def _json_lines(rows, path):
    with open(path, "w") as stream:
        for row in rows:
            row = {name: _to_list(x) for name, x in row.items()}
            stream.write(json.dumps(row, allow_nan=False) + "\n")


def _json_array(rows, path):
    rows = [{name: _to_list(x) for name, x in row.items()} for row in rows]
    with open(path, "w") as stream:
        json.dump(rows, stream, allow_nan=False)


def _table(rows):
    return pa.table({name: [row[name] for row in rows] for name in rows[0]})


def _arrow_stream(rows, path):
    table = _table(rows)
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)


_FILES = {
    "csv": lambda rows, path: pd.DataFrame(rows).to_csv(path, index=False),
    "tsv": lambda rows, path: pd.DataFrame(rows).to_csv(
        path, index=False, sep="\t"
    ),
    "jsonl": _json_lines,
    "json": _json_array,
    "parquet": lambda rows, path: parquet.write_table(_table(rows), path),
    "feather": lambda rows, path: feather.write_feather(_table(rows), path),
    "arrow": _arrow_stream,
}


def _tf_data(rows):
    columns = {}
    for name in rows[0]:
        values = [_to_list(row[name]) for row in rows]
        if any(x is None for x in values):
            raise TypeError("tensors have no None")
        columns[name] = (
            tf.ragged.constant(values)
            if isinstance(values[0], list)
            else tf.constant(values)
        )
    return tf.data.Dataset.from_tensor_slices(columns)


def _hugging_face(rows):
    return datasets.Dataset.from_list(
        [{name: _to_list(x) for name, x in row.items()} for row in rows]
    )


_COLLECTIONS = {
    "list": list,
    "columns": lambda rows: {x: [row[x] for row in rows] for x in rows[0]},
    "pandas": pd.DataFrame,
    "Arrow table": _table,
    "Hugging Face": _hugging_face,
    "tf.data": _tf_data,
}
# Errors that libraries raise for values that they cannot store.
_NOT_HELD = (TypeError, ValueError, OverflowError, pa.ArrowException)


class SourcesConformanceTest(tf.test.TestCase, parameterized.TestCase):
    def _make(self, source, rows):
        """Stores rows in a source; returns a function that reads them.

        The function takes the format to read with.
        """
        if source in _COLLECTIONS:
            made = _COLLECTIONS[source](rows)
            return lambda x: x.read_rows(made, "predict")
        path = os.path.join(self.get_temp_dir(), f"rows.{source}")
        _FILES[source](rows, path)
        return lambda x: x.read(path, "predict")

    @parameterized.parameters(*_FILES, *_COLLECTIONS)
    def test_source(self, source):
        num_read, wrong = 0, []
        for case in _CASES:
            module, rest, result = _READ[case.field]
            row = {**rest, case.field: case.value}
            rows = [row, row]
            if case.field != "id":
                rows = [{**row, "id": "7"}, {**row, "id": "8"}]
            try:
                read = self._make(source, rows)
            except _NOT_HELD:
                continue
            expected = case.expected
            if source in _NO_TYPES and case.text is not None:
                expected = case.text
            try:
                format_ = module.make_format(**case.options)
                found = result(next(iter(read(format_))))
            except RecordError as error:
                found = Bad(error.reason)
            if (type(found), found) != (type(expected), expected):
                wrong.append((case.field, case.value, expected, found))
            num_read += 1
        self.assertEmpty(wrong)
        # Checks that most values were tested in this source.
        self.assertGreater(num_read, 50)

    def test_each_value_is_in_several_sources(self):
        counts = collections.Counter()
        for case in _CASES:
            for make in (*_FILES, *_COLLECTIONS):
                row = {"id": "1", case.field: case.value}
                try:
                    self._make(make, [row, row])
                    counts[repr(case)] += 1
                except _NOT_HELD:
                    continue
        self.assertLen(counts, len(_CASES))
        self.assertGreaterEqual(min(counts.values()), 5)

    @parameterized.parameters("pandas", "Arrow", "parquet", "arrow")
    def test_two_columns_of_one_name(self, source):
        names = ["text", "label", "label"]
        frame = pd.DataFrame([["a", "b", "c"]])
        frame.columns = names
        table = pa.Table.from_arrays([pa.array(["a"])] * 3, names=names)
        path = os.path.join(self.get_temp_dir(), f"two.{source}")
        if source == "parquet":
            parquet.write_table(table, path)
        elif source == "arrow":
            with pa.ipc.new_file(path, table.schema) as stream:
                stream.write_table(table)
        with self.assertRaisesRegex(UserError, "two columns have the name 'la"):
            if source in ("pandas", "Arrow"):
                rows = frame if source == "pandas" else table
                list(classification.FORMAT.read_rows(rows))
            else:
                list(classification.FORMAT.read(path))

    def test_categories(self):
        """Categorical columns of pandas and Arrow are read as values."""
        frame = pd.DataFrame(
            {"text": ["a", "b"], "label": pd.Categorical(["x", "y"])}
        )
        for source in (frame, pa.Table.from_pandas(frame)):
            records = classification.FORMAT.read_rows(source)
            self.assertEqual(["x", "y"], [record.label for record in records])

    def test_times_that_cannot_be_read(self):
        """The error names the record with the invalid time."""
        times = pa.array([0, 10**13], pa.timestamp("s"))
        table = pa.table({"text": ["a", "b"], "id": times})
        records = classification.FORMAT.read_rows(table, "predict")
        self.assertEqual("1970-01-01", next(records).id)
        with self.assertRaisesRegex(
            RecordError, "record 1, field 'id': the va"
        ):
            next(records)


if __name__ == "__main__":
    tf.test.main()
