"""Tests of compressed files, recognized by their first bytes."""

import bz2
import functools
import gzip
import io
import json
import lzma
import tarfile
import zipfile

import pyarrow as pa
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.readers import tables
from testing.helpers import write_file

_ROWS = [{"id": "1", "text": "Brno"}, {"id": "2", "text": "Znojmo, Zlín"}]
_JSON_LINES = "".join(json.dumps(x) + "\n" for x in _ROWS)
_CSV = 'id,text\n1,Brno\n\n2,"Znojmo, Zlín"\n'


def _arrow_compress(data, kind):
    """Compresses data to a complete frame, which `pa.compress` cannot do."""
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, kind) as compressed:
        compressed.write(data)
    return stream.getvalue().to_pybytes()


_zstd = functools.partial(_arrow_compress, kind="zstd")


def _zip(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _tar():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.csv"))
    return stream.getvalue()


class CompressionTest(tf.test.TestCase, parameterized.TestCase):
    def _read(self, name, content, **kwargs):
        """Writes a file and returns its rows."""
        path = write_file(self, content, name)
        return [row for _, row in tables.read_rows(path, **kwargs)]

    @parameterized.parameters(
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".lzma.xz", lzma.compress),
        (".zst", lambda x: _arrow_compress(x[:9], "zstd") + _zstd(x[9:])),
        (".lz4", lambda x: _arrow_compress(x, "lz4")),
        (".zip", lambda x: _zip({"folder/": b"", "a": x, "__MACOSX/a": b""})),
    )
    def test_compressed(self, ending, compress):
        """The first bytes determine the format, not the suffix."""
        for name, content in (("a.csv", _CSV), ("a.jsonl", _JSON_LINES)):
            data = compress(content.encode())
            for path in (name + ending, name, "a"):
                self.assertEqual(_ROWS, self._read(path, data))
            if ending in (".zip", ".zst"):
                continue
            with self.assertRaisesRegex(UserError, "are damaged or truncated"):
                self._read(name + ending, data[: len(data) // 2])

    def test_cut_off_zstandard(self):
        """A truncated file is an error, although some libraries ignore it."""
        content = _JSON_LINES * 5000
        data = _zstd(content.encode())
        with self.assertRaisesRegex(
            UserError, "are damaged or truncated after"
        ):
            self._read("a.jsonl.zst", data[:-5])

    @parameterized.parameters(
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive, which.*Unpack it"),
        (b"SQLite format 3\x00", "an SQLite database.*Export a table"),
        (b"\xd0\xcf\x11\xe0", "a spreadsheet workbook.*Save it as .csv"),
        (b"\x80\x04\x95", "a Python pickle"),
        (lambda: _zip({"a.csv": b"", "b.csv": b""}), "holds 2 files, expected"),
        (
            lambda: _zip({"[Content_Types].xml": b""}),
            "is a spreadsheet workbook",
        ),
        (
            lambda: b"PK\x03\x04 and no more",
            "ZIP data are damaged or truncated",
        ),
        (lambda: gzip.compress(_tar()), "is a tar archive"),
        (lambda: _tar(), "is a tar archive"),
    )
    def test_files_of_other_kinds(self, content, message):
        content = content() if callable(content) else content + b"\0" * 600
        for name in ("a.csv", "a.csv.gz", "a.parquet"):
            with self.assertRaisesRegex(UserError, message):
                self._read(name, content)

    def test_text_that_begins_like_compressed_data(self):
        self.assertEqual([{"BZh9": "a"}], self._read("a.csv", b"BZh9\na\n"))
        self.assertEqual([{"ORC": "a"}], self._read("a.csv", b"ORC\na\n"))


if __name__ == "__main__":
    tf.test.main()
