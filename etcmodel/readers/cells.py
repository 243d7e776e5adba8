"""Converts the values of a row's fields to JSON values.

Every source (CSV, JSON, Parquet, Arrow, data frames, Hugging Face and `tf.data`
datasets, Python) passes the fields that it reads through `read_cell`.
docs/input_values.md lists the rules.
"""

import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

from etcmodel.errors import show
from etcmodel.readers import json_values
from etcmodel.readers import reprs
from etcmodel.readers.reprs import UnreadableError

_MIDNIGHT = " 00:00:00"
_MAX_DIGITS = 300
_IN_JSON = "etcmodel: a value that cannot be read"


class BadCell(NamedTuple):
    """Placeholder for a value that cannot be read.

    Attributes:
        reason: a few words that name the type of the error; statistics group
            errors by it.
        problem: the value found and the value expected.
        advice: an action for the user.
    """

    reason: str
    problem: str
    advice: str = "Fix the record, or leave it out"


class Printed(list):
    """A list of numbers parsed from a string, such as `"[1]"`.

    Attributes:
        text: the original string, for fields that hold text.
    """

    def __init__(self, values: list, text: str):
        super().__init__(values)
        self.text = text


def _has_text(value: list) -> bool:
    return any(
        _has_text(x) if isinstance(x, list) else isinstance(x, str | dict)
        for x in value
    )


def read_row(
    values: Iterable[tuple[object, object]], used: Collection[str] | None
) -> dict[str, object]:
    """Converts (field, value) pairs to a row; unused fields become None."""
    row = {}
    for name, value in values:
        is_used = used is None or str(name) in used
        row[str(name)] = read_cell(value) if is_used else None
    return row


def read_cell(value: object) -> object:
    """Converts a value from any source to a JSON value.

    Examples: `"['a' 'b']"`, `np.array(["a", "b"])` and `("a", "b")` give
    `["a", "b"]`; `Decimal("1.50")` gives 1.5; NaN gives None.

    Returns:
        A string, number, boolean, None, list or dict, or a `BadCell` if the
        value cannot be converted.
    """
    try:
        value = _plain(value)
        if not isinstance(value, str):
            return value
        found = reprs.read(value)
        if found is value:
            return value
        found = _plain(found)
        is_printed = isinstance(found, list) and found and not _has_text(found)
        return Printed(found, value) if is_printed else found
    except UnreadableError as error:
        return BadCell(*error.args)
    except (RecursionError, MemoryError):
        return BadCell("nested too deeply", "it is nested too deeply")


def to_json(value: object) -> object:
    """Encodes a result of `read_cell` as JSON; `read_cell` decodes it again."""
    value = getattr(value, "text", value)
    return {_IN_JSON: [*value]} if isinstance(value, BadCell) else value


def _plain(value: object) -> object:
    """Converts a value to a JSON value, without parsing strings."""
    if type(value) is int and value.bit_length() > 4 * _MAX_DIGITS:
        raise UnreadableError(
            "a number with too many digits",
            f"got a whole number with more than {_MAX_DIGITS} digits",
            "Write it as a string",
        )
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, enum.Enum) and not isinstance(value, str | int):
        return _plain(value.value)
    if isinstance(value, bytes | bytearray | memoryview):
        return json_values.decode(bytes(value))
    if isinstance(value, BadCell):
        raise UnreadableError(*value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "as_py"):
        return _plain(_arrow_value(value))
    if isinstance(value, Mapping):
        return _object(value)
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(x) for x in value), key=str)
    if isinstance(value, datetime.date):
        return str(value).removesuffix(_MIDNIGHT)
    if isinstance(value, datetime.time | uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal):
        value = _decimal(value)
    return _number_or_array(value)


def _decimal(value: decimal.Decimal) -> int | float:
    if value.is_nan():
        return math.nan
    if value.is_finite() and value.adjusted() > _MAX_DIGITS:
        return math.inf
    is_whole = value.is_finite() and value.as_tuple().exponent >= 0
    return int(value) if is_whole else float(value)


def _number_or_array(value: object) -> object:
    """Converts numbers, NumPy scalars, arrays and tensors."""
    dtype = str(getattr(value, "dtype", ""))
    if dtype.startswith("datetime64") and not hasattr(value, "iloc"):
        # NumPy converts nanoseconds to plain integers, but microseconds to
        # dates.
        value = value.astype("datetime64[us]")
    if isinstance(value, str | int | float) or hasattr(value, "item"):
        if getattr(value, "shape", ()) == ():
            value = value.item() if hasattr(value, "item") else value
        if isinstance(value, float):
            return _finite(value)
        if value is None or type(value) in (str, bool, int):
            return value
        # Subclasses of str and int, such as members of enumerations.
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return int(value)
        if "float" in type(value).__name__ or "double" in type(value).__name__:
            return _finite(float(value))
    for name in ("tolist", "to_list", "numpy"):
        if hasattr(value, name):
            plain = getattr(value, name)()
            if plain is not value:
                return _plain(plain)
    if isinstance(value, datetime.date | bytes):
        return _plain(value)
    raise UnreadableError(
        "an unsupported type",
        f"got {show(value)} of type {type(value).__name__}, expected text, "
        "a number, true, false, a list or an object",
    )


def _finite(value: float) -> float | None:
    if math.isinf(value):
        raise UnreadableError(
            "an infinite number", f"got {value}, expected a finite number"
        )
    return None if math.isnan(value) else value


def _arrow_value(scalar: object) -> object:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return bytes(scalar.as_buffer())
    except (ValueError, OverflowError, LookupError, OSError) as error:
        # For example, a time in the year 10000 or in an unknown time zone.
        message = str(error).splitlines()[0]
        raise UnreadableError(
            f"unreadable {scalar.type}",
            f"the value of type {scalar.type} cannot be read ({message})",
            "Write it as a string",
        ) from None


def _object(value: Mapping) -> object:
    """Converts a dict; raises the error of a `BadCell` that `to_json` wrote."""
    repeated = getattr(value, "repeated", None)
    if repeated is not None:
        raise reprs.repeated_key(show(repeated))
    found = {str(_plain(key)): _plain(x) for key, x in value.items()}
    if found.keys() == {_IN_JSON}:
        raise UnreadableError(*found[_IN_JSON])
    if len(found) < len(value):
        names = [str(x) for x in value]
        repeated = next(x for x in names if names.count(x) > 1)
        raise reprs.repeated_key(show(repeated))
    return found
