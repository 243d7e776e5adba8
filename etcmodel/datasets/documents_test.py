"""Tests of `documents`; `readers/records_test.py` tests errors in records."""

import gzip
import os

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import documents as records
from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from testing import samples
from testing.helpers import real_data_path
from testing.helpers import write_file


class RecordsTest(tf.test.TestCase, parameterized.TestCase):
    def test_json_lines(self):
        values = samples.DOCUMENT, {"text": "x"}, {"text": "y", "mentions": []}
        path = write_file(self, iter(values))
        mentions = (
            records.Mention(0, 3, "Q1"),
            *(records.Mention(4, 9), records.Mention(13, 17)),
        )
        expected = (
            ("a", samples.DOCUMENT["text"], mentions),
            ("1", "x"),
            ("2", "y", ()),
        )
        self.assertEqual(
            [
                records.Document(*x, source=(path, i, i + 1))
                for i, x in enumerate(expected)
            ],
            list(records.FORMAT.read(path)),
        )

    def test_plain_text(self):
        text = "\n\nOne.\nStill one.\n \nTwo á.\r\n\r\nThree."
        expected = ["One.\nStill one.", "Two á.", "Three."]
        for content in (text.encode(), gzip.compress(text.encode())):
            documents = list(records.FORMAT.read(write_file(self, content)))
            self.assertEqual(expected, [x.text for x in documents])
            self.assertEqual(["0", "1", "2"], [x.id for x in documents])
            self.assertEqual([None] * 3, [x.mentions for x in documents])

    def test_not_utf8(self):
        path = write_file(self, b"fine\n\nno\xff\n\nfine")
        with self.assertRaisesRegex(RecordError, "record 1.*not UTF-8"):
            list(records.FORMAT.read(path))
        bad = BadRecords(skip=True)
        self.assertLen(list(records.FORMAT.read(path, bad_records=bad)), 2)

    @parameterized.parameters(
        (b' [\n {"text": "x"}]', "holds a JSON array"),
        (b'{"text": "x"}\n{"text": "y', "line 2.*ends too early"),
        (gzip.compress(b"one\n\ntwo" * 999)[:-9], "damaged or truncated"),
        (gzip.compress(b'{"text": "x"}\n' * 999)[:-9], "damaged or truncated"),
    )
    def test_broken_file(self, content, message):
        with self.assertRaisesRegex(UserError, message):
            list(records.FORMAT.read(write_file(self, content)))

    @parameterized.parameters(b"", b" \n \n", b"\n" * 300_000)
    def test_empty_file(self, content):
        """An empty file raises an error, or is skipped like a bad record."""
        empty = write_file(self, content, "empty")
        paths = [
            write_file(self, b"One.", "one"),
            empty,
            write_file(self, b"Two."),
        ]
        with self.assertRaisesRegex(
            RecordError, f"{empty}.*no text.*`skip_bad_records`"
        ):
            list(records.FORMAT.read(paths))
        bad = BadRecords(skip=True)
        found = list(records.FORMAT.read(paths, bad_records=bad))
        self.assertEqual(["One.", "Two."], [x.text for x in found])
        self.assertEqual({"empty file": 1}, bad.counts)
        self.assertIn(empty, bad.examples[0])

    def test_null_is_not_an_empty_file(self):
        path = write_file(self, b'{"text": "x"}\nnull\n')
        with self.assertRaisesRegex(RecordError, "record 1.*got None"):
            list(records.FORMAT.read(path))

    def test_long_texts_come_in_parts(self):
        """A part has the mentions inside it, and the id of its record."""
        text = "Ann is in Bonn.\n" * 150_000
        # One mention is in the second part, one in the last.
        second, last = 16 * 70_000, 16 * 149_999
        mentions = [
            {"start": 10, "end": 14, "entity": "first"},
            {"start": second, "end": second + 3, "entity": "second"},
            {"start": last + 10, "end": last + 14, "entity": "last"},
            # One mention crosses a place where the text is split.
            {"start": 3, "end": len(text) - 1},
        ]
        values = (
            {"id": "a", "text": text, "mentions": mentions},
            {"text": text},
            {"id": "b", "text": "x"},
        )
        path = write_file(self, iter(values))
        found = list(records.FORMAT.read(path))
        self.assertEqual([0, 0, 0, 1, 1, 1, 2], [x.index for x in found])
        self.assertLen({x.id for x in found}, 7)
        for name, document in zip("aaa111b", found, strict=True):
            self.assertStartsWith(document.id, name)
        for parts in found[:3], found[3:6]:
            self.assertEqual(text, "".join(x.text for x in parts))
            self.assertLess(max(len(x.text) for x in parts), 1_100_000)
            for part in parts:
                self.assertEndsWith(part.text, "Bonn.\n")
        self.assertEqual(
            [[("Bonn", "first")], [("Ann", "second")], [("Bonn", "last")]],
            [
                [(x.text[m.start : m.end], m.entity) for m in x.mentions]
                for x in found[:3]
            ],
        )
        self.assertEqual([None] * 4, [x.mentions for x in found[3:]])

    def test_real_articles(self):
        path, positions = real_data_path("wikitext/wiki.valid.raw"), []
        articles = list(records.FORMAT.read(path, on_position=positions.append))
        # Counted by `grep -c '^ = [^=]* = $'`.
        self.assertLen(articles, 60)
        self.assertStartsWith(articles[0].text, "Homarus gammarus\n")
        self.assertNotIn(" @-@ ", "".join(x.text for x in articles))
        self.assertEqual(sorted(positions), positions)
        self.assertEqual(os.path.getsize(path), positions[-1])
        pieces = list(records.FORMATS["blank_lines"].read(path))
        self.assertGreater(len(pieces), 600)
        (whole,) = list(records.FORMATS["file"].read(path))[:1]
        self.assertStartsWith(whole.text, "= Homarus gammarus =")

    def test_utf16(self):
        path = write_file(self, "One.\n\nTwo.".encode("utf-16-le"))
        with self.assertRaisesRegex(RecordError, "record 0.*NUL.*UTF-16"):
            list(records.FORMAT.read(path))

    def test_no_such_format(self):
        records.check_documents("file")
        with self.assertRaisesRegex(ValueError, "'pages', expected one of"):
            records.check_documents("pages")


if __name__ == "__main__":
    tf.test.main()
