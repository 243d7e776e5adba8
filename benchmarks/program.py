"""Runs benchmarks: parses flags, prints JSON Lines and a table, writes files.

A benchmark has flags and columns in `data/programs.yaml`, and a function that
yields a line (a dict) per measurement.
"""

import itertools
import json
import os
import pathlib
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import yaml
from absl import app
from absl import flags

from benchmarks import measure

Line = dict[str, Any]

_TABLE = pathlib.Path(__file__).parent / "data" / "programs.yaml"
_DEFINE = {
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    list: flags.DEFINE_list,
}


class Program(NamedTuple):
    """A benchmark, with its flags, its columns and its function.

    Attributes:
        name: name of the benchmark.
        flags: name -> default, help and optionally choices; see
            `data/programs.yaml`.
        columns: field of the lines -> its format in the table.
        measure: takes the parsed flags and yields lines.
        environment: fields that override fields of `measure.environment`.
    """

    name: str
    flags: Mapping[str, Sequence]
    columns: Mapping[str, str]
    measure: Callable[[flags.FlagValues], Iterator[Line]]
    environment: Mapping[str, Any] = {}


def read_columns(text: str) -> dict[str, str]:
    """Parses columns and their formats, such as `"name seconds:.1f"`."""
    return dict(x.partition(":")[::2] for x in text.split())


def define_flags(program: Program, values: flags.FlagValues) -> None:
    """Defines a benchmark's flags and `--output`."""
    for name, (default, text, *choices) in program.flags.items():
        if choices:
            text += f" Choices: {', '.join(choices[0])}."
        if default == "several":
            flags.DEFINE_multi_string(name, [], text, flag_values=values)
        elif default is None or default == "required":
            flags.DEFINE_string(
                name,
                None,
                text,
                flag_values=values,
                required=default is not None,
            )
        else:
            _DEFINE[type(default)](name, default, text, flag_values=values)
    flags.DEFINE_string(
        "output",
        None,
        "Folder for results.jsonl and table.txt.",
        flag_values=values,
    )


def parse(program: Program, *arguments: str) -> flags.FlagValues:
    """Parses the flags of a benchmark."""
    values = flags.FlagValues()
    define_flags(program, values)
    values([program.name, *arguments])
    return values


def load(name: str, measure: Callable, **given: Any) -> Program:
    """Creates a benchmark with the flags and columns of its name.

    Args:
        name: name of the benchmark.
        measure: takes the parsed flags and yields lines.
        **given: further attributes of the `Program`.
    """
    entry = yaml.safe_load(_TABLE.read_text("utf-8"))[name]
    columns = read_columns(entry["columns"])
    return Program(name, entry["flags"], columns, measure, **given)


def combinations(
    program: Program, values: flags.FlagValues
) -> Iterator[dict[str, str]]:
    """Yields all combinations of list flags; later flags vary faster."""
    names = [x for x, (y, *_) in program.flags.items() if isinstance(y, list)]
    for chosen in itertools.product(*(values[name].value for name in names)):
        yield dict(zip(names, chosen, strict=True))


def run(program: Program, values: flags.FlagValues) -> list[Line]:
    """Runs a benchmark, prints its lines and writes the files.

    Args:
        program: the benchmark.
        values: the parsed flags.

    Returns:
        The lines, each with the benchmark's name and its environment.

    Raises:
        app.UsageError: a flag has an unknown choice.
    """
    for name, (_, _, *choices) in program.flags.items():
        chosen = values[name].value
        chosen = chosen if isinstance(chosen, list) else [chosen]
        if choices and not set(chosen) <= set(choices[0]):
            unknown = sorted(set(chosen) - set(choices[0]))
            raise app.UsageError(
                f"--{name}: unknown {unknown}. Choose from {list(choices[0])}."
            )
    if values.output:
        os.makedirs(values.output, exist_ok=True)
    environment = {
        "benchmark": program.name,
        **measure.environment(),
        **program.environment,
    }
    lines = []
    for line in program.measure(values):
        lines.append({**environment, **line})
        print(json.dumps(lines[-1]), flush=True)
        if values.output:
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            write_text(os.path.join(values.output, "results.jsonl"), text)
    table = format_table(lines, program.columns)
    print(f"\n{table}", end="")
    if values.output:
        write_text(os.path.join(values.output, "table.txt"), table)
    return lines


def main(program: Program) -> None:
    """Runs a benchmark with the flags of the command line."""

    def parsed(argv):
        if len(argv) > 1:
            raise app.UsageError(
                f"Unexpected argument {argv[1]!r}. Give flags such as "
                "--name=value."
            )
        run(program, flags.FLAGS)

    define_flags(program, flags.FLAGS)
    # `--help` shows only key flags.
    for name in (*program.flags, "output"):
        flag = flags.FLAGS[name]
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    app.run(parsed)


def write_text(path: str, text: str) -> None:
    """Writes a file atomically: it appears when it is complete."""
    unfinished = f"{path}.unfinished"
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(unfinished, path)


def format_table(lines: Sequence[Line], columns: Mapping[str, str]) -> str:
    """Formats lines as a table.

    Args:
        lines: one dict per row of the table.
        columns: field -> its format, such as `".1f"`. Values that are None or
            missing are shown as "-".

    Returns:
        The table with a header. The field `skipped`, a reason, is appended to
        its row.
    """
    table = [list(columns)]
    for line in lines:
        found = ((line.get(name), form) for name, form in columns.items())
        table.append(["-" if x is None else format(x, f) for x, f in found])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    endings = ["", *(line.get("skipped") for line in lines)]
    texts = []
    for cells, ending in zip(table, endings, strict=True):
        padded = map(str.rjust, cells, widths)
        texts.append("  ".join([*padded, ending or ""]).rstrip())
    return "\n".join(texts) + "\n"
