"""Reads and writes JSON files that hold an object and its checksum."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from etcmodel.errors import show

# Key of the checksum. Files of other programs do not have it.
CHECKSUM = "checksum"
_FORM = r"sha256:[0-9a-f]{16}"
# Error message for a checksum that does not match the content.
MISMATCH = (
    "checksum mismatch: the file was damaged or edited; if you edited it, "
    "delete its {}"
)


def parse(content: str | bytes, *, is_strict: bool = False) -> dict[str, Any]:
    """Parses a JSON object.

    Raises a ValueError that describes the problem: "it is not JSON (...)". By
    default, NaN and infinity are accepted, and the last value of a repeated key
    counts; if `is_strict`, both are errors.
    """
    if isinstance(content, bytes):
        content = decode(content)
    hooks = {}
    if is_strict:
        hooks = {
            "parse_constant": _refuse_constant,
            "object_pairs_hook": _unique_pairs,
        }
    try:
        value = json.loads(content, **hooks)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({_problem(error)})") from None
    return check_object(value)


def parse_note(content: str | bytes) -> dict[str, Any]:
    """Parses a JSON object; checks and removes its checksum, if it has one."""
    value = parse(content)
    noted = value.get(CHECKSUM)
    if isinstance(noted, str) and re.fullmatch(_FORM, noted):
        del value[CHECKSUM]
        if _checksum(value) != noted:
            raise ValueError(MISMATCH.format(f'key "{CHECKSUM}"'))
    return value


def decode(content: bytes) -> str:
    """Decodes UTF-8, or raises a ValueError that names the invalid byte."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is not text: byte {error.start} is not UTF-8"
        ) from None


def check_object(value: Any) -> dict[str, Any]:
    """Returns a JSON object; raises a ValueError for any other value."""
    if not isinstance(value, dict):
        kinds = {list: "list", str: "string", bool: "boolean"}
        name = "null" if value is None else kinds.get(type(value), "number")
        raise ValueError(f"it holds a {name}, not an object")
    return value


def dump_note(content: Mapping[str, Any]) -> str:
    """Returns indented, sorted JSON of an object, with its checksum."""
    # The round trip turns keys into strings and tuples into lists, as reading
    # the file does. `indent` is needed because `json` writes Keras's dict
    # subclasses only with it.
    content = json.loads(json.dumps(content, indent=2))
    content[CHECKSUM] = _checksum(content)
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    return f"{text}\n"


def is_file_name(value: object) -> bool:
    """Returns whether a value is a bare file name, without a directory."""
    return isinstance(value, str) and bool(
        # Separators of any operating system.
        re.fullmatch(r"(?!\.{1,2}$)[^/\\\0]+", value)
    )


def digest(content: bytes) -> str:
    """Returns a checksum such as `"sha256:0123456789abcdef"`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"


def _refuse_constant(name: str):
    raise ValueError(f"{name} is no number of JSON")


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object; raises a ValueError if a key occurs twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"an object has the key {show(key)} twice")
            seen.add(key)
    return made


def _checksum(content: Mapping[str, Any]) -> str:
    """Returns an object's checksum, which does not depend on formatting."""
    return digest(json.dumps(content, sort_keys=True).encode("ascii"))


def _problem(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error)
