"""Reads records one by one, however long the file is.

They are the elements of one JSON array, or JSON objects, one per line. Plain
text is read line by line.

A reader that knows the type of the records lets msgspec decode them. Records
that msgspec rejects are parsed again as plain JSON, which is slow, but shows
which record is bad and why.
"""

import codecs
import contextlib
import itertools
import json
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import AnyStr
from typing import NamedTuple

import ijson
import msgspec

from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import compression
from etcmodel.readers import files
from etcmodel.readers import json_values

OnPosition = Callable[[int], None] | None
"""Called after each record with the bytes of the file that were read so far."""

_CHUNK_BYTES = 1 << 16
_MAX_LINE_SIZE = 1 << 20
# Longer elements of an array are read by the slower parser.
_MAX_ELEMENT_BYTES = 1 << 20
_SPACE = rb"[ \t\r\n]*"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# Maximum depth, about that of JSON lines. The parser's time grows with the
# square of the depth.
_MAX_DEPTH = 1000
# Bytes to parse for the end of the last whole element of a part.
_MAX_TRIED_BYTES = 1 << 21
_OBJECT_START = re.compile(_SPACE.join((b"", rb"\{", b'("[^"\\\\]*")')))


class Place(NamedTuple):
    """The place of a record in its file.

    Attributes:
        index: its position among the records, from 0.
        line: the line where it starts, from 1; None if unknown.
    """

    index: int
    line: int | None = None


class _File:
    """An open file that counts the records read.

    On exit, it reports damaged compressed data as `UserError`.
    """

    def __init__(
        self, path: str, on_position: OnPosition = None, what: str = "records"
    ):
        part = files.part_of(path)
        self.path, self.first_line = path, part.lines + 1
        self.count = part.records
        self.what = what
        # Bytes since the last record.
        self._size = 0
        self._on_position = on_position
        self._raw, self._plain = files.open_plain(path)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self._plain.close()
        self._raw.close()
        if isinstance(error, compression.DAMAGES):
            raise UserError(
                f"{self.path}: the data are cut off or damaged, after "
                f"{self.count} whole {self.what} ({error}). Get the file again."
            ) from None

    def chunks(self) -> Iterator[bytes]:
        """Yields the plain bytes without byte order mark.

        Yields what comes before damaged data before it raises the error.
        """
        try:
            start = self._plain.read(len(codecs.BOM_UTF8))
            yield start.removeprefix(codecs.BOM_UTF8) + self._read()
            while chunk := self._read():
                yield chunk
        except compression.DAMAGES:
            # The caller first uses the bytes that there are.
            yield b""
            raise

    def _read(self) -> bytes:
        return self._plain.read1(_CHUNK_BYTES)

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yields chunks; raises an error if too many have no end of a record.

        The parser yields an element several chunks late, so some chunks
        without one are normal.
        """
        for chunk in chunks:
            if self._size > _MAX_ELEMENT_BYTES:
                place = f"{self.path}, record {self.count}"
                files.check_size(self._size, place)
            self._size += len(chunk)
            yield chunk

    def advance(self) -> None:
        """Counts a record that was read."""
        self.count, self._size = self.count + 1, 0
        if self._on_position is not None:
            self._on_position(self._raw.tell())


def _check_start(
    path: str,
    chunks: Iterator[bytes],
    opening: bytes,
    expected: str,
    other: str,
) -> bytes:
    """Reads up to the first character that is not white space."""
    parts, size = [], 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if first := chunk.lstrip():
            break
        files.check_size(size, f"{path}, line 1")
    else:
        raise UserError(
            f"{path} is empty. Expected {expected}; was the download cut off?"
        )
    if first.startswith(opening):
        return b"".join(parts)
    if first.startswith((b"[", b"{")):
        raise UserError(f"{path} {other}")
    text = json_values.decode(first).encode()[:40].decode("utf-8", "replace")
    text = text.replace("\uffff", "\ufffd")
    raise UserError(
        f"{path} is not JSON: it begins with {show(text)}. Expected {expected} "
        "in UTF-8, plain or compressed."
    )


def read_json_array(
    path: str,
    on_position: OnPosition = None,
    record: type | None = None,
    key: str | None = None,
) -> Iterator[tuple[Place, object]]:
    """Yields the elements of a JSON array without holding them all.

    Args:
        path: a JSON file in UTF-8 whose top level is an array; plain or
            compressed (the first bytes decide, not the name).
        on_position: see `OnPosition`.
        record: a type of msgspec. Elements that are valid JSON of this type
            are returned as such.
        key: the key of the array, if the top level is an object.

    Yields:
        Pairs of the element's `Place`, whose line is None, and the element as
        a `record` or a Python value, with `INVALID_UTF8_MARK` for bytes that
        are not UTF-8.

    Raises:
        UserError: the file cannot be read, is empty, is not JSON, is not an
            array, or ends too early. The message names the file and the record.
    """
    with _File(path, on_position) as file:
        chunks = file.chunks()
        start = _check_start(path, chunks, *_array_start(key))
        try:
            chunks = file.counted(chunks)
            for value in _elements(start, chunks, record, key):
                yield Place(file.count), value
                file.advance()
        except ijson.JSONError as error:
            raise _broken_array(path, file.count, str(error)) from None
        if key is not None and not file.count:
            raise UserError(
                f"{path} has no records under {key!r}. Is it a file of "
                "another dataset?"
            )


def _broken_array(path: str, count: int, message: str) -> UserError:
    detail = (message.strip().splitlines() or ["incomplete"])[0]
    if "overflow" in detail:
        return UserError(
            f"{path}: after {count} whole records there is a whole number of "
            "more than 64 bits. Write it as a string, or take it out."
        )
    what = "the JSON is broken"
    if detail == _TOO_DEEP:
        return UserError(
            f"{path}: after {count} whole records {detail}: more than "
            f"{_MAX_DEPTH} lists and objects inside each other. Flatten the "
            "record, or leave it out."
        )
    if "premature EOF" in detail or "incomplete" in detail.lower():
        what = "the JSON ends too early"
    return UserError(
        f"{path}: {what}, after {count} whole records ({detail}). If it was "
        "downloaded or copied it may have been cut off: get it again."
    )


def _array_start(key: str | None) -> tuple[bytes, str, str]:
    """Returns how a file with an array begins; see `_check_start`."""
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


def _elements(
    start: bytes, chunks: Iterator[bytes], record: type | None, key: str | None
) -> Iterator[object]:
    """Yields an array's elements, mostly by `_typed_elements`."""
    place, opening = "item", [rb"\["]
    if key is not None:
        place = f"{key}.item"
        opening = [rb"\{", b'"%s"' % re.escape(key).encode(), b":", rb"\["]
    head = re.match(_SPACE + _SPACE.join(opening), start)
    if record is None or head is None:
        yield from _plain_elements(itertools.chain([start], chunks), place)
        return
    has_some, rest = yield from _typed_elements(
        start[head.end() :], chunks, record
    )
    # The parser sees a zero in place of the elements already read.
    start = head[0] + b"0," * has_some + rest
    elements = _plain_elements(itertools.chain([start], chunks), place)
    yield from itertools.islice(elements, int(has_some), None)


_TOO_DEEP = "the JSON is nested too deeply"


def _check_depth(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields JSON; raises an error if it is nested too deeply."""
    depth, before = 0, b""
    for chunk in chunks:
        # Keeps only the quote of a string that began before, and a backslash
        # whose character is in the next chunk.
        text = before + chunk
        stripped = text.rstrip(b"\\")
        half = text[len(text) - (len(text) - len(stripped)) % 2 :]
        # The last quote ends an open string.
        text = _STRING.sub(b"", text.removesuffix(half) + b'"')
        before = (b"" if text.endswith(b'"') else b'"') + half
        brackets = text.translate(None, _NOT_BRACKETS)
        if depth + len(brackets) > _MAX_DEPTH:
            steps = (1 if x in b"[{" else -1 for x in brackets)
            if max(itertools.accumulate(steps, initial=depth)) > _MAX_DEPTH:
                raise ijson.JSONError(_TOO_DEEP)
        depth += 2 * (brackets.count(b"[") + brackets.count(b"{"))
        depth -= len(brackets)
        yield chunk


def _plain_elements(chunks: Iterable[bytes], place: str) -> Iterator[object]:
    """Yields the elements of the array at a place of a document, by ijson."""
    found = ijson.sendable_list()
    parser = ijson.items_coro(
        found, place, map_type=json_values.UniqueKeys, use_float=True
    )
    parts = _check_depth(json_values.cleaned(chunks))
    for chunk in itertools.chain(parts, [None]):
        problem = None
        try:
            if chunk is None:
                parser.close()
            elif chunk:
                parser.send(chunk)
        except ijson.JSONError as error:
            problem = error
        # Yields what comes before the damage before the error.
        yield from found
        found.clear()
        if problem is not None:
            raise problem


def _typed_elements(
    buffer: bytes, chunks: Iterator[bytes], record: type
) -> Iterator[object]:
    """Yields the first elements of an array of objects while it is valid.

    These are all but the last, if all objects begin with the same name and none
    is very long. Elements of other types are yielded as Python values.

    Returns:
        Whether there are any, and the bytes after their last comma.
    """
    decode, decode_all = (
        json_values.TypedDecoder(record),
        json_values.TypedDecoder(list[record]),
    )
    has_some, boundary = False, None
    while len(buffer) < _MAX_ELEMENT_BYTES:
        if boundary is None and (first := _OBJECT_START.match(buffer)):
            # Follows an object, before one that begins with the same name.
            pattern = (rb"\}", b",", rb"(?=\{", re.escape(first[1]) + b")")
            boundary = re.compile(_SPACE.join(pattern))
        if boundary is not None:
            elements, buffer = _split(buffer, boundary, decode_all)
            has_some = has_some or bool(elements)
            for element in elements:
                if isinstance(element, msgspec.Raw):
                    whole, element = bytes(element), decode(element)
                    if element is None:
                        array = b"[" + whole + b"]"
                        (element,) = _plain_elements([array], "item")
                yield element
        more = next(chunks, b"")
        if not more:
            break
        buffer += more
    return has_some, buffer


def _split(
    buffer: bytes, boundary: re.Pattern, decode_all: json_values.TypedDecoder
) -> tuple[list, bytes]:
    """Splits elements at the last boundary; also returns the rest.

    They are `msgspec.Raw` if any of them has another type.
    """
    end, left = len(buffer), _MAX_TRIED_BYTES
    while left > 0 and (end := buffer.rfind(b"}", 0, end)) >= 0:
        # The boundary may be in a string, or in an object inside an element.
        if found := boundary.match(buffer, end):
            left -= end
            array = b"[" + buffer[: end + 1] + b"]"
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                elements = decode_all(array)
                if elements is None:
                    elements = _split_array(array)
                return elements, buffer[found.end() :]
    return [], buffer


_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _lines(
    chunks: Iterable[AnyStr],
    line_end: AnyStr,
    max_size: int | None = None,
    on_size: Callable[[int, int], None] | None = None,
) -> Iterator[AnyStr]:
    """Yields lines with their line ends.

    Longer lines are split at about `max_size`. `on_size` is called with the
    number of whole lines and the size of the rest.
    """
    parts, size, nothing, number = [], 0, line_end[:0], 0
    for chunk in chunks:
        *ends, rest = chunk.split(line_end)
        number += len(ends)
        for end in ends:
            line = nothing.join([*parts, end, line_end])
            # A line may be long, so it is freed before the next one.
            parts, size = [], 0
            yield line
        parts.append(rest)
        size += len(rest)
        if on_size is not None:
            on_size(number, size)
        if max_size is not None and size >= max_size:
            line, parts, size = nothing.join(parts), [], 0
            yield line
    line, parts = nothing.join(parts), []
    yield line


def _parse_line(path: str, number: int, line: bytes, count: int) -> object:
    """Returns the JSON value in a line, or raises a `UserError`."""
    line = b"".join(json_values.cleaned([line]))
    try:
        text = line.decode("utf-8")
        return json_values.load_json(text)
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
    path: str, on_position: OnPosition = None, record: type | None = None
) -> Iterator[tuple[Place, object]]:
    """Yields the values of a file of JSON lines without holding them all.

    Skips blank lines; the last line needs no line end. Arguments, results and
    errors are those of `read_json_array`, but each `Place` has its line.
    """
    decode = None if record is None else json_values.TypedDecoder(record)
    with _File(path, on_position) as file:
        chunks = file.chunks()
        start = b""
        # A part of a file may start with any line.
        if file.first_line == 1:
            start = _check_start(
                path,
                chunks,
                b"{",
                "one JSON object a line",
                "holds a JSON array ('[' comes first), but one JSON object a "
                "line ('{' first) is expected. Write every element of the "
                "array on a line of its own, without commas between them.",
            )

        def check(number, size):
            files.check_size(size, f"{path}, line {file.first_line + number}")

        chunks = itertools.chain([start], chunks)
        lines = _lines(chunks, b"\n", on_size=check)
        for number, line in enumerate(lines, file.first_line):
            check(number - file.first_line, len(line.rstrip(b"\n")))
            if not line or line.isspace():
                continue
            value = decode and decode(line)
            if value is None:
                value = _parse_line(path, number, line, file.count)
            yield Place(file.count, number), value
            file.advance()


def begins_with(path: str, pattern: bytes) -> bool:
    """Tells whether the first text of a file matches a pattern.

    Skips white space. Looks at the start of the whole file, even for a part.
    """
    for chunk in files.within(files.Part(path), _chunks, path):
        if chunk.strip():
            return bool(re.match(pattern, chunk.lstrip()))
    return False


def _chunks(path: str) -> Iterator[bytes]:
    """Yields the bytes of a file, or of its part, in chunks."""
    with _File(path) as file:
        yield from file.chunks()


def read_text_lines(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Yields the lines of a plain text, with line ends, without holding it all.

    A line of more than a million characters comes in parts; only the last one
    has a line end. Bytes that are not UTF-8 become `INVALID_UTF8_MARK`.

    Raises:
        UserError: the file cannot be read, or is truncated.
    """
    with _File(path, on_position, "lines") as file:
        for line in _lines(
            json_values.decoded(file.chunks()), "\n", _MAX_LINE_SIZE
        ):
            yield line
            file.advance()
