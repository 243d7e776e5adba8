"""Opens compressed files, recognized by their first bytes.

Python's modules open gzip, bzip2, xz and ZIP, Arrow opens Zstandard and LZ4.
fsspec's openers are not used: its Zstandard reader ends without an error where
a file is truncated, and its ZIP reader reads only the first of several files.
"""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable

from etcmodel import extras
from etcmodel.errors import UserError

DAMAGES = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""Errors raised by reading damaged or truncated data."""

ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
_SUPPORTED = ".gz, .bz2, .xz, .zst, .lz4 and .zip (with one file)"
HEAD_BYTES = 512
_CHUNK_BYTES = 1 << 16


def _damaged_zip(path: str, error: Exception) -> UserError:
    return UserError(
        f"{path}: the ZIP data are cut off or damaged ({error}). Get the file "
        "again."
    )


def _open_zip(path: str, raw: io.RawIOBase) -> io.BufferedIOBase:
    """Opens the only file of a ZIP archive."""
    try:
        archive = zipfile.ZipFile(raw)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise _damaged_zip(path, error) from None
    names = [x for x in archive.namelist() if not x.endswith("/")]
    if "[Content_Types].xml" in names:
        raise UserError(
            f"{path} is a workbook of a spreadsheet. Save the sheet as .csv."
        )
    # Ignores files that macOS adds.
    names = [x for x in names if not x.startswith("__MACOSX/")]
    if len(names) != 1:
        raise UserError(
            f"{path} holds {len(names)} files, expected one. Unpack it and "
            "name the files."
        )
    if archive.getinfo(names[0]).flag_bits & 1:
        raise UserError(f"{path} has a password. Unpack it.")
    try:
        return archive.open(names[0])
    except NotImplementedError as error:
        raise UserError(f"{path} cannot be read: {error} Unpack it.") from None


def _open_arrow(kind: str, path: str, raw: io.RawIOBase) -> io.BufferedIOBase:
    try:
        extras.require("pyarrow")
    except extras.MissingExtraError:
        raise UserError(
            f"{path}: reading {kind} needs pyarrow. Run `pip install pyarrow`."
        ) from None
    import pyarrow

    source = pyarrow.PythonFile(raw, "r")
    stream = pyarrow.CompressedInputStream(source, kind)
    return io.BufferedReader(stream, _CHUNK_BYTES)


# First bytes -> the opener, called with the path and the open file.
_OPENERS: dict[bytes, Callable] = {
    b"\x1f\x8b": lambda path, raw: gzip.GzipFile(fileobj=raw),
    b"BZh": lambda path, raw: bz2.BZ2File(raw),
    b"\xfd7zXZ\x00": lambda path, raw: lzma.LZMAFile(raw),
    b"PK\x03\x04": _open_zip,
    b"PK\x05\x06": _open_zip,
    b"\x28\xb5\x2f\xfd": lambda path, raw: _open_arrow("zstd", path, raw),
    b"\x04\x22\x4d\x18": lambda path, raw: _open_arrow("lz4", path, raw),
}
# Follows "BZh" and a digit, which may also begin a plain text.
_BZIP2_BLOCKS = b"1AY&SY", b"\x17rE8P\x90"
# First bytes of unsupported files -> what they are, what to do.
_OTHERS = {
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "Unpack it"),
    b"Rar!\x1a\x07": ("a RAR archive", "Unpack it"),
    b"\x1f\x9d": ("compressed by `compress`", "Unpack it"),
    b"\xff\x06\x00\x00sNaPpY": ("compressed by Snappy", "Unpack it"),
    b"\xd0\xcf\x11\xe0": ("a workbook of a spreadsheet", "Save it as .csv"),
    b"SQLite format 3\x00": ("a database of SQLite", "Export a table as .csv"),
    b"\x89HDF\r\n": ("an HDF5 file", "Write the rows as Parquet"),
    b"\x93NUMPY": ("an array of NumPy", "Write the rows as JSON lines"),
    b"\x80\x04\x95": ("a pickle of Python", "Write the rows as JSON lines"),
    b"\x80\x05\x95": ("a pickle of Python", "Write the rows as JSON lines"),
    b"FEA1": ("a Feather file of version 1", "Write it with version 2"),
    b"Obj\x01": ("an Avro file", "Write the rows as Parquet"),
    b"ORC": ("an ORC file", "Write the rows as Parquet"),
}
_TAR = slice(257, 262), b"ustar"


def open_compressed(
    path: str, raw: io.RawIOBase, head: bytes
) -> io.BufferedIOBase | None:
    """Opens the plain bytes of a compressed file; returns None for others.

    `head` has the first `HEAD_BYTES` bytes of the file; `raw` is at its start.

    Raises:
        UserError: the file is of a kind that cannot be read, or a ZIP archive
            of several files.
    """
    for magic, (what, advice) in _OTHERS.items():
        if head.startswith(magic) and (magic != b"ORC" or 0 in head[3:20]):
            raise UserError(
                f"{path} is {what}, which cannot be read. {advice}. "
                f"Compressed files may be {_SUPPORTED}."
            )
    _check_no_archive(path, head)
    for magic, opened in _OPENERS.items():
        if not head.startswith(magic):
            continue
        if magic == b"BZh" and head[4:10] not in _BZIP2_BLOCKS:
            continue
        return opened(path, raw)
    return None


def _check_no_archive(path: str, head: bytes) -> None:
    """Raises an error for the first bytes of a tar archive."""
    where, magic = _TAR
    if head[where] == magic:
        raise UserError(
            f"{path} is an archive of files (tar). Unpack it and name the "
            "files."
        )


def check_content(path: str, plain: io.BufferedIOBase) -> None:
    """Raises a `UserError` if compressed bytes hold an archive of files."""
    try:
        _check_no_archive(path, plain.peek(HEAD_BYTES))
    except zipfile.BadZipFile as error:
        raise _damaged_zip(path, error) from None
    except DAMAGES:
        # Reported when the records are read.
        return


def without_ending(path: str) -> str:
    """Removes the ending of a compressed file: `a.csv` for `a.csv.gz`."""
    for ending in ENDINGS:
        if path.lower().endswith(ending):
            return path[: -len(ending)]
    return path
