"""Reads and checks parameters that override those of an experiment.

The Model Garden reads them, too, but its errors neither locate a mistake nor
say how to fix it.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from official.modeling.hyperparams import base_config
from official.modeling.hyperparams import oneof
from official.modeling.hyperparams import params_dict

from etcmodel.engine import shortcuts
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.pipeline import metadata_files

# Type of a parameter -> accepted Python types, and their name in messages.
_TYPES = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a text"),
    types.NoneType: (types.NoneType, "null"),
}
_MAX_LISTED = 40


def read(text: Any, source: str) -> dict[str, Any]:
    """Reads parameters from `a.b=1,c.d=x`, YAML, JSON, or a file with them.

    Args:
        text: the parameters, the path of a file with them, or a dict, nested or
            with dots in its names.
        source: name of the option, for error messages.

    Returns:
        Nested dicts: `{"a": {"b": 1}, "c": {"d": "x"}}`.
    """
    if isinstance(text, Mapping):
        return shortcuts.nested(text)
    values = _load(text, source)
    if isinstance(values, dict):
        return values
    if not tf.io.gfile.exists(text):
        raise UserError(
            f"{source}={show(text)} holds no parameters. Give a.b=1,c.d=x, "
            "YAML, JSON, or a file with one of these."
        )
    return read_file(text, f"{source}={text}")


def read_file(path: str, source: str) -> dict[str, Any]:
    """Reads the parameters of a file; see `read`."""
    try:
        with tf.io.gfile.GFile(path) as stream:
            values = _load(stream.read(), source)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise UserError(f"{source}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise UserError(
            f"{source}: expected a file with parameters, got {show(values)}. "
            "Give a YAML or JSON file, such as the output of train with "
            "`print_config`."
        )
    return values


def _load(text, source):
    """Parses a text; returns a dict if the text holds parameters."""
    try:
        text = params_dict.nested_csv_str_to_json_str(text)
    except ValueError:
        pass  # Not `a.b=1`, so it is parsed as YAML or JSON.
    try:
        return metadata_files.parse_yaml(text)
    except ValueError as error:
        raise UserError(
            f"{source}: {error}. Give a.b=1,c.d=x, YAML, JSON, or a file with "
            "one of these."
        ) from error


def check(
    values: dict[str, Any],
    params: base_config.Config,
    source: str,
    place: str = "",
) -> None:
    """Checks that parameters exist and that their values have the right type.

    Converts ints to floats for parameters of type float.

    Args:
        values: result of `read`; changed in place.
        params: the configuration that the values override.
        source: name of the option, for error messages.
        place: path of `params` in the whole configuration, such as "task.".
    """
    names = _names(params)
    hints = typing.get_type_hints(type(params))
    for name, value in values.items():
        if not isinstance(name, str):
            raise UserError(
                f"{source}: {place}{name} is not the name of a parameter. Use "
                "quotes: YAML reads on, yes and 1 as booleans and numbers."
            )
        if name not in names:
            raise _unknown(f"{place}{name}", name, names, source)
        default = getattr(params, name)
        if isinstance(default, base_config.Config):
            if not isinstance(value, dict):
                raise UserError(
                    f"{source}: {place}{name} is {show(value)}, but must hold "
                    f"parameters: {_listed(_names(default))}."
                )
            check(value, default, source, f"{place}{name}.")
        elif name == "type" and isinstance(params, oneof.OneOfConfig):
            if value is not None and value not in names:
                choices = [x for x in names if x != "type"]
                raise UserError(
                    f"{source}: {place}type is {show(value)}, but must be one "
                    f"of {_listed(choices)}."
                )
        else:
            hint = hints.get(name)
            _check_type(value, default, hint, place + name, source)
            values[name] = _with_floats(value, hint)


def _names(params) -> list[str]:
    """Returns the names of a configuration's parameters."""
    return [field.name for field in dataclasses.fields(params)]


def _check_type(value, default, hint, name, source):
    """Checks the type of a value if `_TYPES` has the parameter's type."""
    kinds = typing.get_args(hint) or (hint,)
    if not {*kinds} <= {*_TYPES} or type(value) is type(default):
        return
    # In Python, a bool is an int.
    fits = (
        isinstance(value, _TYPES[kind][0])
        and (kind is bool or not isinstance(value, bool))
        for kind in kinds
    )
    if not any(fits):
        expected = " or ".join(_TYPES[kind][1] for kind in kinds)
        raise UserError(
            f"{source}: {name} is {show(value)}, but must be {expected}."
        )


def _with_floats(value, hint):
    """Converts ints in a value to floats if its type hint has float, not int.

    TensorFlow's schedules reject an int as the learning rate.
    """
    kinds = _plain_types(hint)
    if isinstance(value, list | tuple):
        return type(value)(_with_floats(x, hint) for x in value)
    if type(value) is int and float in kinds and int not in kinds:
        return float(value)
    return value


def _plain_types(hint) -> set:
    """Flattens a type hint: `List[float] | None` becomes {float, NoneType}."""
    parts = typing.get_args(hint)
    return set().union(*map(_plain_types, parts)) if parts else {hint}


def _unknown(path, name, names, source) -> UserError:
    """Returns the error for a parameter that does not exist."""
    close = difflib.get_close_matches(name, names)
    close = [path.removesuffix(name) + x for x in close]
    advice = f"Choose one of: {_listed(names)}."
    if close:
        advice = f"Did you mean {' or '.join(close)}?"
    return UserError(f"{source}: there is no parameter {path}. {advice}")


def _listed(names) -> str:
    more = ", ..." if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
