"""Reads rows from JSON, CSV, TSV, Parquet and Arrow files.

The file name, without a compression suffix, determines the format. If its
suffix is unknown, the first characters do.

Arrow reads only Parquet and its own files. Its CSV and JSON readers are not
used, for these reasons:

*   They stop at a row with too few cells and at an invalid line.
*   An unclosed quote makes them drop all later rows without an error.
*   They reject columns that mix strings and lists, and rows longer than a
    block.
*   Their errors do not name the line.
"""

import collections
import csv
import io
import itertools
import math
import os
import re
import threading
from collections.abc import Collection
from collections.abc import Iterator
from typing import NamedTuple

from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import arrow_rows
from etcmodel.readers import cells
from etcmodel.readers import compression
from etcmodel.readers import files
from etcmodel.readers import json_stream
from etcmodel.readers.json_stream import Place
from etcmodel.readers.json_values import INVALID_UTF8_MARK

_KINDS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "arrow",
    ".pq": "arrow",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
# Suffixes of files that always hold one record per line.
_LINES = (".jsonl", ".ndjson")
_EXPECTED = (
    "JSON lines or an array (.jsonl, .json), a table with a header row (.csv, "
    ".tsv), or Parquet or Arrow (.parquet, .arrow)"
)
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
# Excel may write a first line such as "sep=;", which sets the separator.
_SEPARATOR_LINE = re.compile("sep=(.)", re.IGNORECASE)


class BadRow(NamedTuple):
    """Placeholder for a row that cannot be read, with the reason.

    `row_formats.RowFormat` raises it as a `RecordError`.
    """

    reason: str
    problem: str
    advice: str
    field: str | None = None


def read_rows(
    path: str,
    on_position: json_stream.OnPosition = None,
    used: Collection[str] | None = None,
) -> Iterator[tuple[Place, object]]:
    """Streams the rows of a file.

    Args:
        path: a file of JSON lines, a JSON array, CSV, TSV, Parquet or Arrow,
            local or remote, plain or compressed.
        on_position: called after each row with the number of bytes read so far;
            for Parquet and Arrow, see `arrow_rows.read`.
        used: names of the fields to read; None for all.

    Yields:
        Pairs of the row's `Place` and the row. For JSON lines, CSV and TSV, the
        place has a line. The row is a `dict` from field to value, as in
        `cells.read_row`, or a `BadRow`. Bytes that are not UTF-8 become
        `json_values.INVALID_UTF8_MARK`.

    Raises:
        UserError: the file cannot be read, has an unknown format, or is one
            JSON object that holds a table.
    """
    kind = _kind(path)
    if kind == "arrow":
        rows = arrow_rows.read(path, on_position, used)
    elif kind in ("csv", "tsv"):
        rows = _read_table(path, on_position, kind == "tsv")
    elif json_stream.begins_with(path, rb"\["):
        rows = json_stream.read_json_array(path, on_position, dict)
    else:
        rows = json_stream.read_json_lines(path, on_position, dict)
        if not compression.without_ending(path).lower().endswith(_LINES):
            rows = _check_no_columns(path, rows, used or ())
    for place, row in rows:
        yield place, _converted(row, used)


def _converted(row: object, used: Collection[str] | None) -> object:
    if not isinstance(row, dict):
        return row
    repeated = getattr(row, "repeated", None)
    if repeated is not None:
        return BadRow(
            "repeated field",
            f"the record has the field {show(repeated)} twice",
            "Keep one of them",
        )
    return cells.read_row(row.items(), used)


def _check_no_columns(path: str, rows: Iterator, used: Collection[str]):
    """Yields JSON lines; raises an error if the only line holds a table."""
    first = [*itertools.islice(rows, 1)]
    row = first[0][1] if first else None
    found = _orientation(row, used) if isinstance(row, dict) else None
    if found is not None:
        first += itertools.islice(rows, 1)
        if len(first) == 1:
            raise UserError(
                f"{path}: its only object seems to be a table (by {found}). "
                "Write one record per line, as pandas does with "
                "to_json(path, orient='records', lines=True). If it is one "
                'record, add a field such as "id": "1".'
            )
    yield from first
    yield from rows


def _orientation(value: dict, used: Collection[str]) -> str | None:
    """Returns the layout of an object with a table; None for a record."""
    columns = value.values()
    if value.keys() >= {"columns", "data"}:
        return "orient='split'"
    if value.keys() == {"schema", "data"}:
        return "orient='table'"
    if columns and all(isinstance(x, list) for x in columns):
        is_table = len(set(map(len, columns))) == 1
        return "columns" if is_table else None
    if columns and all(isinstance(x, dict) for x in columns):
        by_column = not {*used}.isdisjoint(value)
        return f"orient='{'columns' if by_column else 'index'}'"
    return None


def _kind(path: str) -> str:
    """Returns the format of a file: "json", "csv", "tsv" or "arrow"."""
    name = compression.without_ending(path.lower())
    ending = os.path.splitext(name)[1]
    if ending in _KINDS:
        return _KINDS[ending]
    for kind, pattern in (
        ("arrow", rb"PAR1|ARROW1|\xff\xff\xff\xff"),
        ("json", rb"[\[{]"),
        ("tsv", rb"[^\r\n]*\t"),
        ("csv", rb"[^\r\n]*,"),
    ):
        if json_stream.begins_with(path, pattern):
            return kind
    raise UserError(
        f"{path}: unknown file format. Expected {_EXPECTED}. Give the file the "
        "suffix of its format."
    )


def _read_table(path, on_position, is_tsv) -> Iterator[tuple[Place, object]]:
    rows = read_cells(path, on_position, "\t" if is_tsv else None)
    _, header = next(rows, (0, None))
    if header is None:
        raise UserError(f"{path} is empty. Expected a table with a header row.")
    header = [x.strip() for x in header]
    if any(INVALID_UTF8_MARK in x for x in header):
        raise UserError(
            f"{path}: its header row is not UTF-8. Convert the file to UTF-8."
        )
    arrow_rows.check_names(filter(None, header), path)
    for index, (line, row_cells) in enumerate(rows):
        if len(row_cells) == len(header):
            row = dict(zip(header, row_cells, strict=True))
        else:
            row = BadRow(
                "wrong number of cells",
                f"the row has {len(row_cells)} cells, but the header row has "
                f"{len(header)}",
                "Put quotes around cells with a separator or a line break",
            )
        yield Place(index, line), row


def read_cells(
    path: str, on_position: json_stream.OnPosition, delimiter: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number, from 1, and the cells of each row.

    Skips blank rows. In TSV, a quote may be a character of the text; see
    `_is_quoted`.

    Args:
        path: a CSV or TSV file, local or remote, plain or compressed.
        on_position: called with the number of bytes read so far.
        delimiter: the separator of cells. If None, it is the first of `,`, `;`
            and tab that occurs in the header row.

    Raises:
        UserError: the file cannot be read, or a quote is not closed.
    """
    line, size = 1, 0

    def counted(lines):
        """Yields lines; raises a `UserError` if a row is too long."""
        nonlocal size
        for text in lines:
            size += len(text)
            files.check_size(size, f"{path}, line {line}")
            yield text

    lines = counted(_read_lines(path, on_position))
    # Blank lines may precede the header row.
    start = []
    for text in lines:
        start.append(text)
        if text.strip():
            break
    named = _SEPARATOR_LINE.fullmatch(start[-1].strip("\r\n"))
    if named:
        start[-1], delimiter = "\n", named[1]
    elif delimiter is None:
        delimiter = next((x for x in ",;\t" if x in start[-1]), ",")
    lines = itertools.chain(start, lines)
    if delimiter == "\t" and not _is_quoted(path):
        for text in lines:
            if text.strip("\r\n"):
                yield line, _plain_cells(text)
            line, size = line + 1, 0
        return
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for cells in _parsed(reader):
            if cells:
                yield line, cells
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise UserError(
            f"{path}, line {line}: the row that begins there is invalid "
            f"({error}). Close its quotes and double those inside a cell, or "
            "get the file again if it is truncated."
        ) from None


def _parsed(reader) -> Iterator[list[str]]:
    """Yields the rows of a `csv.reader` without a limit on the cell size."""
    while True:
        with _cells_of_any_size:
            row = next(reader, None)
        if row is None:
            return
        yield row


class _CellsOfAnySize:
    """Removes csv's limit on the cell size while any thread parses.

    The limit is global to the process.
    """

    _NO_LIMIT = 2**31 - 1

    def __init__(self):
        self._lock = threading.Lock()
        self._num_users = 0

    def __enter__(self):
        with self._lock:
            if not self._num_users:
                self._before = csv.field_size_limit(self._NO_LIMIT)
            self._num_users += 1

    def __exit__(self, *error):
        with self._lock:
            self._num_users -= 1
            # If other code has changed the limit in the meantime, it stays.
            if not self._num_users and csv.field_size_limit() == self._NO_LIMIT:
                csv.field_size_limit(self._before)


_cells_of_any_size = _CellsOfAnySize()


def _is_quoted(path: str) -> bool:
    """Tells whether quotes in a TSV file enclose cells.

    Quoted cells may contain tabs and line breaks, as spreadsheets write them.
    In other files, quotes are characters of the text and every line is a row.
    Chooses the interpretation under which fewer rows differ in length from the
    header row.

    Raises:
        UserError: some line has an open quote, and the interpretations tie.
    """
    num_cells, num_bad, first_open = None, 0, None

    def count(lines):
        """Yields lines; counts rows that are bad if quotes belong to texts."""
        nonlocal num_cells, num_bad, first_open
        for number, line in enumerate(lines, 1):
            cells = line.rstrip("\r\n").split("\t")
            if cells != [""]:
                num_cells = num_cells or len(cells)
                num_bad += len(cells) != num_cells
            if first_open is None and any(
                x.startswith('"') and x.count('"') % 2 for x in cells
            ):
                first_open = number
            yield line

    lines = count(_read_lines(path, None))
    num_bad_quoted = 0
    try:
        for cells in _parsed(csv.reader(lines, delimiter="\t", strict=True)):
            num_bad_quoted += bool(cells) and len(cells) != num_cells
    except csv.Error:
        num_bad_quoted = math.inf
        # Reads to the end, so that all lines are counted.
        collections.deque(lines, maxlen=0)
    if first_open is None:
        return False
    if num_bad == num_bad_quoted:
        raise UserError(
            f"{path}, line {first_open}: the quote is ambiguous: it may be a "
            "character of the text, or open a cell with tabs or line breaks. "
            "Convert the table to .csv or .jsonl."
        )
    return num_bad_quoted < num_bad


def _plain_cells(line: str) -> list[str]:
    """Splits a TSV line at tabs, and removes quotes around cells."""
    cells = line.rstrip("\r\n").split("\t")
    return [
        x[1:-1].replace('""', '"') if _QUOTED_CELL.fullmatch(x) else x
        for x in cells
    ]


def _read_lines(path: str, on_position) -> Iterator[str]:
    """Yields lines with line ends; strips blank lines before the header."""
    lines = _whole_lines(path, on_position)
    for line in lines:
        if line.strip():
            yield line
            break
        yield "\n"
    yield from lines


def _whole_lines(path: str, on_position) -> Iterator[str]:
    """Yields whole lines with their line ends; the last may be empty."""
    parts, size, number = [], 0, 1
    for part in json_stream.read_text_lines(path, on_position):
        # NUL characters show that the file is UTF-16, not UTF-8.
        part = part.replace("\0", INVALID_UTF8_MARK)
        if parts and parts[-1].endswith("\r"):
            # The next piece may begin with the line feed of "\r\n".
            part = parts.pop() + part
        *lines, rest = io.StringIO(part, newline="").readlines() or [""]
        if rest.endswith("\n"):
            lines.append(rest)
            rest = ""
        for line in lines:
            line, parts, size = "".join((*parts, line)), [], 0
            number += 1
            yield line
        parts.append(rest)
        size += len(rest)
        files.check_size(size, f"{path}, line {number}")
    yield "".join(parts)
