r"""Reads rows from JSON, CSV, TSV and Parquet files, and from Python objects.

The kind of a file follows from its name (`.json`, `.jsonl`, `.ndjson`, `.csv`,
`.tsv`, `.tab`, `.parquet`, `.pq`, each also with `.gz`), otherwise from its
first characters.
"""

import ast
import collections
import csv
import functools
import io
import itertools
import json
import math
import os
import re
from collections.abc import Iterator
from collections.abc import Mapping
from typing import NamedTuple

from etcmodel import extras
from etcmodel.datasets import files
from etcmodel.datasets import json_stream
from etcmodel.datasets.json_stream import INVALID_UTF8_MARK
from etcmodel.datasets.json_stream import Place
from etcmodel.errors import UserError
from etcmodel.errors import show

_KINDS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_EXPECTED = (
    "JSON lines or an array (.jsonl, .json), a table with a header row (.csv, "
    ".tsv), or Parquet (.parquet)"
)
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
# Small enough that a batch of long documents fits into memory.
_BATCH_ROWS = 32


class BadRow(NamedTuple):
    """Stands for a row that cannot be read, and says why.

    `sectioned.RowFormat` makes a `RecordError` of it.
    """

    reason: str
    problem: str
    advice: str
    field: str | None = None


def read_rows(
    path: str,
    on_position: json_stream.OnPosition = None,
    record_type: type | None = None,
) -> Iterator[tuple[Place, object]]:
    """Yields the rows of a file without holding them all.

    Args:
        path: JSON lines, a JSON array, CSV, TSV or Parquet, local or remote.
        on_position: called after each row with the bytes read so far; for
            Parquet the file's size times the share of rows.
        record_type: a type of msgspec for rows of JSON; others are dicts.

    Yields:
        Pairs of the row's `Place`, with a line for JSON lines, CSV and TSV, and
        the row: a `dict` from field to value, or a `BadRow`. Cells of CSV and
        TSV are strings, but those that hold a JSON array, such as `["a", "b"]`,
        or a Python list as pandas writes it, are lists. Bytes that are not
        UTF-8 become `json_stream.INVALID_UTF8_MARK`.

    Raises:
        UserError: the file cannot be read, or is of no such kind.
    """
    kind = _kind(path)
    if kind == "parquet":
        return _read_parquet(path, on_position)
    if kind in ("csv", "tsv"):
        return _read_table(path, on_position, kind == "tsv")
    read = json_stream.read_json_lines
    if json_stream.begins_with(path, rb"\["):
        read = json_stream.read_json_array
    return read(path, on_position, record_type)


def _kind(path: str) -> str:
    """Returns the kind of a file: "json", "csv", "tsv" or "parquet"."""
    name, ending = os.path.splitext(path.lower())
    if ending == ".gz":
        ending = os.path.splitext(name)[1]
    if ending in _KINDS:
        return _KINDS[ending]
    for kind, pattern in (
        ("parquet", rb"PAR1"),
        ("json", rb"[\[{]"),
        ("tsv", rb"[^\r\n]*\t"),
        ("csv", rb"[^\r\n]*,"),
    ):
        if json_stream.begins_with(path, pattern):
            return kind
    raise UserError(
        f"{path}: its kind is not clear. Expected {_EXPECTED}; rename the file."
    )


def _read_table(path, on_position, is_tsv) -> Iterator[tuple[Place, object]]:
    """Yields the rows of CSV or TSV."""
    rows = read_cells(path, on_position, "\t" if is_tsv else None)
    _, header = next(rows, (0, None))
    if header is None:
        raise UserError(f"{path} is empty. Expected a table with a header row.")
    header = [x.strip() for x in header]
    if any(INVALID_UTF8_MARK in x for x in header):
        raise UserError(
            f"{path}: its header row is not UTF-8. Convert the file to UTF-8."
        )
    counts = collections.Counter(filter(None, header))
    repeated = sorted(x for x, count in counts.items() if count > 1)
    if repeated:
        raise UserError(
            f"{path}: the header row names {show(repeated[0])} twice. Give "
            "every column its own name."
        )
    for index, (line, cells) in enumerate(rows):
        if len(cells) == len(header):
            row = dict(zip(header, map(_cell_value, cells), strict=True))
        else:
            row = BadRow(
                "wrong number of cells",
                f"the row has {len(cells)} cells, but the header row has "
                f"{len(header)}",
                "Put quotes around cells with a separator or a line break",
            )
        yield Place(index, line), row


def _cell_value(cell: str) -> object:
    """Returns the list of a cell that holds a JSON array, else the cell."""
    if cell.startswith("[") and cell.endswith("]"):
        return read_literal(cell)
    return cell


def read_literal(cell: str) -> object:
    """Reads a cell that holds JSON, or a value as Python or NumPy prints it.

    Example: `"{'text': array(['Brno'], dtype=object)}"` gives
    `{"text": ["Brno"]}`.

    Returns:
        The value, with lists for arrays; the cell if it holds something else.
    """
    for read in (json.loads, _read_python):
        try:
            return _plain(read(cell))
        except (
            *(ValueError, TypeError, SyntaxError),
            *(RecursionError, MemoryError),
        ):
            continue
    return cell


def _read_python(cell: str) -> object:
    tree = ast.parse(cell, mode="eval")
    has_arrays = any(isinstance(x, ast.Call) for x in ast.walk(tree))
    value = ast.literal_eval(_WithoutArrays().visit(tree))
    # Python would read NumPy's `['a' 'b']` as one string.
    if not has_arrays and repr(value) != cell:
        raise ValueError(f"got {show(cell)}, expected what Python prints")
    return value


class _WithoutArrays(ast.NodeTransformer):
    """Replaces `array([...], dtype=...)` by its list, `np.int64(1)` by 1."""

    def visit_Call(self, node):
        self.generic_visit(node)
        is_known = (
            node.func.id == "array"
            if isinstance(node.func, ast.Name)
            else ast.unparse(node.func).startswith("np.")
        )
        return node.args[0] if is_known and node.args else node

    def visit_Constant(self, node):
        if node.value is ...:
            raise ValueError("the array is abbreviated")
        return node


def read_cells(
    path: str, on_position: json_stream.OnPosition, delimiter: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line, from 1, and the cells of each row that has some.

    In TSV, a quote may also be a character of the text, see `_is_quoted`.

    Args:
        path: CSV or TSV, local or remote, compressed or not.
        on_position: called with the bytes read so far.
        delimiter: between cells; None: `,`, `;` or a tab, in this order of
            preference, whichever the header row has.

    Raises:
        UserError: the file cannot be read, or its quotes are wrong.
    """
    csv.field_size_limit(2**31 - 1)
    line, size = 1, 0

    def counted(lines):
        """Yields lines; raises an error if a row has too many characters."""
        nonlocal size
        for text in lines:
            size += len(text)
            files.check_size(size, f"{path}, line {line}")
            yield text

    lines = counted(_read_lines(path, on_position))
    # Blank lines may come before the header row.
    start = []
    for text in lines:
        start.append(text)
        if text.strip():
            break
    if delimiter is None:
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
        for cells in reader:
            if cells:
                yield line, cells
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise UserError(
            f"{path}, line {line}: the row that begins there is broken "
            f"({error}). Close its quotes and double those inside a cell, or "
            "get the file again if it was cut off."
        ) from None


def _is_quoted(path: str) -> bool:
    """Tells whether quotes of TSV stand around cells with tabs or line breaks.

    Otherwise they may be characters of the text, as other programs than
    spreadsheets write it, and every line is a row. What leaves fewer rows of
    another length than the header row is right.

    Raises:
        UserError: both ways leave none.
    """
    num_cells, num_bad, first_open = None, 0, None

    def count(lines):
        """Yields lines, and counts those that are no rows."""
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
        for cells in csv.reader(lines, delimiter="\t", strict=True):
            num_bad_quoted += bool(cells) and len(cells) != num_cells
    except csv.Error:
        num_bad_quoted = math.inf
        # Counts the rest.
        collections.deque(lines, maxlen=0)
    if first_open is None:
        return False
    if num_bad == num_bad_quoted:
        raise UserError(
            f"{path}, line {first_open}: the quote may be a character of the "
            "text, or begin a cell with tabs or line breaks; the rest of the "
            "file does not tell. Convert the table to .csv or .jsonl."
        )
    return num_bad_quoted < num_bad


def _plain_cells(line: str) -> list[str]:
    """Splits a line of TSV at its tabs; cells may have quotes around them."""
    cells = line.rstrip("\r\n").split("\t")
    return [
        x[1:-1].replace('""', '"') if _QUOTED_CELL.fullmatch(x) else x
        for x in cells
    ]


def _read_lines(path: str, on_position) -> Iterator[str]:
    """Yields lines with their ends; those of spaces before the header empty."""
    lines = _whole_lines(path, on_position)
    for line in lines:
        if line.strip():
            yield line
            break
        yield "\n"
    yield from lines


def _whole_lines(path: str, on_position) -> Iterator[str]:
    """Yields whole lines with their ends; the last may be empty."""
    parts, size, number = [], 0, 1
    for part in json_stream.read_text_lines(path, on_position):
        # NUL characters: UTF-16 that is read as UTF-8 has them.
        part = part.replace("\0", INVALID_UTF8_MARK)
        if parts and parts[-1].endswith("\r"):
            # A line feed may follow, in the next part.
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


def _read_parquet(path, on_position) -> Iterator[tuple[Place, object]]:
    """Yields the rows of a Parquet file, batch by batch."""
    try:
        extras.require("pyarrow")
    except extras.MissingExtraError:
        raise UserError(
            f"{path}: reading Parquet needs pyarrow. Run `pip install pyarrow`."
        ) from None
    import pyarrow
    from pyarrow import parquet

    raw, plain = files.open_plain(path)
    with raw, plain:
        index = 0
        try:
            table = parquet.ParquetFile(plain)
            total = max(table.metadata.num_rows, 1)
            for i in range(table.metadata.num_row_groups):
                group = table.metadata.row_group(i)
                files.check_size(
                    group.total_byte_size // max(group.num_rows, 1),
                    f"{path}, row group {i}",
                )
            for batch in table.iter_batches(batch_size=_BATCH_ROWS):
                for row in _batch_rows(batch):
                    yield Place(index), row
                    index += 1
                    if on_position is not None:
                        on_position(files.size(path) * index // total)
        except (pyarrow.ArrowException, OSError) as error:
            message = str(error).splitlines()[0]
            raise UserError(
                f"{path}: the Parquet data are damaged or cut off, after "
                f"{index} whole records ({message}). Get the file again."
            ) from None


def _batch_rows(batch) -> Iterator[object]:
    """Yields the rows of an Arrow batch as Python values."""
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:
        rows = map(functools.partial(_arrow_row, batch), range(len(batch)))
    for row in rows:
        yield row if isinstance(row, BadRow) else _plain(row)


def _arrow_row(batch, index: int) -> object:
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[index].as_py()
        except UnicodeDecodeError:
            row[name] = INVALID_UTF8_MARK
    return row


def rows_of(source: object, text_field: str | None = None) -> Iterator[dict]:
    """Yields rows from the collections that Python users have.

    Args:
        source: an iterable of dicts, as a list or a Hugging Face
            `datasets.Dataset`; a pandas `DataFrame`; a `tf.data.Dataset` of
            dicts; or a dict from field to column, all of the same length.
            Where an element is a string it stands for `{"text": element}`.
        text_field: another name for that field.

    Yields:
        Dicts from field to Python value: bytes become strings, arrays lists,
        missing values of pandas (NaN, NA, NaT) None, and classes of Hugging
        Face's `ClassLabel` their names.

    Raises:
        TypeError: `source` or one of its elements is of another type, or a
            `tf.data.Dataset` has batches.
        ValueError: the columns differ in length.
    """
    features = getattr(source, "features", None)
    if not isinstance(features, Mapping):
        features = {}
    if isinstance(source, str | bytes) or not _is_iterable(source):
        raise TypeError(
            f"Got {show(source)}, expected rows: an iterable of dicts or "
            "strings, a DataFrame, a tf.data.Dataset, or a dict of columns."
        )
    if hasattr(source, "as_numpy_iterator"):
        source = _unbatched(source.as_numpy_iterator())
    elif hasattr(source, "iloc") and hasattr(source, "columns"):
        source = _frame_rows(source)
    elif isinstance(source, Mapping):
        source = _column_rows(source)
    for index, element in enumerate(source):
        row = _plain(element)
        if isinstance(row, str):
            row = {text_field or "text": row}
        if not isinstance(row, dict):
            raise TypeError(
                f"Element {index} is {show(element)}, expected a dict from "
                'field to value, such as {"text": "..."}, or a string.'
            )
        yield {
            name: _with_names(value, features.get(name))
            for name, value in row.items()
        }


def _unbatched(elements: Iterator[object]) -> Iterator[object]:
    """Yields the elements of a dataset; raises if they look like batches."""
    for index, element in enumerate(elements):
        if index == 0 and isinstance(element, dict) and len(element) > 1:
            values = element.values()
            shapes = {getattr(x, "shape", ())[:1] for x in values}
            # One document may have true or false for each of its texts.
            has_flags = any(
                str(getattr(x, "dtype", "")) == "bool" for x in values
            )
            if len(shapes) == 1 and shapes != {()} and not has_flags:
                raise TypeError(
                    f"All fields of element 0 have {shapes.pop()[0]} values: "
                    "the dataset seems to be batched. Pass "
                    "`dataset.unbatch()`. If each element is one document, "
                    'add a scalar field such as "id".'
                )
        yield element


def _with_names(value: object, feature: object) -> object:
    """Returns names for the classes of a Hugging Face `ClassLabel`."""
    if isinstance(value, list):
        # The feature of a list's elements, in two forms.
        inner = getattr(feature, "feature", None)
        if isinstance(feature, list) and feature:
            (inner,) = feature
        return (
            value if inner is None else [_with_names(x, inner) for x in value]
        )
    if not hasattr(feature, "int2str") or not isinstance(value, int):
        return value
    # -1 stands for an unknown class.
    return None if value < 0 else feature.int2str(value)


def _is_iterable(source: object) -> bool:
    return hasattr(source, "__iter__") or hasattr(source, "__getitem__")


def _frame_rows(frame) -> Iterator[dict]:
    """Yields the rows of a pandas DataFrame; the index is left out."""
    names = list(frame.columns)
    columns = [frame.iloc[:, i] for i in range(len(names))]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _column_rows(columns: Mapping) -> Iterator[dict]:
    """Yields rows of a dict of columns."""
    for name, column in columns.items():
        if hasattr(column, "column_names"):
            raise TypeError(
                f"Got several data sets, {list(columns)}, expected one of them."
            )
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            raise TypeError(
                f"Column {name!r} is {show(column)}, expected a list of values."
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Columns must be equally long, got {lengths}.")
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _plain(value: object) -> object:
    """Converts bytes to strings, arrays to lists, and NaN to None."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "etcmodel.mark_invalid_bytes")
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if value is None or isinstance(value, str | int | float):
        # Scalars of NumPy are subclasses of these, or have `item`.
        value = value.item() if hasattr(value, "item") else value
        return None if value != value else value
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    for name in ("tolist", "to_list"):
        if hasattr(value, name):
            plain = getattr(value, name)()
            return value if plain is value else _plain(plain)
    return value
