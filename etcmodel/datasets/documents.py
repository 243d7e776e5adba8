r"""Reads documents to pre-train on, with or without entity mentions.

There are two formats, told apart by their first character. In UTF-8, plain or
gzipped, they are

*   JSON lines, a document each:

        {"id": "1", "text": "Jan lives in Brno.", "mentions": [
            {"start": 0, "end": 3, "entity": "Q1"},
            {"start": 13, "end": 17, "entity": null}]}

    (on one line). `start` and `end` count characters, and `end` is behind the
    last. `entity` names what is mentioned, the same name for the same entity in
    all documents; null, or none, for a mention that could not be linked. A
    document without `mentions` gets those that `mention_finder` finds; `[]`
    means that there are none. `id` may be left out.

*   plain text: documents with an empty line between them.
"""

from collections.abc import Callable
from collections.abc import Iterator

import msgspec

from etcmodel.datasets import json_stream
from etcmodel.datasets.records import Format
from etcmodel.datasets.records import Record
from etcmodel.datasets.records import Source
from etcmodel.datasets.records import Text


class Mention(msgspec.Struct, frozen=True):
    """A span of a text that names something.

    Attributes:
        start: first character.
        end: the character behind the last.
        entity: name of what is mentioned; None or empty if that is not known.
    """

    start: int
    end: int
    entity: str | None = None


class Document(Record, frozen=True):
    """A text.

    Attributes:
        id: unique, or the position in its file if the file gives none.
        text: the text.
        mentions: in the order of the text; None for those that are to be
            found.
    """

    id: str
    text: str
    mentions: tuple[Mention, ...] | None = None


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
    length = len(value.text)
    # In the order of the file, for messages.
    for i, mention in enumerate(value.mentions or ()):
        start, end = mention.start, mention.end
        if not 0 <= start < end <= length:
            field = "end" if 0 <= start < length else "start"
            raise document.error(
                "wrong span",
                field=f"mentions[{i}].{field}",
                problem=(
                    f"the mention goes from {start} to {end}, expected a part "
                    f"of the text's {length} characters (0 <= start < end)"
                ),
            )
    return document


def _read_values(
    path: str, on_position: Callable[[int], None] | None = None
) -> Iterator[tuple[int, object]]:
    # An array of objects is refused as JSON lines that it is meant to be.
    if json_stream.begins_with(path, b"{") or json_stream.begins_with(
        path, b"[", b"{"
    ):
        yield from json_stream.read_json_lines(path, on_position)
        return
    for index, text in json_stream.read_paragraphs(path, on_position):
        yield index, {"text": text}


FORMAT = Format(
    _Json,
    'a document {"id": "...", "text": "...", "mentions": [{"start": 0, "end": '
    '3, "entity": "..."}, ...]}',
    _read_values,
    lambda document, split: None,
    _make,
    splits=("train", "dev"),
)
