"""Checks that a command's outputs do not overlap with its inputs."""

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from etcmodel import run_paths
from etcmodel.errors import UserError
from etcmodel.pipeline import own_files
from etcmodel.readers import files

# Names of a run's own files. Other outputs must not have these names.
_OF_A_RUN = re.compile(
    r"(etcmodel|tuned|validations|encoder_options|\w+_config)\.json"
    r"|params\.yaml|vocab\..*|checkpoint|ckpt-.*|best_ckpt|train|validation"
)
# A directory with one of these files holds records, weights or a SavedModel.
_NOTES = (
    "preprocessing_config.json",
    "lift.json",
    "saved_model.pb",
    own_files.FILE,
)


class Place(NamedTuple):
    """A path that a command reads or writes.

    Attributes:
        name: the name in messages: an option, such as "input", or a
            description.
        path: the path, on a disk or in a bucket.
        given: the path that the user gave; None if it is `path`.
        is_kept: for an output, whether its existing content is kept; for an
            input, whether it may be inside an output that keeps its content.
        is_open: for an input, whether outputs may be inside it; true for a run.
    """

    name: str
    path: str
    given: str | None = None
    is_kept: bool = False
    is_open: bool = False

    def __str__(self):
        path = self.path if self.given is None else self.given
        if " " in self.name:
            return f"{self.name} {path}"
        # Names with dots are configuration parameters, which have no flag.
        is_option = "." not in self.name
        return f"`{self.name}={path}`" if is_option else f"{self.name}={path}"


def lies_in(path: str, other: str) -> bool:
    """Tells whether a path is inside a directory, at any depth."""
    return _chain(other)[0] in _chain(path)[1:]


def check(outputs: Iterable[Place], inputs: Iterable[Place]) -> None:
    """Raises a `UserError` if an output overlaps with an input.

    Outputs may be inside a run, but not replace its files. Two outputs must not
    have the same path.
    """
    outputs, inputs = list(outputs), list(inputs)
    chains = {x.path: _chain(x.path) for x in (*outputs, *inputs)}
    for number, output in enumerate(outputs):
        own = chains[output.path]
        for other in (*inputs, *outputs[:number]):
            if own[0] == chains[other.path][0]:
                raise UserError(
                    f"{output} and {other} are the same path. Choose another "
                    f"`{output.name}`."
                )
        _check_owner(output)
        for other in inputs:
            read = chains[other.path]
            if own[0] in read[1:] and not (output.is_kept and other.is_kept):
                raise UserError(
                    f"{output} contains {other}, an input. Choose another "
                    f"`{output.name}`."
                )
            if read[0] in own[1:] and not (
                other.is_open or _is_run(other.path)
            ):
                raise UserError(
                    f"{output} is in {other}, an input. Choose another "
                    f"`{output.name}`."
                )


def _chain(path: str) -> list[object]:
    """Returns identifiers of a path and of its parent directories."""
    if files.is_remote(path):
        scheme, _, rest = path.partition("://")
        parts = os.path.normpath(rest).split("/")
        return [
            f"{scheme}://{'/'.join(parts[:i])}"
            for i in range(len(parts), 0, -1)
        ]
    path = os.path.realpath(path)
    places = [path]
    while (parent := os.path.dirname(places[-1])) != places[-1]:
        places.append(parent)
    return [_identity(place) for place in places]


def _identity(path: str) -> object:
    """Returns an identifier that is equal for all names of a directory."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    # Hard links of a file are ignored: replacing one does not change the
    # others.
    is_folder = os.path.isdir(path)
    return (status.st_dev, status.st_ino) if is_folder else path


def _is_run(path: str) -> bool:
    return not files.is_remote(path) and os.path.exists(
        os.path.join(path, run_paths.RUN_FILE)
    )


def _check_owner(output: Place) -> None:
    """Raises a `UserError` if an output would replace a part of another."""
    if files.is_remote(output.path):
        return
    path = os.path.realpath(output.path)
    folder = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        name = os.path.relpath(path, folder)
        listed = own_files.read(folder) or set()
        first = name.split(os.sep)[0]
        if (
            name in listed
            or any(x.startswith(f"{name}{os.sep}") for x in listed)
            or (_is_run(folder) and _OF_A_RUN.fullmatch(first))
        ):
            raise UserError(
                f"{output} is a part of {folder}, which another command wrote. "
                f"Choose another `{output.name}`."
            )
        folder = os.path.dirname(folder)


def check_run(output: Place) -> None:
    """Raises a `UserError` if a command other than `train` wrote an output."""
    if files.is_remote(output.path) or _is_run(output.path):
        return
    names = os.listdir(output.path) if os.path.isdir(output.path) else ()
    for name in _NOTES if run_paths.PARAMS_FILE not in names else ():
        if name in names:
            raise UserError(
                f"{output} is not a run: it holds {name}, which another "
                f"command wrote. Choose another `{output.name}`."
            )
