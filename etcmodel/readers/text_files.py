"""Reads plain texts: each file is one document."""

import collections
import contextlib
import functools
import os
import re
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence

from etcmodel.errors import UserError
from etcmodel.readers import compression
from etcmodel.readers import files
from etcmodel.readers import json_stream
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record

SUFFIXES = (".txt", ".md")
# Files of records may have one of the suffixes, too.
_JSON = rb"\{|\[\s*\{"
_SEPARATOR = re.compile(r"[\t,;]")


class TextRecord(Record, frozen=True):
    """A plain text, and a query about it.

    Attributes:
        id: the name of the file; with its folders if several have one name.
        text: the content of the file.
        query: a question or query; "" if there is none.
        has_units: false, because a plain text is no list of texts.
    """

    id: str
    text: str
    query: str = ""
    has_units: bool = False


def are_texts(paths: Sequence[str], fields: Collection[str] = ()) -> bool:
    """Tells whether files are plain texts, by their names.

    Example: true for `["a.txt", "b.md.gz"]`. Files of JSON and tables are no
    plain texts, whatever their names are.

    Args:
        paths: the files.
        fields: names of fields, of which the header row of a table has one.

    Raises:
        UserError: some files are, and others are not.
    """
    kinds = {path: _is_text(path, fields) for path in paths}
    if len(set(kinds.values())) == 2:
        text = next(x for x, is_text in kinds.items() if is_text)
        other = next(x for x, is_text in kinds.items() if not is_text)
        raise UserError(
            f"{text} is a plain text, but {other} is not. Give plain texts "
            f"({', '.join(SUFFIXES)}) and other files in calls of their own."
        )
    return any(kinds.values())


def _is_text(path: str, fields: Collection[str]) -> bool:
    name = compression.without_ending(path.lower())
    if os.path.splitext(name)[1] not in SUFFIXES:
        return False
    if json_stream.begins_with(path, _JSON):
        return False
    with contextlib.closing(json_stream.read_text_lines(path)) as lines:
        names = _SEPARATOR.split(next(lines, ""))
    names = {x.strip().strip('"') for x in names}
    return len(names) < 2 or names.isdisjoint(fields)


def make_format(paths: Sequence[str], query: str = "") -> Format:
    """Returns the format of plain texts, which all have the same query."""
    numbers = collections.Counter(map(os.path.basename, paths))
    return Format(
        record=TextRecord,
        example="a plain text",
        read_values=functools.partial(_read, numbers, query),
        check=_check,
        splits=("predict",),
    )


def _read(
    numbers: collections.Counter[str],
    query: str,
    path: str,
    on_position: json_stream.OnPosition = None,
    record: type | None = None,
) -> Iterator[tuple[json_stream.Place, object]]:
    """Yields the only record of a file."""
    del record
    parts, size = [], 0
    for line in json_stream.read_text_lines(path, on_position):
        parts.append(line)
        size += len(line.encode("utf-8", "replace"))
        files.check_size(size, path)
    name = os.path.basename(path)
    text = "".join(parts)
    yield (
        json_stream.Place(0),
        {
            "id": name if numbers[name] == 1 else path,
            "text": text,
            "query": query,
        },
    )


def _check(record: TextRecord, split: str) -> None:
    del split
    if "\0" in record.text:
        raise record.error(
            "NUL characters",
            problem="the text has NUL characters, as if it were UTF-16",
            advice="Convert the file from UTF-16 to UTF-8",
        )
    if not record.text.strip():
        raise record.error("empty document", problem="the file has no text")
