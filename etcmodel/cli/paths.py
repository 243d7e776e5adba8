"""Checks the paths that flags name, before a command loads anything.

A field of a dataclass of flags says with `option(..., path=KIND)` what its
path must be; `check` looks at all of them. Paths in a bucket are checked when
they are read: that needs TensorFlow.
"""

import glob
import os
from collections.abc import Callable

from absl import flags

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

    Raises:
        UserError: an input does not exist, or an output exists and is not to
            be replaced, or cannot be written.
    """
    overwrite = "overwrite" in flag_values and flag_values["overwrite"].value
    for name, kind in options.paths(flags_class).items():
        value = flag_values[name].value
        for path in value if isinstance(value, list) else [value]:
            if path:
                _KINDS[kind](f"--{name}", path, overwrite)


def _is_here(path: str) -> bool:
    """Whether a path, checkpoint or pattern names something on this disk."""
    return any(map(os.path.exists, (path, f"{path}.index"))) or bool(
        glob.glob(path)
    )


def _data(flag, value, overwrite):
    """Data files, or patterns."""
    if not any(map(files.is_remote, value.split(","))):
        files.find(value)


def _records(flag, value, overwrite):
    """Directories, files or patterns of TFRecords."""
    for path in map(str.strip, value.split(",")):
        if path and not files.is_remote(path) and not glob.glob(path):
            raise UserError(
                f"{flag}={path}: no TFRecord files are there. Give the "
                "--output_dir of `preprocess`."
            )


def _file(flag, path, overwrite):
    """A file."""
    if files.is_remote(path):
        return
    if os.path.isdir(path):
        raise UserError(f"{flag}={path} is a directory. Name a file.")
    if not os.path.exists(path):
        raise UserError(
            f"{flag}={path}: there is no such file. Check the path."
        )


def _weights(flag, path, overwrite, advice="Check the path."):
    """A checkpoint, or the directory of one."""
    if not files.is_remote(path) and not _is_here(path):
        raise UserError(
            f"{flag}={path}: there is no such directory or checkpoint. {advice}"
        )


def _source(flag, path, overwrite):
    """The weights of another project's model."""
    _weights(flag, path, overwrite, download_advice(path))


def _checkpoint(flag, choice, overwrite):
    """A checkpoint of a run, by name or path."""
    if choice not in ("best", "last"):
        _weights(flag, choice, overwrite)


def _run(flag, path, overwrite):
    """The directory of a run."""
    if not files.is_remote(path):
        runs.read(path)


def _saved_model(flag, path, overwrite):
    """A SavedModel of `export`."""
    if not files.is_remote(path):
        exported.read_metadata(path)


def _new_run(flag, path, overwrite):
    """The directory of a run, which may exist, to resume it."""
    if files.is_remote(path):
        return
    if not os.path.isdir(path):
        atomic.check_directory(path, overwrite=True)
    # Nothing is written beside it.
    elif not os.access(path, os.W_OK):
        raise UserError(
            f"{flag}={path}: you may not write into it. Choose another "
            "directory."
        )


def _any_run(flag, path, overwrite):
    """A directory that may lack the files of a run."""
    if os.path.isfile(path):
        raise UserError(f"{flag}={path} is a file. Name a directory.")


def _new_directory(flag, path, overwrite):
    """A directory to make."""
    atomic.check_directory(path, overwrite)


def _new_file(flag, path, overwrite):
    """A file to write."""
    atomic.check_file(path, overwrite)


def _replaced_file(flag, path, overwrite):
    """A file to write, whether it exists or not."""
    atomic.check_file(path, overwrite=True)


def _picture(flag, path, overwrite):
    """A picture to write, whether it exists or not."""
    if os.path.splitext(path)[1].lower() not in ("", *_PICTURES):
        raise UserError(
            f"{flag}={path}: pictures end in {', '.join(_PICTURES)}."
        )
    atomic.check_file(path, overwrite=True)


_KINDS: dict[str, Callable[[str, str, bool], None]] = {
    function.__name__.removeprefix("_"): function
    for function in (
        _data,
        _records,
        _file,
        _weights,
        _source,
        _checkpoint,
        _run,
        _saved_model,
        _new_run,
        _any_run,
        _new_directory,
        _new_file,
        _replaced_file,
        _picture,
    )
}
