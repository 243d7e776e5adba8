import gzip
import json
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.read_twice_pretrain import records
from etcmodel.testing import real_data_path

_TEXT = "Ján lives in Brno."


def _document(**changes):
    mentions = [
        {"start": 13, "end": 17},
        {"start": 0, "end": 3, "entity": "Q1"},
        {"start": 4, "end": 9, "entity": None},
    ]
    return {"id": "a", "text": _TEXT, "mentions": mentions} | changes


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def _write(self, content, name="documents"):
        path = os.path.join(self.get_temp_dir(), name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def _read(self, *values, **kwargs):
        lines = "".join(json.dumps(value) + "\n" for value in values)
        path = self._write(lines.encode())
        return list(records.read_records(path, **kwargs))

    def test_json_lines(self):
        (first, second, third) = self._read(
            _document(), {"text": "x"}, {"text": "y", "mentions": []}
        )
        self.assertEqual(
            first,
            records.Document(
                "a",
                _TEXT,
                (
                    records.Mention(0, 3, "Q1"),
                    records.Mention(4, 9),
                    records.Mention(13, 17),
                ),
                0,
            ),
        )
        self.assertEqual(second, records.Document("1", "x", None, 1))
        self.assertEqual(third, records.Document("2", "y", (), 2))

    def test_plain_text(self):
        text = "\n\nOne.\nStill one.\n \nTwo á.\r\n\r\nThree."
        expected = ["One.\nStill one.", "Two á.", "Three."]
        for content in (text.encode(), gzip.compress(text.encode())):
            documents = list(records.read_records(self._write(content)))
            self.assertEqual(expected, [x.text for x in documents])
            self.assertEqual(["0", "1", "2"], [x.id for x in documents])
            self.assertEqual([None] * 3, [x.mentions for x in documents])

    @parameterized.parameters(
        (["no object"], r"got \['no object'\]"),
        (_document(id=""), "'id': it is empty"),
        (_document(id=3), "'id'.*expected a string"),
        ({"id": "a"}, "'text'.*missing"),
        (_document(text=[]), "'text'.*expected a string"),
        (_document(text=" \n"), "'text'.*empty"),
        (_document(mentions={}), "'mentions'"),
        (_document(mentions=[3]), r"mentions\[0\]"),
        (_document(mentions=[{"end": 3}]), r"mentions\[0\].start.*missing"),
        (
            _document(mentions=[{"start": "0", "end": 3}]),
            r"mentions\[0\].start.*whole number",
        ),
        (
            _document(
                mentions=[{"start": 0, "end": 1}, {"start": 3, "end": 3}]
            ),
            r"mentions\[1\].end.*from 3 to 3.*18 characters",
        ),
        (
            _document(mentions=[{"start": 2, "end": 19}]),
            r"mentions\[0\].end.*from 2 to 19",
        ),
        (
            _document(mentions=[{"start": -1, "end": 2}]),
            r"mentions\[0\].start.*from -1 to 2",
        ),
        (
            _document(mentions=[{"start": 1, "end": 2, "entity": 7}]),
            r"mentions\[0\].entity.*a string or null",
        ),
    )
    def test_bad_record(self, value, message):
        with self.assertRaisesRegex(UserError, message):
            self._read({"text": "fine"}, value)
        if isinstance(value, dict):
            bad = BadRecords(skip=True)
            documents = self._read({"text": "fine"}, value, bad_records=bad)
            self.assertLen(documents, 1)
            self.assertEqual(1, bad.total)

    def test_an_id_twice(self):
        with self.assertRaisesRegex(RecordError, "record 1.*same one"):
            self._read(_document(), _document())

    def test_not_utf8(self):
        path = self._write(b"fine\n\nno\xff\n\nfine")
        with self.assertRaisesRegex(RecordError, "record 1.*not UTF-8"):
            list(records.read_records(path))
        bad = BadRecords(skip=True)
        self.assertLen(list(records.read_records(path, bad_records=bad)), 2)

    @parameterized.parameters(
        (b"", "is empty"),
        (b" \n \n", "is empty"),
        (b' [\n {"text": "x"}]', "holds a JSON array"),
        (b'{"text": "x"}\n{"text": "y', "line 2.*ends too early"),
        (gzip.compress(b"one\n\ntwo" * 999)[:-9], "cut off or damaged"),
        (gzip.compress(b'{"text": "x"}\n' * 999)[:-9], "cut off or damaged"),
    )
    def test_broken_file(self, content, message):
        with self.assertRaisesRegex(UserError, message):
            list(records.read_records(self._write(content)))

    def test_no_file_and_no_split(self):
        with self.assertRaisesRegex(UserError, "no such file"):
            list(records.read_records("/no/such/file"))
        with self.assertRaisesRegex(ValueError, "'test', expected one of"):
            list(records.read_records(self._write(b"x"), "test"))

    def test_real_articles(self):
        positions = []
        documents = list(
            records.read_records(
                real_data_path("wikitext/wiki.valid.raw"),
                on_position=positions.append,
            )
        )
        self.assertGreater(len(documents), 60)
        self.assertEqual(sorted(positions), positions)
        for document in documents:
            self.assertTrue(document.text.strip())


if __name__ == "__main__":
    tf.test.main()
