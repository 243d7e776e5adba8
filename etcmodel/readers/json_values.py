"""Decodes JSON and UTF-8 text, and marks bytes that are not UTF-8."""

import codecs
import functools
import itertools
import json
import re
from collections.abc import Iterable
from collections.abc import Iterator

import msgspec

# Replaces bytes that are not UTF-8. Real text never has these noncharacters
# next to each other.
INVALID_UTF8_MARK = "\uffff\ufffe\uffff"
# "surrogateescape" decodes bytes that are not UTF-8 to these characters.
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
# Escapes of UTF-16 surrogates, and any escape; group 1 is a lone surrogate.
_HIGH, _LOW = r"\\u[dD][89abAB]\w\w", r"\\u[dD][c-fC-F]\w\w"
_ESCAPE = re.compile(rf"{_HIGH}{_LOW}|({_HIGH}|{_LOW})|\\.", re.DOTALL)
_HALF = re.compile(f"{_HIGH}|{_LOW}")
# The start of an escape or of a surrogate pair; the rest may be in the next
# chunk.
_UNFINISHED = re.compile(r"(?:\\u[dD][89abAB]\w\w)?\\\w{0,5}\Z")


def decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    """Decodes chunks of UTF-8; invalid bytes become `INVALID_UTF8_MARK`."""
    unfinished = b""
    for chunk in itertools.chain(chunks, [None]):
        data, is_end = unfinished + (chunk or b""), chunk is None
        try:
            text, used = codecs.utf_8_decode(data, "strict", is_end)
        except UnicodeDecodeError:
            text, used = codecs.utf_8_decode(data, "surrogateescape", is_end)
            text = _ESCAPED_BYTE.sub(INVALID_UTF8_MARK, text)
        unfinished = data[used:]
        yield text


def decode(data: bytes) -> str:
    """Decodes UTF-8; invalid bytes become `INVALID_UTF8_MARK`."""
    return "".join(decoded([data]))


def cleaned(chunks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Replaces bytes that make JSON parsers fail.

    Bytes that are not UTF-8 become `INVALID_UTF8_MARK`, so that their record
    can be rejected later. The escape of a lone surrogate, such as \ud800,
    becomes "?".
    """
    unfinished = ""
    for part in itertools.chain(decoded(chunks), [None]):
        text, unfinished = unfinished + (part or ""), ""
        found = part is not None and _UNFINISHED.search(text, len(text) - 64)
        if found:
            # An escape has an even number of backslashes before it, so these
            # stay with it.
            start = len(text[: found.start()].rstrip("\\"))
            text, unfinished = text[:start], text[start:]
        if _HALF.search(text):
            text = _ESCAPE.sub(lambda x: "?" if x[1] else x[0], text)
        yield text.encode("utf-8")


def has_invalid_utf8(value: object) -> bool:
    """Tells whether a value or key in JSON contains `INVALID_UTF8_MARK`."""
    # A loop instead of recursion: records may be deeply nested and hold a
    # million values.
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


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON; write null")


class UniqueKeys(dict):
    """A JSON object that remembers its first repeated key.

    Attributes:
        repeated: the first repeated key; None if all keys are unique.
    """

    repeated: str | None = None

    def __setitem__(self, key, value):
        if self.repeated is None and key in self:
            self.repeated = key
        super().__setitem__(key, value)

    @classmethod
    def of(cls, pairs: list[tuple[str, object]]) -> dict:
        """Converts pairs to a dict; a plain one if all keys are unique."""
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        found = cls()
        for key, value in pairs:
            found[key] = value
        return found


load_json = functools.partial(
    json.loads,
    parse_constant=_reject_constant,
    object_pairs_hook=UniqueKeys.of,
)


class TypedDecoder:
    """Decodes JSON to a record type; returns None if it does not match.

    For the type `dict`, objects with repeated keys become `UniqueKeys`.
    """

    def __init__(self, record: type):
        self._decode = msgspec.json.Decoder(record).decode
        if record in (dict, list[dict]):
            self._decode = self._decode_objects

    @staticmethod
    def _decode_objects(data: bytes) -> object:
        data = bytes(data)
        if b"\\u" in data and _HALF.search(data.decode()):
            raise ValueError("lone surrogate")
        return load_json(data)

    def __call__(self, data: bytes | msgspec.Raw) -> object | None:
        """Decodes JSON; returns None if it is invalid or has another type."""
        try:
            # msgspec does not check strings of fields that it skips.
            str(data, "utf-8")
            return self._decode(data)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return None
