import csv
import io
import json
import pathlib

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import narrativeqa
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from testing.helpers import real_data_path
from testing.helpers import write_file

_HEAD = "document_id,set,question,answer1,answer2,question_tokenized\n"
_ROWS = (
    'a,train,"Who, if\nanyone, said ""no""?",Jan .,,x\n'
    "a,valid,Who?,Jan,Eva,x\n"
    "b,train,Who?,Ján,Eva,x\n"
    "a,train,Who?,Eva,Jan,x\n"
)


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, rows, head=_HEAD, **stories):
        """Writes a csv file with stories beside it; returns its path."""
        content = rows if isinstance(rows, bytes) else rows.encode()
        path = write_file(self, head.encode() + content, "qaps.csv")
        folder = pathlib.Path(path).parent / "stories"
        folder.mkdir()
        for name, text in {"a": "Jan said no.", "b": "Ján.", **stories}.items():
            (folder / f"{name}.content").write_text(text, "utf-8")
        return path

    def test_reads_records(self):
        """Cells have quotes, line feeds and commas; a question is repeated."""
        path = self._write(_ROWS)
        records = [*narrativeqa.FORMAT.read(path)]
        question = 'Who, if\nanyone, said "no"?'
        self.assertEqual(
            [f"a: {question}", "a: Who?", "b: Who?", "a: Who? (2)"],
            [x.id for x in records],
        )
        self.assertEqual([0, 1, 2, 3], [x.index for x in records])
        self.assertEqual(question, records[0].question)
        self.assertEqual("Jan said no.", records[0].text)
        self.assertEqual(("Jan .",), narrativeqa.gold(records[0]))
        self.assertEqual(("Jan", "Eva"), records[1].answers)
        self.assertEqual("Ján.", records[2].text)

    def test_sets(self):
        path = self._write(_ROWS)
        read = narrativeqa.FORMATS["valid"].read(path)
        self.assertEqual(["a: Who?"], [x.id for x in read])
        read = narrativeqa.FORMATS["train"].read(path)
        self.assertEqual([0, 2, 3], [x.index for x in read])

    def test_unknown_sets(self):
        """A question of an unknown set is an error, not skipped silently."""
        path = self._write("a,TRAIN,Who?,x,y,x\n" + _ROWS)
        self.assertLen([*narrativeqa.FORMAT.read(path)], 5)
        with self.assertRaisesRegex(
            RecordError,
            "line 2, record 0.*'TRAIN', expected train, valid or test",
        ):
            list(narrativeqa.FORMATS["train"].read(path))

    def test_without_answers(self):
        path = self._write("a,test,Who?, ,,x\n")
        (record,) = narrativeqa.FORMAT.read(path, "predict")
        self.assertIsNone(narrativeqa.gold(record))
        with self.assertRaisesRegex(RecordError, "'answer1': it is empty.*dev"):
            list(narrativeqa.FORMAT.read(path, "dev"))

    @parameterized.parameters(
        (
            "c,train,Who?,x,y,x\n",
            r"story cannot be read: .*c.content: there .* path\. Download",
        ),
        ("b,train,Who?,x,y,x\n", "b.content has no text"),
        ("a,train, ,x,y,x\n", "'question': it is empty"),
        (
            "a,train,Wer?,J\xe4n,y,x\n".encode("latin-1"),
            "'answer1': .*not UTF-8",
        ),
        (b"a,train,\xc4?,x,y,x\n", "'question': it has .*not UTF-8"),
        ("a,train,Who, if,x,y,x\n", "has 7 columns, expected 6. Put"),
        ("a,Who?,x,y,x\n", "has 5 columns, expected 6"),
        ("../a,train,Who?,x,y,x\n", "'../a' points outside the fold"),
        ("/a,train,Who?,x,y,x\n", "'/a' points outside the folder"),
    )
    def test_bad_rows_are_skipped_alone(self, row, message):
        row = row if isinstance(row, bytes) else row.encode()
        path = self._write(row + _ROWS.encode(), b=" \n")
        with self.assertRaisesRegex(RecordError, f"record 0.*{message}"):
            list(narrativeqa.FORMAT.read(path))
        bad_records = BadRecords(skip=True)
        read = narrativeqa.FORMAT.read(path, "predict", bad_records)
        self.assertEqual([1, 2, 4], [x.index for x in read if x.id[0] == "a"])
        # A row whose set is unknown is an error in every set.
        if "columns" in message:
            with self.assertRaisesRegex(RecordError, message):
                list(narrativeqa.FORMATS["valid"].read(path))

    @parameterized.parameters("\r", "\r\n")
    def test_line_ends(self, line_end):
        """All line ends are read, even in a file of several parts."""
        head, rows = (x.replace("\n", line_end) for x in (_HEAD, _ROWS))
        row = f"b,train,{'w' * 4990}?,Jan,Eva,x{line_end}"
        path = self._write(rows + 500 * row, head)
        records = [*narrativeqa.FORMATS["train"].read(path)]
        question = 'Who, if\nanyone, said "no"?'.replace("\n", line_end)
        self.assertEqual(question, records[0].question)
        self.assertEqual([0, 2, 3], [x.index for x in records[:3]])
        self.assertLen(records, 503)
        self.assertEqual({4991}, {len(x.question) for x in records[3:]})

    @parameterized.parameters(
        # An open quote extends to the next quote or to the end of the file.
        ('a,train,"Who?,x,y,x\nb,train,Who?,x,y,x\n', "unexpected end"),
        ('a,train,"Who?,x,y,x\nb,train,"Who?",x,y,x\n', "expected after"),
    )
    def test_a_quote_that_is_not_closed(self, rows, message):
        path = self._write(_ROWS + rows)
        with self.assertRaisesRegex(
            UserError, f"qaps.csv, line 7: .*{message}.*[Cc]lose"
        ):
            list(narrativeqa.FORMAT.read(path, None, BadRecords(skip=True)))

    def test_other_files(self):
        for content, message in (
            ("", "lacks the columns document_id, set"),
            ("document_id,set,kind\n", "columns question, answer1, answer2"),
            ((_HEAD + _ROWS).encode("utf-16"), "not UTF-8"),
        ):
            with self.assertRaisesRegex(UserError, message):
                list(narrativeqa.FORMAT.read(self._write(content, "")))

    def test_predictions(self):
        stream = io.StringIO()
        narrativeqa.write_predictions({"a: Who?": "Ján"}, stream)
        self.assertEqual(
            {"id": "a: Who?", "answer": "Ján"}, json.loads(stream.getvalue())
        )

    def test_real_records(self):
        path = real_data_path("narrativeqa/qaps.csv")
        records = [*narrativeqa.FORMAT.read(path)]
        with open(path, newline="", encoding="utf-8") as stream:
            rows = [*csv.DictReader(stream)]
        self.assertLen(records, 86)
        self.assertEqual(
            [(x["question"], x["answer1"], x["answer2"]) for x in rows],
            [(x.question, *x.answers) for x in records],
        )
        self.assertLen({x.text for x in records}, 3)
        # All questions of a story share one text in memory.
        self.assertLen({id(x.text) for x in records}, 3)


if __name__ == "__main__":
    tf.test.main()
