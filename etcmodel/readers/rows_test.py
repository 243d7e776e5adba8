"""Tests of damaged and unusual files of users' own rows, for all tasks."""

import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification
from etcmodel.datasets import question_answering
from etcmodel.datasets import selection
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from testing import samples

# Module, good row, the field that is learned.
_TASKS = {
    "classify": (classification, samples.classification(), "label"),
    "select": (selection, samples.selection(), "selected"),
    "answer": (question_answering, samples.question_answering(), "answers"),
}
_LONG = "Brno is a city in Moravia. " * 200_000


class RowsTest(tf.test.TestCase, parameterized.TestCase):
    def _setup(self, task):
        module, self.good, self.label = _TASKS[task]
        return module.FORMAT

    def _write(self, name, content, encoding="utf-8"):
        path = os.path.join(self.get_temp_dir(), name)
        with open(path, "wb") as stream:
            if isinstance(content, str):
                content = content.encode(encoding)
            stream.write(content)
        return path

    def _write_rows(self, rows):
        lines = (json.dumps(x, ensure_ascii=False) + "\n" for x in rows)
        return self._write("rows.jsonl", "".join(lines))

    def _row(self, number, **changes):
        return {**self.good, "id": str(number), **changes}

    def _read(self, format_, path, split="train"):
        """Returns the ids of usable records, and the counted errors."""
        bad_records = BadRecords(skip=True)
        read = list(format_.read(path, split, bad_records))
        return [x.id for x in read], bad_records

    @parameterized.product(task=list(_TASKS), split=["train", "predict"])
    def test_empty_document(self, task, split):
        format_ = self._setup(task)
        field = "paragraphs" if task == "select" else "text"
        path = self._write_rows([self._row(1), self._row(2, **{field: []})])
        ids, bad_records = self._read(format_, path, split)
        self.assertEqual(["1"], ids)
        self.assertEqual({"empty document": 1}, dict(bad_records.counts))
        with self.assertRaisesRegex(
            RecordError, f"record 1 .id '2'., field '{field}': it has no text"
        ):
            list(format_.read(path, split))

    @parameterized.product(task=list(_TASKS), name=["a.jsonl", "a.json"])
    def test_long_document(self, task, name):
        """Reads five million characters among others, in lines or an array."""
        format_ = self._setup(task)
        changes = {"paragraphs": [[_LONG, "b"]]}
        if task != "select":
            changes = {"text": _LONG}
        rows = [self._row(1), self._row(2, **changes), self._row(3)]
        if task == "answer":
            rows[1]["answers"] = [{"text": "Moravia", "answer_start": 18}]
        content = json.dumps(rows)
        if name == "a.jsonl":
            content = "\n".join(map(json.dumps, rows))
        first, second, third = format_.read(self._write(name, content))
        self.assertEqual(["1", "3"], [first.id, third.id])
        self.assertEqual(_LONG.strip(), second.paragraphs[0][0].strip())

    def test_table_for_each_task(self):
        """Reads quotes, line breaks in cells, and lists as JSON."""
        header = "id,question,text,label,selected,answer\n"
        path = self._write(
            "rows.csv",
            header + '1,"Who ""sings""?","Jan, who\nsings.\n\nEve.","a, b",'
            '"[""Jan, who sings.""]",Jan\n'
            '2,Who?,Eve.,c,"[""Eve.""]",\n',
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

    def test_table_with_rows_of_other_lengths(self):
        path = self._write(
            "rows.csv", 'id,text,label\n1,"a\nb",c\n2,a,b,c\n3,a\n4,a,b\n'
        )
        ids, bad_records = self._read(classification.FORMAT, path)
        self.assertEqual(["1", "4"], ids)
        self.assertEqual({"wrong number of cells": 2}, dict(bad_records.counts))
        self.assertRegex(
            bad_records.examples[0],
            "rows.csv, line 4, record 1: the row has 4 cells,",
        )

    @parameterized.parameters("rows.csv", "rows.tsv")
    def test_latin_1(self, name):
        """Rows in ASCII are read, the others are counted."""
        content = "id,text,label\n1,Brno,a\n2,Zlín,b\n3,Znojmo,Město\n"
        content = content.replace(",", "\t" if name == "rows.tsv" else ",")
        content = content.replace("ě", "é")
        path = self._write(name, content, "latin-1")
        ids, bad_records = self._read(classification.FORMAT, path)
        self.assertEqual(["1"], ids)
        self.assertEqual({"invalid UTF-8": 2}, dict(bad_records.counts))
        for error, field in zip(
            bad_records.examples, ("text", "label"), strict=True
        ):
            self.assertRegex(error, f"field '{field}': there are bytes that")
            self.assertIn("Convert the file to UTF-8", error)

    @parameterized.parameters(*_TASKS)
    def test_one_line_of_another_encoding(self, task):
        format_ = self._setup(task)
        lines = [
            json.dumps(self._row(i, id=f"Zlín {i}"), ensure_ascii=False)
            for i in range(3)
        ]
        encodings = ("utf-8", "latin-1", "utf-8")
        content = b"\n".join(map(str.encode, lines, encodings))
        path = self._write("rows.jsonl", content)
        ids, bad_records = self._read(format_, path)
        self.assertEqual(["Zlín 0", "Zlín 2"], ids)
        self.assertEqual({"invalid UTF-8": 1}, dict(bad_records.counts))
        # A field that is not read may hold anything.
        lines = [line.replace("Zlín", "", 1) for line in lines]
        lines[1] = lines[1].replace("{", '{"extra": "Zlín", ', 1)
        content = b"\n".join(map(str.encode, lines, encodings))
        ids, _ = self._read(format_, self._write("rows.jsonl", content))
        self.assertLen(ids, 3)

    def test_utf_16(self):
        text = "id,text,label\n1,Brno,a\n"
        path = self._write("rows.csv", text, "utf-16")
        with self.assertRaisesRegex(UserError, "header row is not UTF-8"):
            list(classification.FORMAT.read(path))
        path = self._write_rows([{"text": "B\0r\0", "label": "a"}])
        with self.assertRaisesRegex(RecordError, "'text': the text has NUL"):
            list(classification.FORMAT.read(path))

    @parameterized.parameters(*_TASKS)
    def test_duplicate_ids(self, task):
        """Ids repeat in one file or several, as a string or a number."""
        format_ = self._setup(task)
        rows = [self._row(1), self._row(2), {**self.good, "id": 1}]
        path = self._write_rows(rows)
        ids, bad_records = self._read(format_, path)
        self.assertEqual(["1", "2"], ids)
        self.assertEqual({"duplicate 'id'": 1}, dict(bad_records.counts))
        other = self._write("other.jsonl", json.dumps(self._row(2)))
        _, bad_records = self._read(format_, [path, other])
        self.assertEqual({"duplicate 'id'": 2}, dict(bad_records.counts))

    def test_answers_that_are_elsewhere(self):
        format_ = self._setup("answer")
        answers = (
            [{"text": "Moravia", "answer_start": 3}],
            [{"text": "Prague", "answer_start": 3}, {"text": "Brno"}],
            [{"text": "Prague", "answer_start": 3}],
        )
        path = self._write_rows(
            self._row(i, answers=x) for i, x in enumerate(answers)
        )
        bad_records = BadRecords(skip=True)
        moved, partly = format_.read(path, "train", bad_records)
        self.assertEqual(
            [(1, 0), (0, 1)],
            [tuple(x.counts.values()) for x in (moved, partly)],
        )
        self.assertEqual(
            {"answer is not in the document": 1}, dict(bad_records.counts)
        )
        self.assertLen(list(format_.read(path, "dev")), 3)


if __name__ == "__main__":
    tf.test.main()
