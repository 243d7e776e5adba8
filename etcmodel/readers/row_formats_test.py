"""Tests of rows in users' own files and collections."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification
from etcmodel.datasets import question_answering
from etcmodel.datasets import selection
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from testing import samples
from testing.helpers import write_file
from testing.row_formats import make_format as _format

# A long text, and for each task its module and a valid row with this text.
_LONG = "Brno is a city in Moravia. " * 200_000
_TASKS = {
    "classify": (classification, samples.classification(text=_LONG)),
    "select": (selection, samples.selection(paragraphs=[[_LONG, "b"]])),
    "answer": (
        question_answering,
        samples.question_answering(
            text=_LONG, answers=[{"text": "Moravia", "answer_start": 18}]
        ),
    ),
}


class RowFormatTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("query", "id", "evidence", "title")
    def test_field_that_no_record_has(self, name):
        """A misspelled field is an error; otherwise, it would be ignored."""
        rows = [{"text": "a"}, {"text": "b", "ask": "c"}]
        path = write_file(self, iter(rows), "a.jsonl")
        with self.assertRaisesRegex(
            UserError, "a.jsonl: no record has the field 'aks'.*have: text, ask"
        ):
            list(_format(**{name: "aks"}).read(path))
        # Some records may lack the field.
        first, second = _format(**{name: "ask"}).read(path)
        found = {"query": second.query, "id": second.id}
        self.assertIn(found.get(name), (("c",), "c", None))

    @parameterized.parameters(
        ("train", ["query", "id", "evidence", "title"]),
        ("dev", ["query", "id", "evidence", "title"]),
        ("predict", ["query"]),
    )
    def test_field_that_no_row_has(self, split, needed):
        """The error names a needed field that no row has."""
        rows = [{"text": "a"}, {"text": "b", "ask": "c"}]
        for name in ("query", "id", "evidence", "title"):
            read = _format(**{name: "aks"}).read_rows(rows, split, name="data")
            self.assertEqual((("a",),), next(read).paragraphs)
            if name not in needed:
                self.assertLen(list(read), 1)
                continue
            with self.assertRaisesRegex(
                UserError,
                "^data: no record has the field 'aks'.*have: text, as",
            ):
                list(read)
        self.assertLen(list(_format(query="ask").read_rows(rows, split)), 2)
        self.assertEmpty(list(_format(query="ask").read_rows([], split)))

    def test_ids(self):
        """Ids are unique within a file and across files."""
        rows = [{"text": "a"}, {"text": "a", "id": 0}]
        paths = [
            write_file(self, iter(rows), name)
            for name in ("a.jsonl", "b/a.jsonl", "other.jsonl")
        ]
        self.assertEqual("0", next(_format().read(paths[0])).id)
        with self.assertRaisesRegex(RecordError, "1 .*'0'.* has the same id"):
            list(_format().read(paths[0]))
        bad_records = BadRecords(skip=True)
        read = _format().read(paths[:2], None, bad_records)
        self.assertEqual(
            [f"{paths[0]}:0", "0", f"{paths[1]}:0"], [x.id for x in read]
        )
        read = _format().read(paths[::2], None, bad_records)
        self.assertEqual(
            ["a.jsonl:0", "0", "other.jsonl:0"], [x.id for x in read]
        )

    @parameterized.product(task=list(_TASKS), name=["a.jsonl", "a.json"])
    def test_long_document(self, task, name):
        """Reads a document of five million characters among shorter ones."""
        module, row = _TASKS[task]
        good = getattr(samples, module.__name__.rpartition(".")[2])(id="1")
        rows = [good, row, good | {"id": "3"}]
        path = write_file(self, iter(rows) if name == "a.jsonl" else rows, name)
        first, second, third = module.FORMAT.read(path)
        self.assertEqual(["1", "3"], [first.id, third.id])
        self.assertEqual(_LONG.strip(), second.paragraphs[0][0].strip())

    def test_table_for_each_task(self):
        """Reads quotes, line breaks in cells, and lists as JSON."""
        path = write_file(
            self,
            "id,question,text,label,selected,answer\n"
            '1,"Who ""sings""?","Jan, who\nsings.\n\nEve.","a, b",'
            '"[""Jan, who sings.""]",Jan\n'
            '2,Who?,Eve.,c,"[""Eve.""]",\n',
            "rows.csv",
        )
        text = (("Jan, who\nsings.",), ("Eve.",))
        for module, expected in (
            (classification, ["a, b", "c"]),
            (selection, [((), ("Jan, who sings.",)), ((), ("Eve.",))]),
            (question_answering, [(("Jan",), None), ((), None)]),
        ):
            records = list(module.FORMAT.read(path))
            self.assertEqual(expected, list(map(module.gold, records)))
            self.assertEqual(text, records[0].paragraphs)
            self.assertEqual(('Who "sings"?',), records[0].query)

    def test_rows_that_cannot_be_read(self):
        """Counts bad rows by reason; errors name field and line."""
        rows = "id,text,label\n1,Brno,a\n2,Zl\xedn,b\n3,a\n4,Znojmo,c\n"
        path = write_file(self, rows.encode("latin-1"), "rows.csv")
        bad_records = BadRecords(skip=True)
        read = classification.FORMAT.read(path, None, bad_records)
        self.assertEqual(["1", "4"], [x.id for x in read])
        self.assertEqual(
            {"invalid UTF-8": 1, "wrong number of cells": 1},
            dict(bad_records.counts),
        )
        for error, message in zip(
            bad_records.examples,
            (
                "line 3, record 1 .*'text': it has bytes .*Convert the file",
                "line 4, record 2: the row has 2 cells,",
            ),
            strict=True,
        ):
            self.assertRegex(error, message)

    def test_unused_fields_may_hold_any_bytes(self):
        row = '{"extra": "Zl\xedn", "text": "a", "label": "b"}\n'
        path = write_file(self, row.encode("latin-1"), "rows.jsonl")
        self.assertLen(list(classification.FORMAT.read(path)), 1)


if __name__ == "__main__":
    tf.test.main()
