"""Checks the paths that flags name, before a command loads anything.

A field of a dataclass of flags says with `option(..., path=KIND)` what its
path must be; `check` looks at all of them. Inputs in a bucket are checked when
they are read: that needs TensorFlow.
"""

import glob
import os
from collections.abc import Callable

from absl import flags

from etcmodel.cli import shortcut_flags
from etcmodel.datasets import files
from etcmodel.errors import UserError
from etcmodel.errors import download_advice
from etcmodel.pipeline import atomic
from etcmodel.pipeline import options
from etcmodel.serving import exported
from etcmodel.training import runs

_PICTURES = (".png", ".svg", ".pdf")


def check(flag_values: flags.FlagValues, flags_class: type) -> None:
    """Checks all paths of a command.

    Args:
        flag_values: the parsed flags.
        flags_class: the command's dataclass of flags.
    """
    overwrite = bool(shortcut_flags.given(flag_values, "overwrite"))
    for name, kind in options.paths(flags_class).items():
        value = flag_values[name].value
        for path in value if isinstance(value, list) else [value]:
            if not path:
                continue
            if kind in _OUTPUTS:
                _OUTPUTS[kind](f"--{name}", path, overwrite)
            elif kind == "records" or not files.is_remote(path):
                _INPUTS[kind](f"--{name}", path)


def _records(flag: str, value: str) -> None:
    for path in map(str.strip, value.split(",")):
        if path and not files.is_remote(path) and not glob.glob(path):
            raise UserError(
                f"{flag}={path}: no TFRecord files are there. Give the "
                "--output_dir of `preprocess`"
                + (", or a run." if flag == "--like" else ".")
            )


def _file(flag: str, path: str) -> None:
    if os.path.isdir(path):
        raise UserError(f"{flag}={path} is a directory. Name a file.")
    if not os.path.exists(path):
        raise UserError(
            f"{flag}={path}: there is no such file. Check the path."
        )


def _weights(flag: str, path: str, advice: str = "Check the path.") -> None:
    """Checks that a checkpoint, a pattern or a directory exists."""
    places = (path, f"{path}.index")
    if not any(map(os.path.exists, places)) and not glob.glob(path):
        raise UserError(
            f"{flag}={path}: there is no such directory or checkpoint. {advice}"
        )


def _source(flag: str, path: str) -> None:
    _weights(flag, path, download_advice(path))


def _checkpoint(flag: str, choice: str) -> None:
    if choice not in ("best", "last"):
        _weights(flag, choice)


def _any_run(flag: str, path: str) -> None:
    if os.path.isfile(path):
        raise UserError(f"{flag}={path} is a file. Name a directory.")


# Kind of an input -> its check.
_INPUTS: dict[str, Callable[[str, str], object]] = {
    "data": lambda flag, value: files.find(value),
    "records": _records,
    "file": _file,
    "weights": _weights,
    "source": _source,
    "checkpoint": _checkpoint,
    "run": lambda flag, path: runs.read(path),
    "any_run": _any_run,
    "saved_model": lambda flag, path: exported.read_metadata(path),
}


def _new_run(flag: str, path: str, overwrite: bool) -> None:
    if files.is_remote(path):
        return
    if not os.path.isdir(path):
        atomic.check_directory(path, overwrite=True)
    # Nothing is written beside a run that is resumed.
    elif not os.access(path, os.W_OK):
        raise UserError(
            f"{flag}={path}: you may not write into it. Choose another "
            "directory."
        )


def _picture(flag: str, path: str, overwrite: bool) -> None:
    if os.path.splitext(path)[1].lower() not in ("", *_PICTURES):
        raise UserError(
            f"{flag}={path}: pictures end in {', '.join(_PICTURES)}."
        )
    atomic.check_file(path, overwrite=True)


# Kind of an output -> its check.
_OUTPUTS: dict[str, Callable[[str, str, bool], None]] = {
    "new_run": _new_run,
    "new_directory": lambda flag, path, overwrite: atomic.check_directory(
        path, overwrite
    ),
    "new_directory_or_bucket": lambda flag, path, overwrite: (
        atomic.check_directory(path, overwrite, in_bucket=True)
    ),
    "new_file": lambda flag, path, overwrite: atomic.check_file(
        path, overwrite
    ),
    "replaced_file": lambda flag, path, overwrite: atomic.check_file(
        path, overwrite=True
    ),
    "picture": _picture,
}
