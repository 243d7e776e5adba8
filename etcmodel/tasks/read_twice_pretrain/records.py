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

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator

from etcmodel.tasks import json_stream
from etcmodel.tasks.errors import BadRecords
from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.record_fields import Fields
from etcmodel.tasks.record_fields import RecordFields

SPLITS = ("train", "dev")

_FORMAT = (
    'a document {"id": "...", "text": "...", "mentions": [{"start": 0, "end": '
    '3, "entity": "..."}, ...]}'
)


@dataclasses.dataclass(frozen=True)
class Mention:
    """A span of a text that names something.

    Attributes:
        start: first character.
        end: the character behind the last.
        entity: name of what is mentioned; empty if that is not known.
    """

    start: int
    end: int
    entity: str = ""


@dataclasses.dataclass(frozen=True)
class Document:
    """A text.

    Attributes:
        id: unique within its file.
        text: the text.
        mentions: in the order of the text; None for those that are to be
            found.
        index: position of the document in its file, from 0.
    """

    id: str
    text: str
    mentions: tuple[Mention, ...] | None = None
    index: int = 0


def _parse_mention(fields: Fields, length: int) -> Mention:
    start, end = fields.integer("start"), fields.integer("end")
    if not 0 <= start < end <= length:
        raise fields.error(
            "wrong span",
            field="end" if 0 <= start < length else "start",
            problem=(
                f"the mention goes from {start} to {end}, expected a part of "
                f"the text's {length} characters (0 <= start < end)"
            ),
        )
    return Mention(start, end, fields.string_or_null("entity") or "")


def _parse(path: str, index: int, value: object, seen: set[str]) -> Document:
    fields = RecordFields(path, index, value, _FORMAT)
    record_id = fields.identifier("id", seen) if "id" in fields else str(index)
    text = fields.string("text")
    if not text.strip():
        raise fields.error(
            "no text", field="text", problem="it is empty, expected some text"
        )
    mentions = None
    if "mentions" in fields:
        mentions = sorted(
            (
                _parse_mention(mention, len(text))
                for mention in fields.mappings("mentions")
            ),
            key=lambda mention: (mention.start, mention.end),
        )
    return Document(
        id=record_id,
        text=text,
        mentions=None if mentions is None else tuple(mentions),
        index=index,
    )


def _parse_text(path: str, index: int, text: str) -> Document:
    if json_stream.INVALID_UTF8_MARK in text:
        raise RecordError(
            path,
            index,
            "invalid UTF-8",
            record_id=str(index),
            problem="there are bytes that are not UTF-8",
            advice="Convert the file to UTF-8",
        )
    return Document(id=str(index), text=text, index=index)


def read_records(
    path: str,
    split: str = "train",
    bad_records: BadRecords | None = None,
    on_position: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """Yields the documents of a file one by one.

    Args:
        path: JSON lines or plain text, see above; plain or gzipped.
        split: `"train"` or `"dev"`; both are read alike.
        bad_records: what to do with documents that cannot be used; raise, by
            default.
        on_position: called with the number of bytes read so far.

    Yields:
        The usable documents in the order of the file.

    Raises:
        RecordError: a document is no JSON object, has no text, bytes that are
            not UTF-8, an id twice, or a field that is missing, of a wrong type
            or outside the text.
        UserError: the file cannot be read, or is broken off.
        ValueError: unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}.")
    bad_records = bad_records or BadRecords()
    seen: set[str] = set()
    # An array of objects is refused as JSON lines that it is meant to be.
    is_json = json_stream.begins_with(path, b"{") or json_stream.begins_with(
        path, b"[", b"{"
    )
    if is_json:
        values = json_stream.read_json_lines(path, on_position)
    else:
        values = json_stream.read_paragraphs(path, on_position)
    for index, value in values:
        try:
            if is_json:
                document = _parse(path, index, value, seen)
            else:
                document = _parse_text(path, index, value)
        except RecordError as error:
            bad_records.report(error)
            continue
        yield document
