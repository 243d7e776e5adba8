"""Reads the JSON and YAML files that the package writes about data and runs.

Errors name the file, the problem, what was expected and what to do.
"""

import json
import os
import types
import typing
from collections.abc import Mapping

from etcmodel.datasets import files
from etcmodel.errors import UserError
from etcmodel.errors import show

_NAMES = {
    dict: "object",
    list: "list",
    str: "string",
    int: "integer",
    types.NoneType: "null",
}


def exists(path: str) -> bool:
    """Returns whether a file exists, on a disk or in a bucket."""
    if not files.is_remote(path):
        return os.path.exists(path)
    import tensorflow as tf

    return tf.io.gfile.exists(path)


def read(
    path: str, keys: Mapping[str, type] | None = None, advice: str = ""
) -> dict:
    """Reads a JSON object (`.json`), or a mapping in a YAML file.

    `keys` are required, name -> type of the value; `"task.model"` is nested.
    `advice` is a sentence for errors, which says how to get a good file.

    Raises a `UserError` if the file cannot be read, is empty or damaged, or a
    key is missing or has a value of another type.
    """
    kind, keys = _kind(path), keys or {}

    def fail(problem: str):
        raise _error(path, problem, keys, advice) from None

    try:
        content = _read_bytes(path)
    except OSError as error:
        fail(f"it cannot be read ({error.strerror or error})")
    if not content.strip():
        fail("the file is empty")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        fail(f"it is not text: byte {error.start} is not UTF-8")
    try:
        value = _parse(kind, text)
    except ValueError as error:
        fail(f"it is not {kind} ({error})")
    if not isinstance(value, dict):
        name = _NAMES.get(type(value), type(value).__name__)
        fail(f"it holds a {name}, not an object")
    check(path, value, keys, advice)
    return value


def check(
    path: str, value: dict, keys: Mapping[str, type], advice: str = ""
) -> None:
    """Raises a `UserError` if a key is missing or has another type."""
    for key, expected in keys.items():
        found = value
        for name in key.split("."):
            if not isinstance(found, dict) or name not in found:
                raise _error(path, f"{key!r} is missing", keys, advice)
            found = found[name]
        # True and False are no numbers.
        if not isinstance(found, expected) or isinstance(found, bool):
            kinds = typing.get_args(expected) or (expected,)
            names = " or ".join(_NAMES[kind] for kind in kinds)
            problem = f"{key!r} is {show(found)}, not {names}"
            raise _error(path, problem, keys, advice)


def check_tokenizer(path: str, value: Mapping, advice: str = "") -> None:
    """Raises a `UserError` if `value["tokenizer"]` has an unknown setting."""
    from etcmodel.feature_utils.text import tokenizer_settings

    try:
        tokenizer_settings.TokenizerSettings.from_dict(
            value.get("tokenizer") or {}
        )
    except ValueError as error:
        raise UserError(
            f"{path}: 'tokenizer': {error}. {advice}".rstrip()
        ) from None


def _kind(path: str) -> str:
    return "JSON" if ".json" in os.path.basename(path) else "YAML"


def _error(path: str, problem: str, keys, advice: str) -> UserError:
    expected = f"a {_kind(path)} object"
    if keys:
        expected += f" with {', '.join(keys)}"
    return UserError(
        f"{path}: {problem}; expected {expected}. {advice}".rstrip()
    )


def _read_bytes(path: str) -> bytes:
    if not files.is_remote(path):
        with open(path, "rb") as stream:
            return stream.read()
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(path, "rb") as stream:
            return stream.read()
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def _parse(kind: str, text: str):
    """Parses a text; raises a ValueError with a message of one line."""
    if kind == "JSON":
        return json.loads(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = (
            f": line {mark.line + 1} column {mark.column + 1}" if mark else ""
        )
        problem = getattr(error, "problem", None) or "not allowed characters"
        raise ValueError(f"{problem}{where}") from None
