"""Tests of the limit on a record's size, in every file format."""

import gzip
import json
import os
import tracemalloc

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification
from etcmodel.datasets import documents
from etcmodel.datasets import question_answering
from etcmodel.datasets import triviaqa
from etcmodel.datasets.narrativeqa import stories
from etcmodel.errors import UserError
from etcmodel.readers import files
from etcmodel.readers import json_stream
from etcmodel.readers import tables
from testing.helpers import write_file

_MEGABYTE = 1 << 20


def _rows(path):
    return (row for _, row in tables.read_rows(path))


def _squad(path):
    record = question_answering.FORMAT.record
    return json_stream.read_json_array(path, None, record, "data")


def _text(size):
    return json.dumps({"text": "a" * size})


class RecordSizeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        # Reader, file name, function from a size to the content, and the line
        # that the error names.
        ("lines", _rows, "a.jsonl", lambda n: f"{_text(9)}\n{_text(n)}\n", 2),
        ("last_line", _rows, "a.jsonl", lambda n: f"{_text(9)}\n{_text(n)}", 2),
        ("spaces", _rows, "a.jsonl", lambda n: _text(9) + "\n" + " " * n, 2),
        ("csv_cell", _rows, "a.csv", lambda n: "text,id\n\na,1\n" + "b" * n, 4),
        ("csv_header", _rows, "a.csv", lambda n: "b" * n + ",id\n1,2", 1),
        (
            *("csv_lines", _rows, "a.csv"),
            *(lambda n: 'text,id\na,1\n"' + "b\n" * (n // 2) + '",2', 3),
        ),
        (
            *("csv_cells", _rows, "a.csv"),
            *(lambda n: "text,id\n" + '"b\n",' * (n // 5), 2),
        ),
        ("tsv", _rows, "a.tsv", lambda n: "text\tid\na\t1\n" + "b" * n, 3),
        (
            *("quoted_tsv", _rows, "a.tsv"),
            *(lambda n: 'text\tid\n"' + "b\n" * (n // 2) + '"\t1', 2),
        ),
    )
    def test_lines_and_rows(self, read, name, content, line):
        """The error names the first line of the record."""
        for size in (1000, 100_000):
            path = write_file(self, content(size), name)
            with self.assertRaisesRegex(
                UserError,
                rf"{name}, line {line}: the record has more than {size // 2:,} "
                r"bytes.*`max_record_bytes` \(0: no limit\)",
            ):
                list(files.limited(size // 2, read, path))
            for limit in (0, size + 100):
                list(files.limited(limit, read, path))

    @parameterized.named_parameters(
        ("array", _rows, "a.json", lambda n: f"[{_text(9)}, {_text(n)}]"),
        (
            *("nested", _rows, "a.json"),
            *(lambda n: '[{"a": 1}, {"a": [%s1]}]' % ("1, " * (n // 3)),),
        ),
        (
            *("of_a_type", lambda x: classification.FORMAT.read(x, "predict")),
            *("a.json", lambda n: f"[{_text(9)}, {_text(n)}]"),
        ),
        (
            *("under_a_key", _squad, "a.json"),
            lambda n: '{"data": [{"a": 1}, {"a": "%s"}]}' % ("a" * n),
        ),
    )
    def test_elements_of_arrays(self, read, name, content):
        path = write_file(self, content(4 * _MEGABYTE), name)
        with self.assertRaisesRegex(
            UserError, f"{name}, record 1: .* more than"
        ):
            list(files.limited(2 * _MEGABYTE, read, path))
        for limit in (0, 5 * _MEGABYTE):
            self.assertLen(list(files.limited(limit, read, path)), 2)

    def test_many_small_records(self):
        """The limit applies to each record, not to all records together."""
        for name, content in (
            ("a.json", f"[{', '.join([_text(50)] * 20_000)}]"),
            ("a.jsonl", f"{_text(50)}\n" * 20_000),
            ("a.csv", "text,label\n" + "a,1\n" * 20_000),
        ):
            path = write_file(self, content, name)
            for read in (_rows, classification.FORMAT.read):
                args = () if read == _rows else ("predict",)
                found = files.limited(100, read, path, *args)
                self.assertGreaterEqual(sum(1 for _ in found), 20_000)

    def test_parquet(self):
        import pyarrow
        from pyarrow import parquet

        path = write_file(self, b"", "a.parquet")
        texts = [os.urandom(2000).hex() for _ in range(3)]
        parquet.write_table(pyarrow.table({"text": texts}), path)
        with self.assertRaisesRegex(
            UserError, "a.parquet, row group 0: .* more"
        ):
            list(files.limited(1000, _rows, path))
        self.assertLen(list(files.limited(20_000, _rows, path)), 3)

    def test_documents_in_files_of_their_own(self):
        story = write_file(self, gzip.compress(b"a " * 1000), "story")
        page = write_file(self, "a \n" * 1000, "page")
        for read, path in ((stories.load, story), (triviaqa._read_page, page)):

            def values(path, read=read):
                yield read(path)

            with self.assertRaisesRegex(UserError, "more than 999 bytes"):
                list(files.limited(999, values, path))
            (text,) = files.limited(3000, values, path)
            self.assertEqual(1000, text.count("a"))

    def test_texts_have_no_limit(self):
        """Plain texts have no limit, because long lines are split."""
        path = write_file(self, "a" * 3000, "a.txt")
        (document,) = files.limited(1000, documents.FORMAT.read, path)
        self.assertLen(document.text, 3000)

    @parameterized.parameters(
        ("a.jsonl.gz", b'{"text": "'),
        ("a.json.gz", b'[{"text": "'),
        ("a.csv.gz", b'text,id\n"'),
        ("a.tsv.gz", b"text\tid\na\t"),
        ("a.jsonl.gz", b"", b"\n"),
    )
    def test_a_bomb_does_not_fill_the_memory(self, name, start, fill=b"a"):
        """Reading stops at the limit, long before the end of the line."""
        content = gzip.compress(start + fill * (64 << 20), 1)
        path = write_file(self, content, name)
        tracemalloc.start()
        try:
            with self.assertRaises(UserError):
                list(files.limited(2 * _MEGABYTE, _rows, path))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Joining the line copies it, and a character may take 4 bytes.
        self.assertLess(peak, 24 * _MEGABYTE)

    def test_the_limit_ends_with_the_reader(self):
        path = write_file(self, f"{_text(1000)}\n" * 2, "a.jsonl")
        reader = files.limited(5000, _rows, path)
        next(reader)
        with self.assertRaises(UserError):
            list(files.limited(500, _rows, path))
        self.assertLen(list(_rows(path)), 2)
        self.assertLen(list(reader), 1)


if __name__ == "__main__":
    tf.test.main()
