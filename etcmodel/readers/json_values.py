"""Decodes JSON and text, and marks what cannot be decoded."""

import codecs
import functools
import itertools
import json
import re
from collections.abc import Iterable
from collections.abc import Iterator

import msgspec

# Replaces bytes that are not UTF-8. No text has these noncharacters in a row.
INVALID_UTF8_MARK = "\uffff\ufffe\uffff"
# The characters that "surrogateescape" makes of such bytes.
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
# Escapes of halves of a character, and any escape; group 1 is a single half.
_HIGH, _LOW = r"\\u[dD][89abAB]\w\w", r"\\u[dD][c-fC-F]\w\w"
_ESCAPE = re.compile(rf"{_HIGH}{_LOW}|({_HIGH}|{_LOW})|\\.", re.DOTALL)
_HALF = re.compile(f"{_HIGH}|{_LOW}")
# Possible beginnings of an escape, or of a pair of escapes, after the other
# backslashes in a row.
_UNFINISHED = re.compile(r"(?:\\u[dD][89abAB]\w\w)?\\\w{0,5}\Z")


def decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    """Decodes UTF-8; other bytes become `INVALID_UTF8_MARK`."""
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
    """Decodes UTF-8; other bytes become `INVALID_UTF8_MARK`."""
    return "".join(decoded([data]))


def cleaned(chunks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Replaces bytes that would stop a parser.

    Bytes that are not UTF-8 become `INVALID_UTF8_MARK`, which marks their
    records; an escape of half a character, such as \ud800, becomes "?".
    """
    unfinished = ""
    for part in itertools.chain(decoded(chunks), [None]):
        text, unfinished = unfinished + (part or ""), ""
        found = part is not None and _UNFINISHED.search(text, len(text) - 64)
        if found:
            # The backslashes before it decide whether it begins an escape.
            start = len(text[: found.start()].rstrip("\\"))
            text, unfinished = text[:start], text[start:]
        if _HALF.search(text):
            text = _ESCAPE.sub(lambda x: "?" if x[1] else x[0], text)
        yield text.encode("utf-8")


def has_invalid_utf8(value: object) -> bool:
    """Tells whether a string or key in a JSON value has the mark."""
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


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value; write null")


class UniqueKeys(dict):
    """A JSON object with a repeated key.

    Attributes:
        repeated: the first repeated key; None if there is none.
    """

    repeated: str | None = None

    def __setitem__(self, key, value):
        if self.repeated is None and key in self:
            self.repeated = key
        super().__setitem__(key, value)

    @classmethod
    def of(cls, pairs: list[tuple[str, object]]) -> dict:
        """Returns a plain `dict` if no key is repeated."""
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
    """Decodes valid JSON to a record type; returns None for other bytes.

    For the type `dict`, objects with repeated keys are `UniqueKeys`.
    """

    def __init__(self, record: type):
        self._decode = msgspec.json.Decoder(record).decode
        if record in (dict, list[dict]):
            self._decode = self._decode_objects

    @staticmethod
    def _decode_objects(data: bytes) -> object:
        data = bytes(data)
        if b"\\u" in data and _HALF.search(data.decode()):
            raise ValueError("half of a character")
        return load_json(data)

    def __call__(self, data: bytes | msgspec.Raw) -> object | None:
        """Decodes JSON; returns None if it is invalid or of another type."""
        try:
            # msgspec does not check strings of fields that it skips.
            str(data, "utf-8")
            return self._decode(data)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return None
