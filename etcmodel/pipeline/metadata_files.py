"""Reads and writes JSON and YAML files that describe data and runs.

Errors name the file, the problem, the expected content and the remedy.
"""

import functools
import os
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from etcmodel import json_objects
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import files


class FileName(str):
    """Type of a key whose value is the name of a file in the same directory."""


# First line of the YAML files that `write` writes.
_YAML_CHECKSUM = "# Checksum of the lines below: {}"
_NAMES = {
    FileName: "the name of a file in its directory",
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    types.NoneType: "null",
}


def exists(path: str) -> bool:
    """Tells whether a file exists, on a disk or in a bucket."""
    if not files.is_remote(path):
        return os.path.exists(path)
    import tensorflow as tf

    return tf.io.gfile.exists(path)


def read(
    path: str, keys: Mapping[str, type] | None = None, advice: str = ""
) -> dict:
    """Reads a JSON object from a `.json` file, or a mapping from a YAML file.

    Args:
        path: the file, local or in a bucket.
        keys: the required keys and the types of their values. A dot enters a
            nested object: `"task.model"`.
        advice: the last sentence of every error: how to get a valid file.

    Raises:
        UserError: the file cannot be read, is empty or damaged, or a key is
            missing or has a value of another type.
    """
    keys = keys or {}
    try:
        content = _read_bytes(path)
        if not content.strip():
            raise ValueError("the file is empty")
        if _kind(path) == "JSON":
            value = json_objects.parse_note(content)
        else:
            value = json_objects.check_object(parse_yaml(content))
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise _error(path, problem, keys, advice) from None
    except ValueError as error:
        raise _error(path, str(error), keys, advice) from None
    check(path, value, keys, advice)
    return value


def write(path: str, content: Mapping[str, Any]) -> None:
    """Writes a JSON or YAML file with a checksum, for `read`."""
    import tensorflow as tf

    if _kind(path) == "JSON":
        text = json_objects.dump_note(content)
    else:
        import yaml

        text = yaml.safe_dump(dict(content))
        checksum = json_objects.digest(text.encode("utf-8"))
        text = f"{_YAML_CHECKSUM.format(checksum)}\n{text}"
    with tf.io.gfile.GFile(path, "w") as stream:
        stream.write(text)


def check(
    path: str, value: dict, keys: Mapping[str, type], advice: str = ""
) -> None:
    """Raises a `UserError` if a key is missing or has another type.

    Arguments are as in `read`; `value` is the content of the file.
    """
    for key, expected in keys.items():
        found = value
        for name in key.split("."):
            if not isinstance(found, dict) or name not in found:
                raise _error(path, f"{key!r} is missing", keys, advice)
            found = found[name]
        # In Python, bool is a subclass of int.
        is_valid = isinstance(found, expected) and not isinstance(found, bool)
        if expected is FileName:
            is_valid = json_objects.is_file_name(found)
        if not is_valid:
            kinds = typing.get_args(expected) or (expected,)
            names = " or ".join(_NAMES[kind] for kind in kinds)
            problem = f"{key!r} is {show(found)}, not {names}"
            raise _error(path, problem, keys, advice)


def check_tokenizer(path: str, value: Mapping, advice: str = "") -> None:
    """Raises a `UserError` if `value["tokenizer"]` has an invalid setting."""
    from etcmodel.feature_utils.text import tokenizer_settings

    try:
        tokenizer_settings.TokenizerSettings.from_dict(
            value.get("tokenizer") or {}
        )
    except ValueError as error:
        raise UserError(
            f"{path}: 'tokenizer': {error} {advice}".rstrip()
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


def parse_yaml(content: str | bytes) -> Any:
    """Parses YAML without Python objects; checks its checksum if it has one.

    Accepts tuples and numbers such as 1e-4, which the Model Garden writes.

    Raises:
        ValueError: the content is not YAML, or the checksum does not match.
    """
    import yaml

    if isinstance(content, bytes):
        content = json_objects.decode(content)
    head, _, body = content.partition("\n")
    noted = re.fullmatch(_YAML_CHECKSUM.format("(sha256:.*)"), head)
    if noted and json_objects.digest(body.encode("utf-8")) != noted[1]:
        raise ValueError(json_objects.MISMATCH.format("first line"))
    try:
        return yaml.load(content, Loader=_yaml_loader())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = (
            f": line {mark.line + 1} column {mark.column + 1}" if mark else ""
        )
        problem = getattr(error, "problem", None) or "invalid characters"
        raise ValueError(f"it is not YAML ({problem}{where})") from None
    except (ValueError, RecursionError) as error:
        # A value that YAML cannot convert, such as the date 2020-99-99.
        is_deep = isinstance(error, RecursionError)
        problem = "it is nested too deeply" if is_deep else error
        raise ValueError(f"it is not YAML ({problem})") from None


@functools.cache
def _yaml_loader() -> type:
    """Returns a safe YAML loader that also reads tuples."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads the tuples and numbers that the Model Garden writes."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
    Loader.add_constructor(
        "tag:yaml.org,2002:python/tuple",
        lambda loader, node: tuple(loader.construct_sequence(node, deep=True)),
    )
    return Loader
