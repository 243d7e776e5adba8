"""Streams records from JSON arrays and JSON lines, and lines from plain text.

Memory use does not depend on the length of the file.

If the caller gives the type of the records, msgspec decodes them. Records that
msgspec rejects are parsed again as plain JSON, which is slow, but shows which
record is bad and why.
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
"""Called after each record with the number of bytes read from the file."""

_CHUNK_BYTES = 1 << 16
_MAX_LINE_SIZE = 1 << 20
# Array elements longer than this are parsed by ijson, which is slower.
_MAX_ELEMENT_BYTES = 1 << 20
_SPACE = rb"[ \t\r\n]*"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# Maximum nesting depth. Python's parser, used for JSON lines, has about the
# same limit; ijson's time grows with the square of the depth.
_MAX_DEPTH = 1000
# Maximum number of bytes that `_split` parses to find where the last complete
# element ends.
_MAX_TRIED_BYTES = 1 << 21
_OBJECT_START = re.compile(_SPACE.join((b"", rb"\{", b'("[^"\\\\]*")')))


class Place(NamedTuple):
    """The place of a record in its file.

    Attributes:
        index: number of records before this one.
        line: the line where the record starts, from 1; None if unknown.
    """

    index: int
    line: int | None = None


class _File:
    """An open file that counts the records read.

    On exit, raises a `UserError` if decompression found damaged data.
    """

    def __init__(
        self, path: str, on_position: OnPosition = None, what: str = "records"
    ):
        part = files.part_of(path)
        self.path, self.first_line = path, part.lines + 1
        self.count = part.records
        self.what = what
        # Bytes read since the last record.
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
                f"{self.path}: the data are damaged or truncated after "
                f"{self.count} whole {self.what} ({error}). Get the file again."
            ) from None

    def chunks(self) -> Iterator[bytes]:
        """Yields the decompressed bytes without a byte order mark.

        If data are damaged, yields all bytes before the damage, then raises the
        error.
        """
        try:
            start = self._plain.read(len(codecs.BOM_UTF8))
            yield start.removeprefix(codecs.BOM_UTF8) + self._read()
            while chunk := self._read():
                yield chunk
        except compression.DAMAGES:
            # An empty chunk lets the caller use the bytes before the damage.
            yield b""
            raise

    def _read(self) -> bytes:
        return self._plain.read1(_CHUNK_BYTES)

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yields chunks; raises a `UserError` if one record is too long.

        The parser yields an element several chunks late, so the size is checked
        only beyond `_MAX_ELEMENT_BYTES`.
        """
        for chunk in chunks:
            if self._size > _MAX_ELEMENT_BYTES:
                place = f"{self.path}, record {self.count}"
                files.check_size(self._size, place)
            self._size += len(chunk)
            yield chunk

    def advance(self) -> None:
        """Counts one more record, and reports the position in the file."""
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
    """Returns the bytes up to the first chunk with more than white space.

    Raises a `UserError` if the file is empty or does not begin with `opening`.
    Its message has `expected`, a description of a valid file, or `other`, if
    the file has an array in place of an object or vice versa.
    """
    parts, size = [], 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if first := chunk.lstrip():
            break
        files.check_size(size, f"{path}, line 1")
    else:
        raise UserError(
            f"{path} is empty. Expected {expected}. If it was downloaded, get "
            "it again."
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
    """Streams the elements of a JSON array.

    Args:
        path: a JSON file in UTF-8 whose top level is an array. Compression is
            recognized by the first bytes, not by the name.
        on_position: see `OnPosition`.
        record: a type that msgspec decodes. Elements that do not match it are
            yielded as Python values.
        key: the key of the array, if the top level is an object.

    Yields:
        Pairs of the element's `Place`, whose line is None, and the element. In
        Python values, `INVALID_UTF8_MARK` replaces bytes that are not UTF-8.

    Raises:
        UserError: the file cannot be read, is empty, is not JSON, is not an
            array, or is truncated. The message names the file and the record.
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
                f"{path} has no records under {key!r}. Check that the file "
                "belongs to this dataset."
            )


def _broken_array(path: str, count: int, message: str) -> UserError:
    detail = (message.strip().splitlines() or ["incomplete"])[0]
    if "overflow" in detail:
        return UserError(
            f"{path}: after {count} whole records, an integer has more than 64 "
            "bits. Write it as a string, or remove it."
        )
    what = "the JSON is broken"
    if detail == _TOO_DEEP:
        return UserError(
            f"{path}: after {count} whole records, {detail}: more than "
            f"{_MAX_DEPTH} levels of lists and objects. Flatten the record, or "
            "remove it."
        )
    if "premature EOF" in detail or "incomplete" in detail.lower():
        what = "the JSON ends too early"
    return UserError(
        f"{path}: {what}, after {count} whole records ({detail}). If the file "
        "was downloaded or copied, it may be truncated: get it again."
    )


def _array_start(key: str | None) -> tuple[bytes, str, str]:
    """Returns `_check_start`'s arguments for a file with an array."""
    if key is None:
        return (
            b"[",
            "a JSON array of records",
            "holds a JSON object (it begins with '{'), expected a JSON array "
            "of records (beginning with '['). If the records are on separate "
            "lines or under a key, write them as one array.",
        )
    expected = f'a JSON object {{"{key}": [...]}} with the records'
    return (
        b"{",
        expected,
        f"holds a JSON array (it begins with '['), expected {expected}.",
    )


def _elements(
    start: bytes, chunks: Iterator[bytes], record: type | None, key: str | None
) -> Iterator[object]:
    """Yields an array's elements; `_typed_elements` decodes all that it can."""
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
    # ijson needs a valid array, so a zero stands for the elements already read.
    start = head[0] + b"0," * has_some + rest
    elements = _plain_elements(itertools.chain([start], chunks), place)
    yield from itertools.islice(elements, int(has_some), None)


_TOO_DEEP = "the JSON is nested too deeply"


def _check_depth(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the chunks; raises an error if the JSON is nested too deeply."""
    depth, before = 0, b""
    for chunk in chunks:
        # `before` holds the opening quote of a string that continues from the
        # last chunk, and a backslash that escapes the first character of this
        # one.
        text = before + chunk
        stripped = text.rstrip(b"\\")
        half = text[len(text) - (len(text) - len(stripped)) % 2 :]
        # The added quote closes a string that continues in the next chunk.
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
    """Yields the elements of an array; `place` is its ijson prefix."""
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
        # Yields the elements before the damage, then raises the error.
        yield from found
        found.clear()
        if problem is not None:
            raise problem


def _typed_elements(
    buffer: bytes, chunks: Iterator[bytes], record: type
) -> Iterator[object]:
    """Decodes the first elements of an array of objects with msgspec.

    Stops at invalid JSON. Yields all elements but the last if all objects begin
    with the same key and none is very long. Elements that do not match `record`
    are yielded as Python values.

    Returns:
        Whether any element was yielded, and the bytes after their last comma.
    """
    decode, decode_all = (
        json_values.TypedDecoder(record),
        json_values.TypedDecoder(list[record]),
    )
    has_some, boundary = False, None
    while len(buffer) < _MAX_ELEMENT_BYTES:
        if boundary is None and (first := _OBJECT_START.match(buffer)):
            # Matches the end of an object if one with the same first key
            # follows.
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
    """Decodes the elements before the last boundary; returns them and the rest.

    The elements are `msgspec.Raw` if any of them does not match the type.
    """
    end, left = len(buffer), _MAX_TRIED_BYTES
    while left > 0 and (end := buffer.rfind(b"}", 0, end)) >= 0:
        # If the match lies in a string or a nested object, decoding fails.
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

    Lines longer than about `max_size` are split. `on_size` is called with the
    number of complete lines and the size of the incomplete one.
    """
    parts, size, nothing, number = [], 0, line_end[:0], 0
    for chunk in chunks:
        *ends, rest = chunk.split(line_end)
        number += len(ends)
        for end in ends:
            line = nothing.join([*parts, end, line_end])
            # Frees the parts of this line, which may be long, before the next
            # line.
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
    """Parses a line of JSON; raises a `UserError` if it is invalid."""
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
            f"{path}, line {number}: a record spans several lines, expected "
            "one JSON object per line. Rewrite the file, for example with "
            f"`jq -c . {path}`."
        )
    what = "is broken" if line.endswith(b"\n") else "ends too early"
    raise UserError(
        f"{path}, line {number}: the JSON {what}, after {count} whole records "
        f"({detail}). Expected one JSON object per line. If the file was "
        "downloaded or copied, it may be truncated: get it again."
    ) from None


def read_json_lines(
    path: str, on_position: OnPosition = None, record: type | None = None
) -> Iterator[tuple[Place, object]]:
    """Streams the values of a file of JSON lines.

    Skips blank lines; the last line needs no line end. Arguments, results and
    errors are as in `read_json_array`, except that each `Place` has a line.
    """
    decode = None if record is None else json_values.TypedDecoder(record)
    with _File(path, on_position) as file:
        chunks = file.chunks()
        start = b""
        # Only the part with the first line shows how the file begins.
        if file.first_line == 1:
            start = _check_start(
                path,
                chunks,
                b"{",
                "one JSON object per line",
                "holds a JSON array (it begins with '['), expected one JSON "
                "object per line (beginning with '{'). Write every element of "
                "the array on its own line, without commas between them.",
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
    """Tells whether a file begins with a pattern after leading white space.

    Reads the start of the whole file, even within `files.within`.
    """
    for chunk in files.within(files.Part(path), _chunks, path):
        if chunk.strip():
            return bool(re.match(pattern, chunk.lstrip()))
    return False


def _chunks(path: str) -> Iterator[bytes]:
    """Yields the bytes of a file, or of its current part, in chunks."""
    with _File(path) as file:
        yield from file.chunks()


def read_text_lines(path: str, on_position: OnPosition = None) -> Iterator[str]:
    """Streams the lines of a plain text, with their line ends.

    Splits lines of more than about a million characters; only the last piece
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
