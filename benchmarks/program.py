"""Checks of the command line that the programs here share."""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence

from absl import app
from absl import flags


def check_no_arguments(argv: Sequence[str]) -> None:
    """Raises an error unless everything on the command line is a flag.

    Args:
        argv: what the flags leave of the arguments.

    Raises:
        app.UsageError: there are other arguments than flags.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}")


def check_choices(
    values: flags.FlagValues, choices: Mapping[str, Collection[str]]
) -> None:
    """Raises an error if a list has a value that does not exist.

    Args:
        values: the parsed flags.
        choices: name of a flag -> what may be in its list.

    Raises:
        app.UsageError: a flag names what does not exist.
    """
    for name, known in choices.items():
        unknown = set(values[name].value) - set(known)
        if unknown:
            raise app.UsageError(
                f"--{name}: unknown {sorted(unknown)}; there are {list(known)}."
            )
