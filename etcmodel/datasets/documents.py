r"""Reads documents for pre-training, with or without entity mentions.

Files are UTF-8, plain or gzipped. The beginning of a file tells its format:

*   JSON lines, one document per line:

        {"id": "1", "text": "Jan lives in Brno.", "mentions": [
            {"start": 0, "end": 3, "entity": "Q1"},
            {"start": 13, "end": 17, "entity": null}]}

    (on one line). `start` and `end` count characters, and `end` is exclusive.
    `entity` is the entity's name, the same in all documents. It is null or left
    out for a mention that is not linked to an entity. `mentions: []` means that
    the document has no mentions. Without `mentions`, `mention_finder` finds
    them. `id` may be left out. Each line is loaded into memory as a whole.

*   plain text: If it starts with a heading of the WikiText corpora, it contains
    their articles. Otherwise, empty lines separate documents. `FORMATS` has a
    format for each, and one that reads a whole file as one document.

A document of more than about a million characters is split into several (see
`plain_texts.divide`). A file without text counts as a bad record.
"""

import bisect
from collections.abc import Iterator

import msgspec

from etcmodel.datasets import plain_texts
from etcmodel.readers import json_stream
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.records import Text


class Mention(msgspec.Struct, frozen=True):
    """A span of characters; `entity` is None or "" for an unknown entity."""

    start: int
    end: int
    entity: str | None = None


class Document(Record, frozen=True):
    """A text with its mentions of entities.

    Attributes:
        id: unique id, or the document's index in its file. The second part of a
            long text has the suffix ", part 2", and so on.
        text: the text.
        mentions: the mentions, in the order of the text; None if the file has
            none, so that they must be found.
    """

    id: str
    text: str
    mentions: tuple[Mention, ...] | None = None


# Stands for a file without text.
_EMPTY_FILE = object()


class _Json(msgspec.Struct):
    text: Text
    id: Text | None = None
    mentions: list[Mention] | None = None


def _make(value: _Json, source: Source) -> Document:
    mentions = value.mentions
    if mentions is not None:
        mentions = tuple(sorted(mentions, key=lambda x: (x.start, x.end)))
    record_id = str(source.index) if value.id is None else value.id
    document = Document(
        id=record_id, text=value.text, mentions=mentions, source=source
    )
    if "\0" in value.text:
        raise document.error(
            "no text",
            field="text",
            problem=(
                "it has NUL characters, as in a UTF-16 file that is read as "
                "UTF-8"
            ),
            advice="Convert the file to UTF-8",
        )
    length = len(value.text)
    # Checks mentions in the order of the file, so that errors have its index.
    for i, mention in enumerate(value.mentions or ()):
        start, end = mention.start, mention.end
        if not 0 <= start < end <= length:
            field = "end" if 0 <= start < length else "start"
            raise document.error(
                "wrong span",
                field=f"mentions[{i}].{field}",
                problem=(
                    f"the mention goes from {start} to {end}, expected 0 <= "
                    f"start < end <= {length}, the length of the text"
                ),
            )
    return document


def _divide(document: Document) -> Iterator[Document]:
    """Yields parts of a long text, each with the mentions inside it."""
    start = 0
    for number, text in enumerate(plain_texts.divide(document.text), 1):
        if len(text) == len(document.text):
            yield document
            return
        end, mentions = start + len(text), document.mentions
        if mentions is not None:
            first, last = (
                bisect.bisect_left(mentions, x, key=lambda m: m.start)
                for x in (start, end)
            )
            mentions = tuple(
                Mention(x.start - start, x.end - start, x.entity)
                for x in mentions[first:last]
                if x.end <= end
            )
        suffix = f", part {number}" if number > 1 else ""
        yield Document(
            id=document.id + suffix,
            text=text,
            mentions=mentions,
            source=document.source,
        )
        start = end


class _Format(Format):
    """Format that splits long texts, and counts empty files as bad records."""

    def parse(self, value, source):
        if value is _EMPTY_FILE:
            raise source.error(
                "empty file",
                problem=(
                    "the file has no text. Expected text, or one JSON object "
                    "per line; was the download cut off?"
                ),
                advice="Get it again, leave it out",
            )
        return super().parse(value, source)

    def divide(self, record):
        yield from _divide(record)


def _reader(read_texts):
    """Returns a reader of JSON lines; it reads other files as plain texts."""

    def read_values(
        path: str,
        on_position: json_stream.OnPosition = None,
        record: type | None = None,
    ) -> Iterator[tuple[json_stream.Place, object]]:
        # Reads a JSON array as JSON lines, which reports it as an error.
        if json_stream.begins_with(path, rb"\{|\[\s*\{"):
            yield from json_stream.read_json_lines(path, on_position, record)
            return
        index = -1
        for index, text in enumerate(read_texts(path, on_position)):
            yield json_stream.Place(index), {"text": text}
        if index < 0:
            yield json_stream.Place(0), _EMPTY_FILE

    return read_values


def _read_any(path, on_position):
    if plain_texts.is_wikitext(path):
        return plain_texts.read_wikitext(path, on_position)
    return plain_texts.read_pieces(path, on_position)


# Way to split plain texts -> its format.
FORMATS = {
    name: _Format(
        _Json,
        'a document {"id": "...", "text": "...", "mentions": [{"start": 0, '
        '"end": 3, "entity": "..."}, ...]}',
        _reader(read_texts),
        lambda document, split: None,
        _make,
        splits=("train", "dev"),
    )
    for name, read_texts in (
        ("auto", _read_any),
        ("blank_lines", plain_texts.read_pieces),
        ("wikitext", plain_texts.read_wikitext),
        ("file", plain_texts.read_file),
    )
}
FORMAT = FORMATS["auto"]


def make_format(documents: str) -> Format:
    """Returns the format for a way to split plain texts, from `FORMATS`."""
    return FORMATS[documents]


def check_documents(name: str) -> None:
    """Raises a `ValueError` if `FORMATS` has no such name."""
    if name not in FORMATS:
        raise ValueError(
            f"documents is {name!r}, expected one of {', '.join(FORMATS)}."
        )
