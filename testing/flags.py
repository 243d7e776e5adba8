"""Parses flags as the command line does, for tests of options."""

from typing import Any

from absl import flags

from etcmodel.cli import flags as flags_lib


def parse_options(kinds: type, *arguments: str) -> Any:
    """Parses flags into an instance of an options dataclass."""
    flag_values = flags.FlagValues()
    flags_lib.define(flag_values, kinds)
    flag_values(["program", *arguments])
    return flags_lib.make_options(flag_values, kinds)
