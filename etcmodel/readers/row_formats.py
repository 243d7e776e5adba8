"""Reads rows of users' files and Python collections as records."""

import dataclasses
import functools
import os
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from etcmodel.errors import BadRecords
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import cells
from etcmodel.readers import files
from etcmodel.readers import python_rows
from etcmodel.readers import tables
from etcmodel.readers.records import Format
from etcmodel.readers.records import Record
from etcmodel.readers.records import Source
from etcmodel.readers.sectioned import DocumentRecord
from etcmodel.readers.sectioned import Fields
from etcmodel.readers.sectioned import Row


@dataclasses.dataclass(frozen=True)
class RowFormat(Format):
    """Reads rows of users' files and Python collections.

    A row without an id gets its position as id.

    Attributes:
        fields: names of the rows' fields. If names for query, id, evidence and
            title are given, at least one row must have each of these fields;
            for predictions from Python rows, only the query is required.
        used: names of the fields to read. Other fields may have any type.
    """

    fields: Fields = Fields()
    used: frozenset[str] = frozenset()

    def read_rows(
        self,
        source: object,
        split: str | None = None,
        bad_records: BadRecords | None = None,
        name: str = "rows",
    ) -> Iterator[Record]:
        """Yields the usable records of a Python collection, in order.

        Args:
            source: the rows, see `python_rows.rows_of`.
            split: see `read`.
            bad_records: see `read`.
            name: name of the collection, which errors show as its path.

        Raises:
            RecordError: as in `read`.
            TypeError: `source` is not a collection of rows.
            UserError: no row has a field that `fields` names; raised after the
                last row.
            ValueError: the split is unknown, or columns differ in length.
        """
        fields = self.fields
        needed = {fields.query} - {None}
        if split != "predict":
            needed = fields.named
        rows = enumerate(python_rows.rows_of(source, fields.text, self.used))
        values = ((Source(name, index), row) for index, row in rows)
        values = _with_fields(values, needed, name)
        checked = self._checked(self._named(values, {name: ""}), split)
        yield from self.usable(checked, bad_records, {})

    def parse(self, value: object, source: Source) -> Record:
        """Converts a row to a record; see `Format.parse`."""
        if isinstance(value, tables.BadRow):
            raise source.error(
                value.reason,
                field=value.field,
                problem=value.problem,
                advice=value.advice,
            )
        for name, cell in value.items() if isinstance(value, dict) else ():
            if isinstance(cell, cells.BadCell):
                raise source.error(
                    cell.reason,
                    field=name,
                    problem=cell.problem,
                    advice=cell.advice,
                )
        return super().parse(value, source)

    def _values(self, paths, on_position, part=None):
        found = paths if part else files.find(paths)
        names = [os.path.basename(x) for x in found]
        if len(set(names)) < len(names):
            names = found
        prefixes = dict.fromkeys(found, "")
        if len(found) > 1:
            prefixes = {x: f"{y}:" for x, y in zip(found, names, strict=True)}
        values = super()._values(found, on_position, part)
        if part is None:
            values = _with_fields(values, self.fields.named, ", ".join(found))
        return self._named(values, prefixes)

    def _named(self, values, prefixes: Mapping[str, str]):
        """Sets missing ids to a prefix and the row's position."""
        for source, value in values:
            if isinstance(value, dict) and value.get(self.id_field) is None:
                name = f"{prefixes[source.path]}{source.index}"
                value = {**value, self.id_field: name}
            yield source, value


def _with_fields(values, needed: Collection[str], place: str):
    """Yields values, then raises an error if no row has a needed field."""
    missing = {*needed}
    present = {}
    for source, value in values:
        if missing and isinstance(value, dict):
            missing -= value.keys()
            present |= dict.fromkeys(map(str, value))
        yield source, value
    if missing and present:
        raise UserError(
            f"{place}: no record has the field "
            f"{', '.join(map(show, sorted(missing)))}. Use a field that they "
            f"have: {', '.join([*present][:8])}."
        )


def _read_file(used, read_other, path, on_position=None, record=None):
    """Reads a file's rows, with `read_other` if it recognizes the layout."""
    del record
    if read_other is not None:
        rows = read_other(path, on_position)
        if rows is not None:
            return rows
    return tables.read_rows(path, on_position, used)


def row_format(
    make,
    check,
    fields: Fields,
    example: str,
    labels: Sequence[str] = (),
    evidence: Sequence[str] = (),
    others: Sequence[str] = (),
    read_other: Callable | None = None,
    **kwargs,
) -> RowFormat:
    """Returns the `RowFormat` of a task's rows.

    Args:
        make: called with a `Row`; returns a `DocumentRecord`.
        check: see `Format`.
        fields: names of the rows' fields.
        example: the end of an example row, for messages.
        labels: default names of the field with the labels.
        evidence: default names of the field with the evidence.
        others: names of further fields to read.
        read_other: called with a path and `json_stream.OnPosition`; returns the
            rows of a file with another layout, or None to read it as a table.
        **kwargs: other attributes of `Format`.
    """
    used = fields.used(labels, evidence) | {*others}
    return RowFormat(
        record=dict,
        example=fields.example(example),
        read_values=functools.partial(_read_file, used, read_other),
        check=check,
        used=used,
        make=functools.partial(_make, make, fields),
        id_field=fields.id_field,
        fields=fields,
        **kwargs,
    )


def _make(make, fields: Fields, values: dict, source: Source) -> DocumentRecord:
    return make(Row(values, source, fields))
