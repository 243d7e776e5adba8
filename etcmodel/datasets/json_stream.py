"""Reads records one by one, however long the file is.

They are the elements of one JSON array, or JSON objects one a line. Plain text
is read line by line.
"""

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

import ijson

from etcmodel.datasets import files
from etcmodel.errors import UserError
from etcmodel.errors import show

_CHUNK_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 20
# Stands for bytes that are not UTF-8: no text has these noncharacters in a row.
INVALID_UTF8_MARK = "\uffff\ufffe\uffff"
# Halves of a character as JSON writes them, a whole one, and any escape.
_HIGH, _LOW = r"\\u[dD][89abAB]\w\w", r"\\u[dD][c-fC-F]\w\w"
_ESCAPE = re.compile(rf"{_HIGH}{_LOW}|({_HIGH}|{_LOW})|\\.", re.DOTALL)
_HALF = re.compile(f"{_HIGH}|{_LOW}")
# What may be the beginning of an escape, or of a pair of them.
_UNFINISHED = re.compile(r"(?:\\+u[dD][89abAB]\w\w)?\\+\w{0,5}\Z")


def _mark_invalid_bytes(error: UnicodeError) -> tuple[str, int]:
    return INVALID_UTF8_MARK, error.end


codecs.register_error("etcmodel.mark_invalid_bytes", _mark_invalid_bytes)


class _CleanUtf8:
    r"""A binary stream whose bytes are always valid UTF-8.

    A JSON parser gives up at the first byte that is not UTF-8, and with it all
    the records behind. Here such bytes become `INVALID_UTF8_MARK`, so that
    exactly the records that hold them can be told from the others. An escape of
    JSON that is half of a character, such as \ud800, becomes "?".
    """

    def __init__(self, stream: io.BufferedIOBase, is_json: bool = True):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(
            errors="etcmodel.mark_invalid_bytes"
        )
        self._is_json = is_json
        self._unfinished = ""

    def read(self, size: int = -1) -> bytes:
        if size == 0:
            return b""
        if size < 0:
            size = _CHUNK_BYTES
        while True:
            # What comes before damaged data is handed out before the error.
            chunk = self._stream.read1(size)
            text = self._decoder.decode(chunk, final=not chunk)
            if self._is_json:
                text = self._with_whole_escapes(text, final=not chunk)
            # An empty answer would mean the end of the file.
            if text or not chunk:
                return text.encode("utf-8")

    def _with_whole_escapes(self, text: str, final: bool) -> str:
        text, self._unfinished = self._unfinished + text, ""
        unfinished = None if final else _UNFINISHED.search(text, len(text) - 64)
        if unfinished:
            # Whether a backslash begins an escape, those before it decide.
            start = len(text[: unfinished.start()].rstrip("\\"))
            text, self._unfinished = text[:start], text[start:]
        if not _HALF.search(text):
            return text
        return _ESCAPE.sub(lambda x: "?" if x[1] else x[0], text)


def has_invalid_utf8(value: object) -> bool:
    """Whether bytes that are not UTF-8 were found anywhere in a JSON value.

    Args:
        value: a JSON value as read here: nested lists, dicts, strings.

    Returns:
        True if a string or a key holds `INVALID_UTF8_MARK`.
    """
    # Not recursive: some records hold a million values.
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if INVALID_UTF8_MARK in item:
                return True
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return False


def _check_start(
    path: str, stream: _CleanUtf8, opening: bytes, expected: str, other: str
) -> bytes:
    """Reads up to the first character that says something; returns it all.

    Args:
        path: the file.
        stream: its text.
        opening: the first character of such a file.
        expected: what such a file is.
        other: what to tell about JSON that begins with another bracket.

    Returns:
        The bytes that were read.

    Raises:
        UserError: the file is empty, or does not begin with `opening`.
    """
    start = b""
    while not start.strip():
        more = stream.read(_CHUNK_BYTES)
        if not more:
            raise UserError(
                f"{path} is empty. Expected {expected}; was the download cut "
                "off?"
            )
        start += more
    first = start.lstrip()
    if first.startswith(opening):
        return start
    if first.startswith((b"[", b"{")):
        raise UserError(f"{path} {other}")
    text = first[:40].decode("utf-8", "replace").replace("\uffff", "\ufffd")
    raise UserError(
        f"{path} is not JSON: it begins with {show(text)}. Expected {expected} "
        "in UTF-8, plain or gzipped."
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


def _damaged_gzip(
    path: str, count: int, error: Exception, what: str = "records"
) -> UserError:
    return UserError(
        f"{path}: the gzip data are cut off or damaged, after {count} whole "
        f"{what} ({error}). Get the file again."
    )


def read_json_array(
    path: str,
    on_position: Callable[[int], None] | None = None,
    key: str | None = None,
) -> Iterator[tuple[int, object]]:
    """Yields the elements of a JSON array without holding them all.

    Args:
        path: a JSON file in UTF-8 whose top level is an array; plain or
            gzipped (told by its first bytes, not by its name).
        on_position: called after every element with the number of bytes of
            the file that were read so far; for progress bars.
        key: what the array stands under, if the top level is an object.

    Yields:
        Pairs of the element's index, from 0, and the element as Python value.
        Bytes that are not UTF-8 are replaced by `INVALID_UTF8_MARK`; see
        `has_invalid_utf8`.

    Raises:
        UserError: the file cannot be read, is empty, is not JSON, is not an
            array, or ends too early. The message names the file and the record.
    """
    raw, plain = files.open_plain(path)
    index = -1
    with raw, plain:
        try:
            stream = _CleanUtf8(plain)
            start = _check_start(path, stream, *_array_start(key))
            source = _Prefixed(start, stream)
            place = "item" if key is None else f"{key}.item"
            for index, value in enumerate(
                ijson.items(source, place, use_float=True)
            ):
                yield index, value
                if on_position is not None:
                    on_position(raw.tell())
            if key is not None and index < 0:
                raise UserError(
                    f"{path} has no records under {key!r}. Is it a file of "
                    "another dataset?"
                )
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged_gzip(path, index + 1, error) from None
        except ijson.JSONError as error:
            detail = (str(error).strip().splitlines() or ["incomplete"])[0]
            if "overflow" in detail:
                raise UserError(
                    f"{path}: after {index + 1} whole records there is a whole "
                    "number of more than 64 bits. Write it as a string, or "
                    "take it out."
                ) from None
            what = "the JSON is broken"
            if "premature EOF" in detail or "incomplete" in detail.lower():
                what = "the JSON ends too early"
            raise UserError(
                f"{path}: {what}, after {index + 1} whole records ({detail}). "
                "If it was downloaded or copied it may have been cut off: get "
                "it again."
            ) from None


def _array_start(key: str | None) -> tuple[bytes, str, str]:
    """How a file with an array begins; see `_check_start`."""
    if key is None:
        return (
            b"[",
            "a JSON array of records",
            "holds a JSON object ('{' comes first), but a JSON array of "
            "records ('[' first) is expected. If it has one record a line, "
            "or keeps the records under a key, write them as one array.",
        )
    expected = f'a JSON object {{"{key}": [...]}} with the records'
    return (
        b"{",
        expected,
        f"holds a JSON array ('[' comes first), but {expected} is expected.",
    )


def _take(parts: list[bytes]) -> bytes:
    """Joins the parts and forgets them: a line may be long."""
    line = b"".join(parts)
    parts.clear()
    return line


def _lines(
    stream: _Prefixed | _CleanUtf8, most: int | None = None
) -> Iterator[bytes]:
    """Yields the lines of a stream with their line ends.

    Args:
        stream: the stream.
        most: of how many bytes at most, or hardly more; the rest of a longer
            line follows as another one. None for whole lines.
    """
    parts, size = [], 0
    while chunk := stream.read(_CHUNK_BYTES):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            parts += [end, b"\n"]
            yield _take(parts)
            size = 0
        parts.append(rest)
        size += len(rest)
        if most is not None and size >= most:
            yield _take(parts)
            size = 0
    yield _take(parts)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _parse_line(path: str, number: int, line: bytes, count: int) -> object:
    """The JSON value in a line.

    Args:
        path: the file.
        number: of the line, from 1.
        line: the line with its line end; valid UTF-8.
        count: how many records came before it.

    Returns:
        The value.

    Raises:
        UserError: it is no JSON.
    """
    try:
        text = line.decode("utf-8")
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        detail = "it is nested too deeply"
    except json.JSONDecodeError as error:
        detail = f"{error.msg} at character {error.colno} of the line"
    except ValueError as error:
        detail = str(error)
    if line.strip() in (b"{", b"["):
        raise UserError(
            f"{path}, line {number}: a record goes over several lines, but one "
            "JSON object a line is expected. Write each on one line, such as "
            f"with `jq -c . {path}`."
        )
    what = "is broken" if line.endswith(b"\n") else "ends too early"
    raise UserError(
        f"{path}, line {number}: the JSON {what}, after {count} whole records "
        f"({detail}). Expected one whole JSON object a line. If the file was "
        "downloaded or copied it may have been cut off: get it again."
    ) from None


def read_json_lines(
    path: str, on_position: Callable[[int], None] | None = None
) -> Iterator[tuple[int, object]]:
    """Yields the values of a file of JSON lines without holding them all.

    Args:
        path: a file in UTF-8 with one JSON object a line; plain or gzipped
            (told by its first bytes, not by its name). Blank lines are left
            out, and the last line need not have a line end.
        on_position: called after every value with the number of bytes of the
            file that were read so far; for progress bars.

    Yields:
        Pairs of the value's index, from 0, and the value as Python value.
        Bytes that are not UTF-8 are replaced by `INVALID_UTF8_MARK`; see
        `has_invalid_utf8`.

    Raises:
        UserError: the file cannot be read, is empty, is not JSON, is one
            array, has a line that is not JSON, or ends too early. The message
            names the file, and the line or the number of records before.
    """
    raw, plain = files.open_plain(path)
    count = 0
    with raw, plain:
        try:
            stream = _CleanUtf8(plain)
            start = _check_start(
                path,
                stream,
                b"{",
                "one JSON object a line",
                "holds a JSON array ('[' comes first), but one JSON object a "
                "line ('{' first) is expected. Write every element of the "
                "array on a line of its own, without commas between them.",
            )
            lines = _lines(_Prefixed(start, stream))
            for number, line in enumerate(lines, 1):
                if not line or line.isspace():
                    continue
                yield count, _parse_line(path, number, line, count)
                count += 1
                if on_position is not None:
                    on_position(raw.tell())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged_gzip(path, count, error) from None


def begins_with(path: str, *opening: bytes) -> bool:
    """Whether some characters come first in a file, apart from space.

    Args:
        path: a file, plain or gzipped.
        *opening: the characters, one each.

    Returns:
        Whether they do; False if there is nothing but space.

    Raises:
        UserError: the file cannot be read.
    """
    raw, plain = files.open_plain(path)
    with raw, plain:
        try:
            stream = _CleanUtf8(plain)
            while chunk := stream.read(_CHUNK_BYTES):
                if chunk.strip():
                    return _begins_with(chunk, opening)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged_gzip(path, 0, error) from None
    return False


def _begins_with(text: bytes, opening: Sequence[bytes]) -> bool:
    for character in opening:
        text = text.lstrip()
        if not text.startswith(character):
            return False
        text = text[len(character) :]
    return True


def read_text_lines(
    path: str, on_position: Callable[[int], None] | None = None
) -> Iterator[str]:
    """Yields the lines of a plain text without holding it all.

    Args:
        path: a text file in UTF-8, plain or gzipped.
        on_position: called before every line but the first with the number of
            bytes of the file that were read so far; for progress bars.

    Yields:
        Lines with their line ends. One of more than a million bytes comes in
        parts, of which only the last has a line end. Bytes that are not UTF-8
        are replaced by `INVALID_UTF8_MARK`.

    Raises:
        UserError: the file cannot be read, or is broken off. The message names
            the file.
    """
    raw, plain = files.open_plain(path)
    count = 0
    with raw, plain:
        try:
            stream = _CleanUtf8(plain, is_json=False)
            for line in _lines(stream, _MAX_LINE_BYTES):
                yield line.decode("utf-8")
                count += 1
                if on_position is not None:
                    on_position(raw.tell())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged_gzip(path, count, error, "lines") from None
