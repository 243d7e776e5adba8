"""Opens compressed files, recognized by their first bytes.

Python's modules open gzip, bzip2, xz and ZIP; Arrow opens Zstandard and LZ4.
fsspec's openers are not used: its Zstandard reader reports no error for a
truncated file, and its ZIP reader reads only the first of several files.
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
"""Exceptions that decompressors raise for damaged or truncated data."""

ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
_SUPPORTED = ".gz, .bz2, .xz, .zst, .lz4 and .zip (with one file)"
HEAD_BYTES = 512
_CHUNK_BYTES = 1 << 16


def _damaged_zip(path: str, error: Exception) -> UserError:
    return UserError(
        f"{path}: the ZIP data are damaged or truncated ({error}). Get the "
        "file again."
    )


def _open_zip(path: str, raw: io.RawIOBase) -> io.BufferedIOBase:
    """Opens the single file of a ZIP archive."""
    try:
        archive = zipfile.ZipFile(raw)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise _damaged_zip(path, error) from None
    names = [x for x in archive.namelist() if not x.endswith("/")]
    if "[Content_Types].xml" in names:
        raise UserError(
            f"{path} is a spreadsheet workbook. Save the sheet as .csv."
        )
    # Ignores files that macOS adds.
    names = [x for x in names if not x.startswith("__MACOSX/")]
    if len(names) != 1:
        raise UserError(
            f"{path} holds {len(names)} files, expected one. Unpack it and "
            "pass the paths of the files."
        )
    if archive.getinfo(names[0]).flag_bits & 1:
        raise UserError(f"{path} is password-protected. Unpack it first.")
    try:
        return archive.open(names[0])
    except NotImplementedError as error:
        raise UserError(
            f"{path} cannot be read: {error} Unpack it first."
        ) from None


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
# In bzip2 files, this follows "BZh" and a digit. Plain text may begin with
# "BZh", too.
_BZIP2_BLOCKS = b"1AY&SY", b"\x17rE8P\x90"
# First bytes of an unsupported format -> its description and advice.
_OTHERS = {
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "Unpack it"),
    b"Rar!\x1a\x07": ("a RAR archive", "Unpack it"),
    b"\x1f\x9d": ("compressed by `compress`", "Unpack it"),
    b"\xff\x06\x00\x00sNaPpY": ("compressed by Snappy", "Unpack it"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet workbook", "Save it as .csv"),
    b"SQLite format 3\x00": ("an SQLite database", "Export a table as .csv"),
    b"\x89HDF\r\n": ("an HDF5 file", "Write the rows as Parquet"),
    b"\x93NUMPY": ("a NumPy array", "Write the rows as JSON lines"),
    b"\x80\x04\x95": ("a Python pickle", "Write the rows as JSON lines"),
    b"\x80\x05\x95": ("a Python pickle", "Write the rows as JSON lines"),
    b"FEA1": ("a Feather version 1 file", "Write it as version 2"),
    b"Obj\x01": ("an Avro file", "Write the rows as Parquet"),
    b"ORC": ("an ORC file", "Write the rows as Parquet"),
}
_TAR = slice(257, 262), b"ustar"


def open_compressed(
    path: str, raw: io.RawIOBase, head: bytes
) -> io.BufferedIOBase | None:
    """Opens a compressed file; returns None if the file is not compressed.

    Args:
        path: the file's path, for messages.
        raw: the open file, positioned at its start.
        head: the first `HEAD_BYTES` bytes of the file.

    Raises:
        UserError: the format is not supported, or the file is a ZIP archive
            that does not hold exactly one file.
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
    """Raises a `UserError` if the first bytes are those of a tar archive."""
    where, magic = _TAR
    if head[where] == magic:
        raise UserError(
            f"{path} is a tar archive. Unpack it and pass the paths of the "
            "files."
        )


def check_content(path: str, plain: io.BufferedIOBase) -> None:
    """Raises a `UserError` if the decompressed bytes are a tar archive."""
    try:
        _check_no_archive(path, plain.peek(HEAD_BYTES))
    except zipfile.BadZipFile as error:
        raise _damaged_zip(path, error) from None
    except DAMAGES:
        # The code that reads the records reports the damage.
        return


def without_ending(path: str) -> str:
    """Removes a compression suffix: `a.csv.gz` becomes `a.csv`."""
    for ending in ENDINGS:
        if path.lower().endswith(ending):
            return path[: -len(ending)]
    return path
