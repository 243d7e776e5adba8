"""Defines absl flags for dataclasses of options, and reads them.

absl has `--noflag`, repeated flags, bounds, error messages, and sets of flags
that several dataclasses can share. simple-parsing, tyro, jsonargparse and
draccus lack some of these, and take 0.4 s to import.
"""

import re
from typing import Any

from absl import flags

from etcmodel.pipeline import options

_NAMED = re.compile(r"`([a-z]\w*?)_?(=[^`\n]*)?`")


def define(flag_values: flags.FlagValues, kinds: type) -> None:
    """Defines a flag for each field of a dataclass.

    The help texts come from the docstrings of the class and its base classes.
    A field `from_` becomes the flag `--from`.
    """
    texts = options.descriptions(kinds)
    for field in options.flag_fields(kinds):
        kind, rules = options.type_of(kinds, field.name), field.metadata
        text = texts[field.name]
        is_needed = field.name.rstrip("_") in options.required(kinds)
        arguments = dict(
            name=field.name.rstrip("_"),
            default=None if is_needed else field.default,
            help=f"{text[0].upper()}{text[1:]}",
            flag_values=flag_values,
        )
        if kind is bool:
            flags.DEFINE_bool(**arguments)
        elif kind in (int, float):
            low, high = options.bounds(kind, field.default, rules)
            is_float = kind is float
            number = flags.DEFINE_float if is_float else flags.DEFINE_integer
            number(**arguments, lower_bound=low, upper_bound=high)
        elif "one_of" in rules:
            flags.DEFINE_enum(**arguments, enum_values=rules["one_of"])
        elif "several" in rules:
            flags.DEFINE_multi_string(**arguments)
            # Replaces a sentence that absl adds.
            flag = flag_values[arguments["name"]]
            flag.help = f"{arguments['help']} Repeat the flag for several."
        else:
            flags.DEFINE_string(**arguments)


def make_options(
    flag_values: flags.FlagValues, kinds: type, task_kinds: type | None = None
) -> Any:
    """Creates the options of a command from parsed flags.

    Args:
        flag_values: the parsed flags.
        kinds: dataclass of the command's options.
        task_kinds: dataclass of the task's options. Those that are set become
            the command's `task_options`.
    """
    values = {
        field.name: flag_values[field.name.rstrip("_")].value
        for field in options.flag_fields(kinds)
    }
    if task_kinds is not None:
        values["task_options"] = {
            field.name: flag_values[field.name].value
            for field in options.flag_fields(task_kinds)
            if flag_values[field.name].present
        }
    return kinds(**values)


def as_flags(text: str, names: Any) -> str:
    """Converts options in a text to flags: "`seed=1`" becomes "--seed=1".

    Args:
        text: a message or help text.
        names: names of flags; other words in backticks are not changed.
    """

    def show(match):
        name, value = match[1], match[2] or ""
        return f"--{name}{value}" if name in names else match[0]

    return _NAMED.sub(show, text)
