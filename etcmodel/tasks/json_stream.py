"""Reads a JSON array of records one by one, however long the file is."""

import codecs
import gzip
import io
import zlib
from collections.abc import Callable
from collections.abc import Iterator

import ijson

from etcmodel.tasks.errors import UserError
from etcmodel.tasks.errors import show

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 16
# Stands for bytes that are not UTF-8: a noncharacter, so no text has it.
INVALID_UTF8_MARK = "\uffff"


def _mark_invalid_bytes(error: UnicodeError) -> tuple[str, int]:
    return INVALID_UTF8_MARK, error.end


codecs.register_error("etcmodel.mark_invalid_bytes", _mark_invalid_bytes)


class _CleanUtf8:
    """A binary stream whose bytes are always valid UTF-8.

    A JSON parser gives up at the first byte that is not UTF-8, and with it all
    the records behind. Here such bytes become `INVALID_UTF8_MARK`, so that
    exactly the records that hold them can be told from the others.
    """

    def __init__(self, stream: io.BufferedIOBase):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(
            errors="etcmodel.mark_invalid_bytes"
        )

    def read(self, size: int = -1) -> bytes:
        if size == 0:
            return b""
        if size < 0:
            size = _CHUNK_BYTES
        while True:
            chunk = self._stream.read(size)
            text = self._decoder.decode(chunk, final=not chunk)
            # An empty answer would mean the end of the file.
            if text or not chunk:
                return text.encode("utf-8")


def has_invalid_utf8(value: object) -> bool:
    """Whether bytes that are not UTF-8 were found anywhere in a JSON value.

    Args:
        value: what `read_json_array` yielded: nested lists, dicts, strings.

    Returns:
        True if a string or a key holds `INVALID_UTF8_MARK`.
    """
    if isinstance(value, str):
        return INVALID_UTF8_MARK in value
    if isinstance(value, dict):
        return any(
            has_invalid_utf8(key) or has_invalid_utf8(item)
            for key, item in value.items()
        )
    if isinstance(value, list):
        return any(has_invalid_utf8(item) for item in value)
    return False


def _open(path: str) -> tuple[io.FileIO, io.BufferedIOBase]:
    """Opens a plain or gzipped file: the raw file, and its plain bytes."""
    try:
        raw = open(path, "rb", buffering=0)  # noqa: SIM115
    except FileNotFoundError:
        raise UserError(
            f"{path}: there is no such file. Check the path."
        ) from None
    except IsADirectoryError:
        raise UserError(
            f"{path} is a directory. Name the one file inside it that is to "
            "be read."
        ) from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}). Check that you may "
            "read it."
        ) from None
    magic = raw.read(len(_GZIP_MAGIC))
    raw.seek(0)
    if magic == _GZIP_MAGIC:
        return raw, gzip.GzipFile(fileobj=raw)
    return raw, io.BufferedReader(raw, _CHUNK_BYTES)


def _check_start(path: str, stream: _CleanUtf8) -> bytes:
    """Reads up to the first character that says something; returns it all.

    Raises:
        UserError: the file is empty, or does not begin like a JSON array.
    """
    start = b""
    while not start.strip():
        more = stream.read(_CHUNK_BYTES)
        if not more:
            raise UserError(
                f"{path} is empty. Expected a JSON array of records; was the "
                "download cut off?"
            )
        start += more
    first = start.lstrip()
    if first.startswith(b"["):
        return start
    if first.startswith(b"{"):
        raise UserError(
            f"{path} holds a JSON object ('{{' comes first), but a JSON array "
            "of records ('[' first) is expected. If it has one record a line, "
            "or keeps the records under a key, write them as one array."
        )
    text = first[:40].decode("utf-8", "replace").replace("\uffff", "\ufffd")
    raise UserError(
        f"{path} is not JSON: it begins with {show(text)}. Expected a JSON "
        "array of records in UTF-8, plain or gzipped."
    )


class _Prefixed:
    """A stream with some bytes put back in front."""

    def __init__(self, prefix: bytes, stream: _CleanUtf8):
        self._prefix = prefix
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if size == 0:
            return b""
        if self._prefix:
            prefix, self._prefix = self._prefix, b""
            return prefix
        return self._stream.read(size)


def read_json_array(
    path: str, on_position: Callable[[int], None] | None = None
) -> Iterator[tuple[int, object]]:
    """Yields the elements of a JSON array without holding them all.

    Args:
        path: a JSON file in UTF-8 whose top level is an array; plain or
            gzipped (told by its first bytes, not by its name).
        on_position: called after every element with the number of bytes of
            the file that were read so far; for progress bars.

    Yields:
        Pairs of the element's index, from 0, and the element as Python value.
        Bytes that are not UTF-8 are replaced by `INVALID_UTF8_MARK`; see
        `has_invalid_utf8`.

    Raises:
        UserError: the file cannot be read, is empty, is not JSON, is not an
            array, or ends too early. The message names the file and the record.
    """
    raw, plain = _open(path)
    index = -1
    with raw, plain:
        try:
            stream = _CleanUtf8(plain)
            source = _Prefixed(_check_start(path, stream), stream)
            for index, value in enumerate(
                ijson.items(source, "item", use_float=True)
            ):
                yield index, value
                if on_position is not None:
                    on_position(raw.tell())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                f"{path}: the gzip data are cut off or damaged, after "
                f"{index + 1} whole records ({error}). Get the file again."
            ) from None
        except ijson.JSONError as error:
            detail = (str(error).strip().splitlines() or ["incomplete"])[0]
            what = "the JSON is broken"
            if "premature EOF" in detail or "incomplete" in detail.lower():
                what = "the JSON ends too early"
            raise UserError(
                f"{path}: {what}, after {index + 1} whole records ({detail}). "
                "If it was downloaded or copied it may have been cut off: get "
                "it again."
            ) from None
