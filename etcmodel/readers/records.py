"""Reads typed records from data files; errors name the place in the file.

Each dataset declares a `Record` type, whose fields msgspec reads and checks,
and a `Format`, which reads its files.
"""

import collections
import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Annotated
from typing import NamedTuple

import msgspec

from etcmodel.errors import BadRecords
from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import files
from etcmodel.readers.json_stream import Place
from etcmodel.readers.json_values import has_invalid_utf8

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
"""A string that is not empty or all white space."""

_ADVICE_NO_ANSWERS = "If this file has no answers, use `split=predict`"


class Source(NamedTuple):
    """The file and place that a record was read from.

    Attributes:
        path: path of the file.
        index: position of the record in the file, from 0.
        line: the line where the record starts, from 1; None if unknown.
    """

    path: str = ""
    index: int = 0
    line: int | None = None

    def error(self, reason: str, **kwargs) -> RecordError:
        """Returns a `RecordError` about this place; `kwargs` are passed on."""
        return RecordError(
            self.path, self.index, reason, line=self.line, **kwargs
        )


class Checked(NamedTuple):
    """The result of reading one record of a file.

    Attributes:
        source: where the record was read.
        record: the record; None if its fields have wrong types.
        error: the reason why the record cannot be used; None if it can be used.
        is_named: whether the file has the record's id, which must then be
            unique.
    """

    source: Source
    record: "Record | None"
    error: RecordError | None
    is_named: bool = False


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the records of all datasets.

    Subclasses have an `id`, unique within the files that are read together.
    """

    # The name has brackets, so that no field of a file is read as the source.
    source: Source = msgspec.field(default=Source(), name="(source)")

    @property
    def index(self) -> int:
        """Position of the record in its file, from 0."""
        return self.source.index

    @property
    def counts(self) -> Mapping[str, int]:
        """Statistics about reading this record, shown to users: name -> count.

        Empty by default.
        """
        return {}

    def error(self, reason: str, **kwargs) -> RecordError:
        """Returns a `RecordError` about this record; `kwargs` are passed on."""
        return self.source.error(reason, record_id=self.id, **kwargs)

    def missing_answer(
        self,
        name: str,
        field: str,
        value: object,
        split: str,
        advice: str = _ADVICE_NO_ANSWERS,
    ) -> RecordError:
        """Returns the error of a record without an answer that a split needs.

        Args:
            name: the type of the missing answer, such as "label", for
                statistics.
            field: the field that should hold it.
            value: the field's value, if it is empty; None if it is missing.
            split: the split that needs it.
            advice: an action for the user.
        """
        missing = "missing" if value is None else "empty"
        return self.error(
            f"no {name}",
            field=field,
            problem=f"it is {missing}, but the split {split!r} needs it",
            advice=advice,
        )


@dataclasses.dataclass(frozen=True)
class Format:
    """Reads the official files of a dataset.

    Attributes:
        record: the type that msgspec decodes each record of a file to.
        example: an example of a record, for messages.
        read_values: called with a path, `json_stream.OnPosition` and `record`;
            yields the `json_stream.Place` and the value of each record, as a
            `record` or, if msgspec rejects it, as a JSON value.
        check: called with a record and the split; raises a `RecordError` if
            the split cannot use the record.
        make: converts a value and its `Source` to a `Record`; None if `record`
            is a `Record` type already.
        id_field: the field with the record's id.
        merge: merges all records with the same id, given in the order of the
            files; None if ids must be unique. Files are then read twice.
        splits: the splits that records can be read for. The first, for
            training, is the default; `"predict"` needs no answers.
    """

    record: type
    example: str
    read_values: Callable[..., Iterator[tuple[Place, object]]]
    check: Callable[[Record, str], None]
    make: Callable[..., Record] | None = None
    id_field: str = "id"
    merge: Callable[[Sequence[Record]], Record] | None = None
    splits: tuple[str, ...] = ("train", "dev", "predict")

    def read(
        self,
        paths: str | Sequence[str],
        split: str | None = None,
        bad_records: BadRecords | None = None,
        on_position: Callable[[int], None] | None = None,
        merge: bool = True,
    ) -> Iterator[Record]:
        """Yields the usable records of official files, in order.

        Args:
            paths: as for `files.find`.
            split: one of `splits`. It decides whether records need answers;
                answers in the file are always read.
            bad_records: handles records that cannot be used; by default, their
                error is raised.
            on_position: called with the number of bytes read so far, summed
                over the files. The first pass, which counts ids for `merge`,
                does not call it.
            merge: whether to merge records with the same id, if the format
                does. A merged record takes the place of the last of its
                records, or comes at the end if one of these is bad.

        Raises:
            RecordError: a record has wrong types, a repeated id, bytes that are
                not UTF-8, or lacks an answer that the split needs.
            UserError: a file cannot be read.
            ValueError: the split is unknown.
        """
        repeated = self._repeated(paths) if self.merge and merge else {}
        checked = self._checked(self._values(paths, on_position), split)
        yield from self.usable(checked, bad_records, repeated)

    def read_part(
        self, paths: Sequence[str], part: files.Part, split: str
    ) -> Iterator[Checked]:
        """Reads and checks the records of one part of the files `paths`.

        Pass the results of all parts to `usable`, which checks that ids are
        unique.
        """
        yield from self._checked(self._values(paths, None, part), split)

    def _checked(
        self, values: Iterable[tuple[Source, object]], split: str | None
    ) -> Iterator[Checked]:
        """Converts values to records, and checks each on its own."""
        split = self.splits[0] if split is None else split
        if split not in self.splits:
            raise ValueError(
                f"split is {split!r}, expected one of {self.splits}."
            )
        for source, value in values:
            error = record = None
            is_named = False
            try:
                record = self.parse(value, source)
                # Records without ids are identified by their file.
                is_named = self._given_id(value) is not None
                self.check(record, split)
            except RecordError as found:
                error = found.without_traceback()
            # Frees the JSON value, which is many times larger than the record.
            del value
            yield Checked(source, record, error, is_named)

    def divide(self, record: Record) -> Iterator[Record]:
        """Yields the parts of a record to use; by default, the whole record."""
        yield record

    def usable(
        self,
        checked: Iterable[Checked],
        bad_records: BadRecords | None,
        repeated: Mapping[str, int],
    ) -> Iterator[Record]:
        """Yields the usable records, whose ids are unique.

        Args:
            checked: results of `read_part`, in the order of the files.
            bad_records: handles records that cannot be used.
            repeated: id -> number of records to merge; only for repeated ids.
        """
        bad_records = bad_records or BadRecords()
        seen: set[str] = set()
        to_merge: dict[str, list[Record]] = {}
        for _, record, error, is_named in checked:
            if (
                record is not None
                and is_named
                and self.merge is None
                and record.id in seen
            ):
                error = record.error(
                    f"duplicate {self.id_field!r}",
                    field=self.id_field,
                    problem="an earlier record has the same id",
                    advice="Keep one of them",
                )
            if error is not None:
                bad_records.report(error)
                continue
            count = repeated.get(record.id, 1) if is_named else 1
            if count > 1:
                same = to_merge.setdefault(record.id, [])
                same.append(record)
                if len(same) == count:
                    yield from self.divide(self.merge(to_merge.pop(record.id)))
                continue
            if is_named:
                seen.add(record.id)
            yield from self.divide(record)
        # Merges the records of ids that are incomplete because some were bad.
        for same in to_merge.values():
            yield from self.divide(self.merge(same))

    @functools.cached_property
    def _id_attribute(self) -> str:
        """Name of the attribute of `record` that holds the id."""
        fields = msgspec.structs.fields(self.record)
        return next(x.name for x in fields if x.encode_name == self.id_field)

    def _given_id(self, value: object) -> object:
        """Returns the id in a value; None if it has none."""
        if isinstance(value, dict):
            return value.get(self.id_field)
        return getattr(value, self._id_attribute, None)

    def _values(
        self, paths, on_position, part: files.Part | None = None
    ) -> Iterator[tuple[Source, object]]:
        """Yields the values of all files, or of one part."""
        if part is not None:
            arguments = part.path, None, self.record
            for place, value in files.within(
                part, self.read_values, *arguments
            ):
                yield Source(part.path, *place), value
            return
        before = 0
        for path in files.find(paths):

            def at(position, before=before):
                if on_position is not None:
                    on_position(before + position)

            for place, value in self.read_values(path, at, self.record):
                yield Source(path, *place), value
            before += files.size(path)

    def _repeated(self, paths) -> dict[str, int]:
        counts = collections.Counter()
        # The second pass reports damaged files.
        with contextlib.suppress(UserError):
            for _, value in self._values(paths, None):
                counts[str(self._given_id(value))] += 1
        return {key: count for key, count in counts.items() if count > 1}

    def parse(self, value: object, source: Source) -> Record:
        """Converts a value of `read_values` to a record.

        Raises:
            RecordError: fields have wrong types, or text is not UTF-8.
        """
        record = value
        if not isinstance(value, msgspec.Struct):
            problem = _Problem(self, value, source)
            if has_invalid_utf8(value):
                raise problem.invalid_utf8()
            try:
                record = msgspec.convert(value, self.record)
            except msgspec.ValidationError as error:
                raise problem.explained(str(error)) from None
        if self.make is not None:
            return self.make(record, source)
        msgspec.structs.force_setattr(record, "source", source)
        return record


class _Problem:
    """Describes why a JSON value is not a valid record, in the user's terms."""

    def __init__(self, format_: Format, value: object, source: Source):
        self._format = format_
        self._value = value
        self._source = source

    def _error(self, reason: str, **kwargs) -> RecordError:
        id_field, record_id = self._format.id_field, None
        # The message already shows the id's value if the id is wrong.
        if isinstance(self._value, dict) and kwargs.get("field") != id_field:
            value = self._value.get(id_field)
            if isinstance(value, str | int) and not isinstance(value, bool):
                record_id = str(value)
        return self._source.error(reason, record_id=record_id, **kwargs)

    def invalid_utf8(self) -> RecordError:
        """Returns the error of bytes that are not UTF-8."""
        items = self._value.items() if isinstance(self._value, dict) else ()
        fields = (key for key, value in items if has_invalid_utf8(value))
        return self._error(
            "invalid UTF-8",
            field=next(fields, None),
            problem="it has bytes that are not UTF-8",
            advice="Convert the file to UTF-8",
        )

    def explained(self, message: str) -> RecordError:
        """Translates a message of msgspec to an error in the user's terms.

        Example of a message: "Expected `str`, got `int` - at `$.a[0].b`".
        """
        message, _, place = message.partition(" - at `$")
        place = place.rstrip("`").lstrip(".")
        value = self._value
        type_ = msgspec.inspect.type_info(self._format.record)
        for key in re.findall(r"\w+", place):
            key = int(key) if key.isdigit() else key
            value, type_ = value[key], _type_of_item(type_, key)
        missing = re.fullmatch("Object missing required field `(.*)`", message)
        if missing:
            field = f"{place}.{missing[1]}" if place else missing[1]
            names = ", ".join(map(str, list(value)[:8])) or "none"
            return self._error(
                f"no field {without_positions(field)!r}",
                field=field,
                problem=(
                    f"it is missing ({place or 'the record'} has: {names}); "
                    f"expected {self._format.example}"
                ),
            )
        if not place:
            return self._error(
                "not a JSON object",
                problem=f"got {show(value)}, expected {self._format.example}",
            )
        group, expected = without_positions(place), _words(type_)
        if "matching regex" in message:
            expected = "some text" if isinstance(value, str) else expected
            return self._error(
                f"empty {group!r}",
                field=place,
                problem=f"it is empty: got {show(value)}, expected {expected}",
            )
        got = show(value)
        if isinstance(value, list):
            got += f", a list of {len(value)}"
        return self._error(
            f"{group!r} is not {expected}",
            field=place,
            problem=f"got {got}, expected {expected}",
        )


def without_positions(place: str) -> str:
    """Removes positions, to group errors by field: `a[3].b` gives `a[].b`."""
    return re.sub(r"\[\d+\]", "[]", place)


def _plain(type_) -> msgspec.inspect.Type:
    """Strips metadata and "or null" from a type."""
    if isinstance(type_, msgspec.inspect.Metadata):
        return _plain(type_.type)
    if isinstance(type_, msgspec.inspect.UnionType):
        null = msgspec.inspect.NoneType
        return _plain(next(x for x in type_.types if not isinstance(x, null)))
    return type_


def _type_of_item(type_, key: int | str):
    """Returns the type of the item under a key or position."""
    type_ = _plain(type_)
    if isinstance(type_, msgspec.inspect.StructType):
        if isinstance(key, int):
            return type_.fields[key].type
        return {x.encode_name: x.type for x in type_.fields}[key]
    if isinstance(type_, msgspec.inspect.TupleType):
        return type_.item_types[key]
    return type_.item_type


_WORDS = {
    msgspec.inspect.StrType: ("a string", "strings"),
    msgspec.inspect.IntType: ("a whole number", "whole numbers"),
    msgspec.inspect.BoolType: ("true or false", "true or false"),
    msgspec.inspect.StructType: ("a JSON object", "JSON objects"),
}


def _words(type_, plural: bool = False) -> str:
    """Describes a type for users, such as "a list of strings"."""
    if isinstance(type_, msgspec.inspect.Metadata):
        described = (type_.extra_json_schema or {}).get("description")
        return described or _words(type_.type, plural)
    if isinstance(type_, msgspec.inspect.UnionType):
        return f"{_words(_plain(type_))} or null"
    if isinstance(type_, msgspec.inspect.LiteralType):
        return f"one of {list(type_.values)}"
    items = getattr(type_, "item_type", None)
    if items is not None:
        lists = "lists" if plural else "a list"
        return f"{lists} of {_words(items, plural=True)}"
    return _WORDS[type(type_)][plural]
