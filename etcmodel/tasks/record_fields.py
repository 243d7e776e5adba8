"""Typed access to the fields of a JSON record, with errors that say where."""

import dataclasses
import re
from collections.abc import Iterator

from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import show
from etcmodel.tasks.json_stream import has_invalid_utf8


@dataclasses.dataclass
class _Record:
    """What messages tell about a record; shared by everything inside it."""

    path: str
    index: int
    expected: str
    id: str | None = None


def _is_integer(value: object) -> bool:
    # JSON tells true from 1, Python does not.
    return isinstance(value, int) and not isinstance(value, bool)


class Fields:
    """A JSON object or list inside a record, read item by item.

    Items have keys: the names of an object's fields, the positions in a list.
    Every method raises `RecordError`s that name the file, the record (its
    index, and its id once known), the field with the whole way to it (such as
    `annotations[0].long_answer.start_token`), the value and what was expected.
    """

    def __init__(self, record: _Record, value: dict | list, place: str = ""):
        self._record = record
        self._value = value
        self._place = place

    def _place_of(self, key: str | int) -> str:
        if isinstance(key, int):
            return f"{self._place}[{key}]"
        return f"{self._place}.{key}" if self._place else key

    def _group_of(self, key: str | int) -> str:
        """The place without positions, to group errors."""
        return repr(re.sub(r"\[\d+\]", "[]", self._place_of(key)))

    def error(
        self, reason: str, *, field: str | int | None = None, **kwargs
    ) -> RecordError:
        """A `RecordError` about this part of the record.

        Args:
            reason: a few words that group such errors.
            field: key of the item at fault; None if it is all of this part.
            **kwargs: as for `RecordError`.

        Returns:
            The error, to be raised.
        """
        place = self._place if field is None else self._place_of(field)
        return RecordError(
            self._record.path,
            self._record.index,
            reason,
            record_id=self._record.id,
            field=place or None,
            **kwargs,
        )

    def _wrong_type(self, key: str | int, expected: str) -> RecordError:
        return self.error(
            f"{self._group_of(key)} is not {expected}",
            field=key,
            problem=f"got {show(self._value[key])}, expected {expected}",
        )

    def __contains__(self, field: str) -> bool:
        return field in self._value

    def _get(self, key: str | int) -> object:
        if isinstance(self._value, dict) and key not in self._value:
            names = ", ".join(map(str, list(self._value)[:8])) or "none"
            raise self.error(
                f"no field {self._group_of(key)}",
                field=key,
                problem=(
                    f"it is missing ({self._place or 'the record'} has: "
                    f"{names}); expected {self._record.expected}"
                ),
            )
        return self._value[key]

    def string(self, key: str | int) -> str:
        """An item that must be a string.

        Args:
            key: its name or position.

        Returns:
            The string.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self._get(key)
        if not isinstance(value, str):
            raise self._wrong_type(key, "a string")
        return value

    def string_or_null(self, key: str | int) -> str | None:
        """An item that may be a string, null, or missing.

        Args:
            key: its name or position.

        Returns:
            The string, or None.

        Raises:
            RecordError: it is of another type.
        """
        if key not in self or self._value[key] is None:
            return None
        if not isinstance(self._value[key], str):
            raise self._wrong_type(key, "a string or null")
        return self._value[key]

    def integer(self, key: str | int) -> int:
        """An item that must be a whole number.

        Args:
            key: its name or position.

        Returns:
            The number.

        Raises:
            RecordError: it is missing or of another type; `true` and `1.0`
                are of another type.
        """
        value = self._get(key)
        if not _is_integer(value):
            raise self._wrong_type(key, "a whole number")
        return value

    def boolean(self, key: str | int) -> bool:
        """An item that must be true or false.

        Args:
            key: its name or position.

        Returns:
            Which of them it is.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self._get(key)
        if not isinstance(value, bool):
            raise self._wrong_type(key, "true or false")
        return value

    def items(self, key: str | int, expected: str = "a list") -> list:
        """An item that must be a list, of whatever.

        Args:
            key: its name or position.
            expected: what the list should be; for messages.

        Returns:
            The list.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self._get(key)
        if not isinstance(value, list):
            raise self.error(
                f"{self._group_of(key)} is not a list",
                field=key,
                problem=f"got {show(value)}, expected {expected}",
            )
        return value

    def strings(self, key: str | int) -> tuple[str, ...]:
        """An item that must be a list of strings.

        Args:
            key: its name or position.

        Returns:
            The strings.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self.items(key, "a list of strings")
        for position, item in enumerate(value):
            if not isinstance(item, str):
                inside = Fields(self._record, value, self._place_of(key))
                raise inside.error(
                    f"{self._group_of(key)} holds other things than strings",
                    field=position,
                    problem=f"got {show(item)}, expected a string",
                )
        return tuple(value)

    def mapping(self, key: str | int) -> "Fields":
        """An item that must be a JSON object.

        Args:
            key: its name or position.

        Returns:
            Access to its fields.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self._get(key)
        if not isinstance(value, dict):
            raise self._wrong_type(key, "a JSON object")
        return Fields(self._record, value, self._place_of(key))

    def mappings(self, key: str | int) -> Iterator["Fields"]:
        """An item that must be a list of JSON objects.

        Args:
            key: its name or position.

        Yields:
            Access to the fields of every object.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self.items(key, "a list of JSON objects")
        inside = Fields(self._record, value, self._place_of(key))
        for position in range(len(value)):
            yield inside.mapping(position)

    def sequences(
        self, key: str | int, length: int, expected: str
    ) -> Iterator["Fields"]:
        """An item that must be a list of lists of the same length.

        Args:
            key: its name or position.
            length: length of the inner lists.
            expected: what an inner list should be, such as `"[name, age]"`;
                for messages.

        Yields:
            Access to the items of every inner list.

        Raises:
            RecordError: it is missing, of another type, or an inner list has
                another length.
        """
        value = self.items(key, f"a list of {expected}")
        inside = Fields(self._record, value, self._place_of(key))
        for position in range(len(value)):
            item = inside.items(position, expected)
            if len(item) != length:
                raise inside.error(
                    f"{inside._group_of(position)} is of a wrong length",
                    field=position,
                    problem=(
                        f"got {show(item)}, a list of {len(item)}, expected "
                        f"{expected}"
                    ),
                )
            yield Fields(self._record, item, inside._place_of(position))


class RecordFields(Fields):
    """One JSON record of a file, read field by field."""

    def __init__(
        self,
        path: str,
        index: int,
        value: object,
        expected: str,
        id_field: str = "id",
    ):
        """Checks that there is a JSON object of valid text.

        Args:
            path: the file.
            index: position of the record in the file, from 0.
            value: the record as JSON value.
            expected: what records of this format look like; for messages.
            id_field: the field with the record's id, for messages before
                `identifier` was called.

        Raises:
            RecordError: it is no object, or has bytes that are not UTF-8.
        """
        super().__init__(_Record(path, index, expected), value)
        if not isinstance(value, dict):
            raise self.error(
                "not a JSON object",
                problem=f"got {show(value)}, expected {expected}",
            )
        record_id = value.get(id_field)
        if isinstance(record_id, str) or _is_integer(record_id):
            self._record.id = str(record_id)
        if has_invalid_utf8(value):
            fields = [key for key in value if has_invalid_utf8(value[key])]
            raise self.error(
                "invalid UTF-8",
                field=fields[0] if fields else None,
                problem="there are bytes that are not UTF-8",
                advice="Convert the file to UTF-8",
            )

    def identifier(
        self, field: str, seen: set[str], integer: bool = False
    ) -> str:
        """The field that names the record; from now on messages name it too.

        Args:
            field: its name.
            seen: the identifiers of the records before; this one is added.
            integer: whether it is a whole number in the file, not a string.

        Returns:
            The identifier, as a string in any case.

        Raises:
            RecordError: it is missing, of another type, empty, or not unique.
        """
        self._record.id = None
        value = str(self.integer(field)) if integer else self.string(field)
        self._record.id = value
        if not value.strip():
            raise self.error(
                f"empty {field!r}",
                field=field,
                problem="it is empty, expected a unique string",
            )
        if value in seen:
            raise self.error(
                f"duplicate {field!r}",
                field=field,
                problem="a record before it has the same one",
                advice="Keep one of them",
            )
        seen.add(value)
        return value
