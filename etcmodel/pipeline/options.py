"""Dataclasses of command options, and checks of their values.

Messages and docstrings show an option in backticks: `seed`, `seed=1`. The
command line shows it as its flag, `--seed=1`.
"""

import dataclasses
import typing
from typing import Any

import docstring_parser

from etcmodel.errors import UserError
from etcmodel.errors import show


def option(default: Any = dataclasses.MISSING, **metadata) -> Any:
    """Returns a dataclass field for an option.

    Args:
        default: the default value; without one, the option is required.
        **metadata: rules for the option:

            *   `min_value`, `max_value`: bounds of a number.
            *   `one_of`: the allowed strings.
            *   `several`: whether the flag may be repeated.
            *   `path`: the requirement on a path, see `etcmodel.engine.paths`.
            *   `is_flag`: whether the option has a flag; by default, it has.
            *   `is_noted`: see `TaskSpec.reading`.
            *   `is_optional`: in a preprocessing configuration, whether to
                leave out an empty value, so that older data without the option
                still match.
    """
    return dataclasses.field(default=default, metadata=metadata)


def required(options: type) -> list[str]:
    """Returns the names of the required options of a dataclass."""
    return [
        field.name.rstrip("_")
        for field in dataclasses.fields(options)
        if field.default is field.default_factory is dataclasses.MISSING
    ]


def paths(options: type) -> dict[str, str]:
    """Returns option -> requirement on its path, for options that are paths."""
    return {
        field.name.rstrip("_"): field.metadata["path"]
        for field in dataclasses.fields(options)
        if "path" in field.metadata
    }


def flag_fields(options: type) -> list[dataclasses.Field]:
    """Returns the fields of a dataclass that have command-line flags."""
    return [
        field
        for field in dataclasses.fields(options)
        if field.metadata.get("is_flag", True)
    ]


def type_of(options: type, name: str) -> type:
    """Returns an option's type; `int` for `int | None` and for `list[int]`."""
    hint = typing.get_type_hints(options)[name]
    while arguments := typing.get_args(hint):
        hint = arguments[0]
    return hint


def descriptions(options: type) -> dict[str, str]:
    """Returns option -> description, from the docstrings of class and bases."""
    return {
        parameter.arg_name: " ".join(parameter.description.split())
        for base in reversed(options.__mro__)
        for parameter in docstring_parser.parse(base.__doc__ or "").params
    }


# Type of an option -> allowed types of its values, and their description.
_TYPES = {
    bool: (bool, "True or False"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a string"),
}


def check(options: Any) -> None:
    """Checks the type, bounds and choices of every option's value.

    Raises:
        UserError: a value is invalid; the message names the option.
    """
    kinds = type(options)
    for field in flag_fields(kinds):
        value, rules = getattr(options, field.name), field.metadata
        if value is None and field.default is None:
            continue
        name, kind = field.name.rstrip("_"), type_of(kinds, field.name)
        values = value if rules.get("several") else [value]
        for x in values if isinstance(values, list | tuple) else [values]:
            _check_value(name, x, kind, field.default, rules)


def _check_value(name, value, kind, default, rules) -> None:
    """Raises a `UserError` if a value of an option is invalid."""
    accepted, expected = _TYPES.get(kind, (object, ""))
    is_bool = isinstance(value, bool)
    if not isinstance(value, accepted) or (is_bool and kind is not bool):
        raise UserError(f"`{name}` is {show(value)}, but must be {expected}.")
    if "one_of" in rules and value not in rules["one_of"]:
        choices = ", ".join(map(str, rules["one_of"]))
        raise UserError(
            f"`{name}` is {show(value)}, but must be one of {choices}."
        )
    if kind in (int, float):
        low, high = bounds(kind, default, rules)
        if value < low or (high is not None and value > high):
            most = "" if high is None else f" and at most {high:g}"
            raise UserError(
                f"`{name}` is {value}, but must be at least {low:g}{most}."
            )


def bounds(kind: type, default: Any, rules: Any) -> tuple[float, float | None]:
    """Returns the minimum and the maximum (None: unbounded) of a number."""
    least = 0.0 if kind is float or default == 0 else 1
    return rules.get("min_value", least), rules.get("max_value")
