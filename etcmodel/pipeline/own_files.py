"""Keeps a list of an output directory's files in the directory itself.

`overwrite` replaces a directory only if it has this list and no unlisted files.
"""

import os
from collections.abc import Iterator

from etcmodel import json_objects
from etcmodel.errors import UserError
from etcmodel.readers import files

FILE = ".etcmodel_files.json"


def write(directory: str) -> None:
    """Writes the list of a finished directory's files into the directory."""
    note = {"files": sorted({*_walk(directory)} - {FILE})}
    content = json_objects.dump_note(note).encode("utf-8")
    if not files.is_remote(directory):
        with open(os.path.join(directory, FILE), "wb") as stream:
            stream.write(content)
        return
    import tensorflow as tf

    with tf.io.gfile.GFile(f"{directory}/{FILE}", "wb") as stream:
        stream.write(content)


def read(directory: str) -> set[str] | None:
    """Returns the listed files; None if the directory has no valid list."""
    path = f"{directory.rstrip('/')}/{FILE}"
    try:
        if files.is_remote(path):
            import tensorflow as tf

            if not tf.io.gfile.exists(path):
                return None
            with tf.io.gfile.GFile(path, "rb") as stream:
                content = stream.read()
        else:
            with open(path, "rb") as stream:
                content = stream.read()
        return {*json_objects.parse_note(content)["files"], FILE}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check(directory: str) -> None:
    """Raises a `UserError` if a directory has no list or has unlisted files."""
    own = read(directory)
    if own is None:
        raise UserError(
            f"{directory} was not written by this version of etcmodel, so "
            "`overwrite` does not replace it. Choose another directory, or "
            "delete this one yourself."
        )
    foreign = sorted({*_walk(directory)} - own)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UserError(
            f"{directory} holds {foreign[0]}{more}, which etcmodel did not "
            "write; `overwrite` would remove it. Move it elsewhere, or choose "
            "another directory."
        )


def _walk(directory: str) -> Iterator[str]:
    """Yields the paths of all files in a directory, relative to it."""
    if files.is_remote(directory):
        import tensorflow as tf

        for folder, _, names in tf.io.gfile.walk(directory):
            place = folder.rstrip("/").removeprefix(directory.rstrip("/"))
            for name in names:
                yield f"{place}/{name}".lstrip("/")
        return
    for folder, folders, names in os.walk(directory):
        links = [x for x in folders if os.path.islink(f"{folder}/{x}")]
        for name in (*links, *names):
            yield os.path.relpath(os.path.join(folder, name), directory)
