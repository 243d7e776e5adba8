"""Checks the paths in options before TensorFlow is loaded.

A field of an options dataclass declares the kind of its path with
`option(..., path=KIND)`; `check` checks all such fields. Inputs in a bucket are
checked when they are read, because that needs TensorFlow.
"""

import functools
import glob
import os
import re
from collections.abc import Callable
from typing import Any

from etcmodel import json_objects
from etcmodel.errors import UserError
from etcmodel.errors import download_advice
from etcmodel.pipeline import atomic
from etcmodel.pipeline import options as options_lib
from etcmodel.pipeline import swaps
from etcmodel.readers import files
from etcmodel.serving import exported
from etcmodel.training import overlaps
from etcmodel.training import runs

# Bytes that identify a picture, and the size of the start that must contain
# them.
_PICTURE_STARTS, _MAX_START = (b"\x89PNG", b"<svg", b"<?xml", b"%PDF"), 1000
_PAGE_START = b"<!DOCTYPE html"
# Matches a name or pattern of TFRecord files, but not their directory.
_RECORDS = re.compile(r"[*?\[]|\.tfrecord")
_CHOICES = ("best", "last")
_PICTURES = (".png", ".svg", ".pdf")


def check(options: Any) -> None:
    """Checks all paths of an options dataclass.

    Also rejects outputs that overlap with inputs or with other outputs.
    """
    overwrite = bool(getattr(options, "overwrite", False))
    outputs, inputs = [], []
    for name, kind in options_lib.paths(type(options)).items():
        field = "from_" if name == "from" else name
        value = getattr(options, field)
        for path in value if isinstance(value, list) else [value]:
            # `input` may hold rows, which have no path.
            if not path or not isinstance(path, str | os.PathLike):
                continue
            path = os.fspath(path)
            if not files.is_remote(path) and not os.path.lexists(path):
                # A killed process may have moved the old directory away.
                swaps.recover(os.path.realpath(path))
            if kind in _OUTPUTS:
                _OUTPUTS[kind](name, path, overwrite)
                outputs.append(_output(name, path, kind))
            else:
                if kind == "records" or not files.is_remote(path):
                    _INPUTS[kind](name, path)
                inputs += _inputs(name, path, kind)
    overlaps.check(outputs, inputs)


def check_params(params, name: str, path: str, kind: str) -> None:
    """Checks that an output does not overlap with the inputs of a run."""
    task = params.task
    inputs = [
        place
        for parameter, data in (
            ("task.train_data.input_path", task.train_data),
            ("task.validation_data.input_path", task.validation_data),
        )
        for read in (
            [data.input_path]
            if isinstance(data.input_path, str)
            else data.input_path or []
        )
        for place in _inputs(parameter, read, "records")
    ]
    if task.init_checkpoint:
        inputs += _inputs(
            "task.init_checkpoint", task.init_checkpoint, "weights"
        )
    overlaps.check([_output(name, path, kind)], inputs)


def _output(name: str, path: str, kind: str) -> overlaps.Place:
    return overlaps.Place(name, path, is_kept=kind == "new_run")


def _inputs(name: str, value: str, kind: str) -> list[overlaps.Place]:
    """Returns the files and directories that an option's value refers to."""
    if kind == "checkpoint" and value in _CHOICES:
        return []
    parts = [value]
    if kind in ("data", "records"):
        parts = [x.strip() for x in files.split_paths(value)]
    found = []
    for path in filter(None, parts):
        matches = [path]
        if not files.is_remote(path) and not os.path.exists(path):
            # The path is a pattern, or the prefix of a checkpoint's files.
            is_prefix = kind in ("weights", "checkpoint", "source")
            pattern = f"{glob.escape(path)}*" if is_prefix else path
            matches = glob.glob(pattern)
        # Metadata and vocabulary are in the directory of the records.
        if (
            kind == "records"
            and _RECORDS.search(os.path.basename(path))
            and not os.path.isdir(path)
        ):
            matches.append(os.path.dirname(path))
        found += [
            overlaps.Place(
                name,
                match,
                value,
                is_kept=kind == "file",
                is_open=kind in ("run", "any_run"),
            )
            for match in matches
        ]
    return found


def _records(name: str, value: str) -> None:
    for path in map(str.strip, files.split_paths(value)):
        is_there = files.is_remote(path) or os.path.exists(path)
        if path and not is_there and not glob.glob(path):
            raise UserError(
                f"`{name}={path}`: no TFRecord files found. Give the "
                "`output_dir` of `preprocess`"
                + (", or a run." if name == "like" else ".")
            )


def _file(name: str, path: str) -> None:
    if os.path.isdir(path):
        raise UserError(f"`{name}={path}` is a directory. Give a file.")
    if not os.path.exists(path):
        raise UserError(
            f"`{name}={path}`: there is no such file. Check the path."
        )


def _weights(name: str, path: str, advice: str = "Check the path.") -> None:
    """Checks that a directory, a checkpoint or a match of a pattern exists."""
    places = (path, f"{path}.index")
    if not any(map(os.path.exists, places)) and not glob.glob(path):
        raise UserError(
            f"`{name}={path}`: there is no such directory or checkpoint. "
            f"{advice}"
        )


def _source(name: str, path: str) -> None:
    _weights(name, path, download_advice(path))


def _checkpoint(name: str, choice: str) -> None:
    if choice not in _CHOICES:
        _weights(name, choice)


def _any_run(name: str, path: str) -> None:
    if os.path.isfile(path):
        raise UserError(f"`{name}={path}` is a file. Give a directory.")


# Kind of an input -> its check.
_INPUTS: dict[str, Callable[[str, str], object]] = {
    "data": lambda name, value: files.find(value),
    "records": _records,
    "file": _file,
    "weights": _weights,
    "source": _source,
    "checkpoint": _checkpoint,
    "run": lambda name, path: runs.read(path),
    "any_run": _any_run,
    "saved_model": lambda name, path: exported.read_metadata(path),
    "served": lambda name, path: exported.find_versions(path),
}


def _new_run(name: str, path: str, overwrite: bool) -> None:
    if files.is_remote(path):
        return
    if not os.path.isdir(path):
        atomic.check_directory(path, overwrite=True)
    # A resumed run writes only into its directory, so the parent may be
    # read-only.
    elif not os.access(path, os.W_OK):
        raise UserError(
            f"`{name}={path}` is not writable. Choose another directory."
        )
    overlaps.check_run(overlaps.Place(name, path))


def _bucket(name: str, path: str, overwrite: bool) -> None:
    if files.is_remote(path) and "," in path:
        raise UserError(
            f"`{name}={path}`: `train` would split this address at the comma. "
            "Choose a name without a comma."
        )
    atomic.check_directory(path, overwrite, in_bucket=True)


def _metrics(name: str, path: str, overwrite: bool) -> None:
    atomic.check_file(path, overwrite=True)
    if os.path.exists(path):
        try:
            with open(path, "rb") as stream:
                values = json_objects.parse(stream.read()).values()
        except (OSError, ValueError):
            values = [None]
        if not all(isinstance(x, int | float) for x in values):
            raise UserError(
                f"`{name}={path}` exists and does not hold metrics. Choose "
                "another file."
            )


def check_picture(
    name: str, path: str, overwrite: bool = True, or_page: bool = False
) -> None:
    """Raises a `UserError` if a picture cannot be written.

    An existing picture is replaced, even without `overwrite`. `or_page` also
    allows an HTML page.
    """
    del overwrite
    endings = (*_PICTURES, *([".html"] if or_page else []))
    ending = os.path.splitext(path)[1].lower()
    if ending not in ("", *endings):
        raise UserError(
            f"`{name}={path}`: expected a name that ends in "
            f"{', '.join(endings)}."
        )
    atomic.check_file(path, overwrite=True)
    kind, starts = "picture", _PICTURE_STARTS
    if ending == ".html":
        kind, starts = "page", (_PAGE_START,)
    if os.path.exists(path):
        with open(path, "rb") as stream:
            start = stream.read(_MAX_START)
        if start and not any(x in start for x in starts):
            raise UserError(
                f"`{name}={path}` exists and is not a {kind}. Choose another "
                "file."
            )


# Kind of an output -> its check.
_OUTPUTS: dict[str, Callable[[str, str, bool], None]] = {
    "new_run": _new_run,
    "new_directory": lambda name, path, overwrite: atomic.check_directory(
        path, overwrite
    ),
    "new_directory_or_bucket": _bucket,
    "new_file": lambda name, path, overwrite: atomic.check_file(
        path, overwrite
    ),
    "metrics": _metrics,
    "picture": check_picture,
    "picture_or_page": functools.partial(check_picture, or_page=True),
    # The demo checks its own directory.
    "demo": lambda name, path, overwrite: None,
}
