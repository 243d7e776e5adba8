"""Defines command-line flags from the fields of dataclasses."""

import dataclasses
import typing
from typing import Any

import docstring_parser
from absl import flags


def option(default: Any = dataclasses.MISSING, **metadata) -> Any:
    """Makes a field of a dataclass of flags; required without a default.

    Metadata are `min_value` and `max_value` of a number; `one_of`, the allowed
    strings; `several`, whether the flag may be repeated; `path`, the kind of a
    path (see `etcmodel.cli.paths`). With `is_flag` False the field is no flag.
    """
    return dataclasses.field(default=default, metadata=metadata)


def required(options: type) -> list[str]:
    """Returns the names of the required flags of a dataclass."""
    return [
        field.name.rstrip("_")
        for field in dataclasses.fields(options)
        if field.default is dataclasses.MISSING
    ]


def paths(options: type) -> dict[str, str]:
    """Maps the flags that are paths to the kind of each path."""
    return {
        field.name.rstrip("_"): field.metadata["path"]
        for field in dataclasses.fields(options)
        if "path" in field.metadata
    }


def flag_fields(options: type) -> list[dataclasses.Field]:
    """Returns the fields of a dataclass that are flags."""
    return [
        field
        for field in dataclasses.fields(options)
        if field.metadata.get("is_flag", True)
    ]


def define(flag_values: flags.FlagValues, options: type) -> None:
    """Defines a flag for each field of a dataclass; `from_` is `--from`.

    Help texts come from the docstrings of the class and its bases.
    """
    texts = {
        parameter.arg_name: parameter.description
        for base in reversed(options.__mro__)
        for parameter in docstring_parser.parse(base.__doc__ or "").params
    }
    types = typing.get_type_hints(options)
    for field in flag_fields(options):
        # The type of `int | None` counts as int.
        kind = (*typing.get_args(types[field.name]), types[field.name])[0]
        text = " ".join(texts[field.name].split())
        is_given = field.default is not dataclasses.MISSING
        arguments = dict(
            name=field.name.rstrip("_"),
            default=field.default if is_given else None,
            help=f"{text[0].upper()}{text[1:]}",
            flag_values=flag_values,
        )
        bounds = field.metadata
        if kind is bool:
            flags.DEFINE_bool(**arguments)
        elif kind is float:
            flags.DEFINE_float(
                **arguments,
                lower_bound=bounds.get("min_value", 0.0),
                upper_bound=bounds.get("max_value"),
            )
        elif kind is int:
            default_min = 0 if field.default == 0 else 1
            flags.DEFINE_integer(
                **arguments, lower_bound=bounds.get("min_value", default_min)
            )
        elif "one_of" in bounds:
            flags.DEFINE_enum(**arguments, enum_values=bounds["one_of"])
        elif "several" in bounds:
            flags.DEFINE_multi_string(**arguments)
        else:
            flags.DEFINE_string(**arguments)
