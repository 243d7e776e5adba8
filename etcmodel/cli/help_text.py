"""Texts of `--help`, `--helpfull` and `--version`."""

import importlib.metadata
import platform
import re
import textwrap
from collections.abc import Sequence
from types import ModuleType

from absl import flags

import etcmodel
from etcmodel.cli import flags as flags_lib
from etcmodel.pipeline import options

_WIDTH = 79
# Column at which the texts of flags begin.
_COLUMN = 24
_PROGRAM = "python -m etcmodel"

_GENERAL = """\
etcmodel: reads, classifies and answers questions about long documents.

Usage: python -m etcmodel COMMAND [--flag=value ...]
COMMAND --help explains a command, --helpfull has all its flags; --debug shows
the traceback of an error; --version prints the versions.
Commands:
{commands}

Example:
  python -m etcmodel preprocess --task=classify --input=train.jsonl \\
      --vocab_file=vocab.txt --output_dir=data
  python -m etcmodel train --experiment=etc/classify --model_dir=runs/1 \\
      --train_data=data
  python -m etcmodel export --model_dir=runs/1 --output_dir=model
  python -m etcmodel predict --saved_model=model --input=x.txt --output=x.jsonl
"""


def version() -> str:
    """Returns the versions of the package, of TensorFlow and of Python."""
    # Packages for some devices have another name, such as tensorflow-cpu.
    names = importlib.metadata.packages_distributions()["tensorflow"]
    tensorflow = importlib.metadata.version(names[0])
    return (
        f"etcmodel {etcmodel.__version__} (TensorFlow {tensorflow}, Python "
        f"{platform.python_version()})"
    )


def general_help(summaries: dict[str, str]) -> str:
    """Returns the output of `--help` without a command.

    Args:
        summaries: command -> summary.
    """
    lines = [f"  {name:12}{text}" for name, text in summaries.items()]
    return _GENERAL.format(commands="\n".join(lines))


def short_help(
    name: str,
    summary: str,
    module: ModuleType,
    flag_values: flags.FlagValues,
) -> str:
    """Returns the output of `COMMAND --help`, which fits a screen.

    Besides the required flags, describes the module's `COMMON_FLAGS`, by
    default all.

    Args:
        name: the command.
        summary: its summary.
        module: its module.
        flag_values: all flags of the command.
    """
    required = options.required(module.Options)
    common = getattr(module, "COMMON_FLAGS", flag_values)
    others = [x for x in flag_values if x in common and x not in required]
    lines = [f"{_PROGRAM} {name}: {summary}", "", *_example(module), ""]
    for flag_name in (*required, *others):
        flag = flag_values[flag_name]
        text = flags_lib.as_flags(flag.help, flag_values)
        # The first sentence, without "by default ...".
        text = re.split(r"\.( |$)|; by default", text)[0]
        text += " (required)" if flag_name in required else _default(flag)
        lines += _in_columns(_shown(flag), text)
    task = " --task=TASK" if hasattr(module, "TASK_FLAGS") else ""
    lines += ["", f"All about it: {_PROGRAM} {name}{task} --helpfull"]
    return "\n".join(lines) + "\n"


def full_help(
    name: str,
    summary: str,
    module: ModuleType,
    flag_values: flags.FlagValues,
) -> str:
    """Returns the output of `COMMAND --helpfull`; see `short_help`."""
    parts = [f"{_PROGRAM} {name}: {summary}", ""]
    parts.append(textwrap.dedent(module.DESCRIPTION).strip())
    parts += ["", *_example(module)]
    required = options.required(module.Options)
    optional = [flag for flag in flag_values if flag not in required]
    for title, names in [("Required:", required), ("Optional:", optional)]:
        if names:
            parts += ["", title, ""]
        for flag_name in names:
            flag = flag_values[flag_name]
            text = flags_lib.as_flags(flag.help, flag_values)
            parts += [f"  {_shown(flag)}{_default(flag)}", *_wrapped(text, 6)]
    return "\n".join(parts) + "\n"


def _example(module: ModuleType) -> list[str]:
    """Returns the lines of a command's example."""
    text = textwrap.dedent(module.EXAMPLE).strip()
    return ["Example:", "", *textwrap.indent(text, "  ").splitlines()]


def _shown(flag: flags.Flag) -> str:
    """Returns a flag as it is typed: `--input`, or `--[no]verbose`."""
    return f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"


def _default(flag: flags.Flag) -> str:
    """Returns a note about a flag's default; "" if it has none."""
    if flag.default is None or flag.default is False or flag.default == "":
        return ""
    return f" (default: {flag.default})"


def _in_columns(head: str, text: str) -> Sequence[str]:
    """Returns a flag and its text beside it, or below it if it is long."""
    lines = _wrapped(text, _COLUMN)
    head = f"  {head}"
    if len(head) + 2 > _COLUMN:
        return [head, *lines]
    return [f"{head:{_COLUMN}}{lines[0].strip()}", *lines[1:]]


def _wrapped(text: str, indent: int) -> list[str]:
    """Breaks a text into indented lines."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
