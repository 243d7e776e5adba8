"""Typed access to the fields of a JSON record, with errors that say where."""

from etcmodel.tasks.errors import RecordError
from etcmodel.tasks.errors import show
from etcmodel.tasks.json_stream import has_invalid_utf8


class RecordFields:
    """One JSON record of a file, read field by field.

    Every method raises `RecordError`s that name the file, the record (its
    index, and its id once known), the field, the value and what was expected.
    """

    def __init__(self, path: str, index: int, value: object, expected: str):
        """Checks that there is a JSON object of valid text.

        Args:
            path: the file.
            index: position of the record in the file, from 0.
            value: the record as JSON value.
            expected: what records of this format look like; for messages.

        Raises:
            RecordError: it is no object, or has bytes that are not UTF-8.
        """
        self._path = path
        self._index = index
        self._expected = expected
        self._id = None
        if not isinstance(value, dict):
            raise self.error(
                "not a JSON object",
                problem=f"got {show(value)}, expected {expected}",
            )
        self._value = value
        if isinstance(value.get("id"), str):
            self._id = value["id"]
        if has_invalid_utf8(value):
            fields = [key for key in value if has_invalid_utf8(value[key])]
            raise self.error(
                "invalid UTF-8",
                field=fields[0] if fields else None,
                problem="there are bytes that are not UTF-8",
                advice="Convert the file to UTF-8",
            )

    def error(self, reason: str, **kwargs) -> RecordError:
        """A `RecordError` about this record.

        Args:
            reason: a few words that group such errors.
            **kwargs: as for `RecordError`.

        Returns:
            The error, to be raised.
        """
        return RecordError(
            self._path, self._index, reason, record_id=self._id, **kwargs
        )

    def __contains__(self, field: str) -> bool:
        return field in self._value

    def _get(self, field: str) -> object:
        if field not in self._value:
            names = ", ".join(map(str, list(self._value)[:8])) or "none"
            raise self.error(
                f"no field {field!r}",
                field=field,
                problem=(
                    f"it is missing (the record has: {names}); expected "
                    f"{self._expected}"
                ),
            )
        return self._value[field]

    def string(self, field: str) -> str:
        """A field that must be a string.

        Args:
            field: its name.

        Returns:
            The string.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self._get(field)
        if not isinstance(value, str):
            raise self.error(
                f"{field!r} is not a string",
                field=field,
                problem=f"got {show(value)}, expected a string",
            )
        return value

    def identifier(self, field: str, seen: set[str]) -> str:
        """The field that names the record; from now on messages name it too.

        Args:
            field: its name.
            seen: the identifiers of the records before; this one is added.

        Returns:
            The identifier.

        Raises:
            RecordError: it is missing, no string, empty, or not unique.
        """
        self._id = None
        value = self.string(field)
        self._id = value
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

    def strings(self, field: str) -> tuple[str, ...]:
        """A field that must be a list of strings.

        Args:
            field: its name.

        Returns:
            The strings.

        Raises:
            RecordError: it is missing or of another type.
        """
        value = self._get(field)
        if not isinstance(value, list):
            raise self.error(
                f"{field!r} is not a list",
                field=field,
                problem=f"got {show(value)}, expected a list of strings",
            )
        for position, item in enumerate(value):
            if not isinstance(item, str):
                raise self.error(
                    f"{field!r} holds other things than strings",
                    field=f"{field}[{position}]",
                    problem=f"got {show(item)}, expected a string",
                )
        return tuple(value)
