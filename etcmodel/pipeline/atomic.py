"""Writes files and directories that appear only when they are complete."""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from typing import IO

from etcmodel.errors import UserError
from etcmodel.pipeline import own_files
from etcmodel.pipeline import swaps
from etcmodel.readers import files

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _check_parent(path: str) -> None:
    """Raises a `UserError` if an output cannot be created at a path."""
    if files.is_remote(path):
        raise UserError(
            f"{path}: this output can only be written to a local disk. Give a "
            "local path, then copy the result."
        )
    path = os.path.abspath(path)
    if os.path.islink(path) and not os.path.exists(path):
        raise UserError(
            f"{path} is a link to {os.readlink(path)}, which does not exist. "
            "Remove the link, or choose another path."
        )
    # If the path is a link, the link is kept and its target is replaced.
    parent = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        kind = "broken link" if os.path.islink(parent) else "file"
        raise UserError(
            f"{path}: its directory cannot be created ({parent} is a {kind}). "
            "Choose another path."
        )
    if not os.access(parent, os.W_OK):
        raise UserError(
            f"{path}: {parent} is not writable. Choose another path."
        )


def _prepare(path: str) -> str:
    """Creates the parent of an output; returns the path without links."""
    _check_parent(path)
    path = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{path}: its directory cannot be created ({error.strerror}). "
            "Choose another path."
        ) from None
    swaps.recover(path)
    return path


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Adds the path to the message of an `OSError` about a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = path
        raise


def check_file(path: str, overwrite: bool) -> None:
    """Raises a `UserError` if a file cannot be written or replaced."""
    _check_parent(path)
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory. Give the path of a file.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(
            f"{path} is not a regular file. Give the path of a file."
        )
    if os.path.lexists(path) and not overwrite:
        raise UserError(
            f"{path} exists. Choose another path, or set `overwrite` to "
            "replace it."
        )


def check_directory(
    path: str, overwrite: bool, in_bucket: bool = False
) -> None:
    """Raises a `UserError` if a directory cannot be created or replaced.

    With `in_bucket`, remote directories are allowed. Their content is checked
    only when they are written.
    """
    if in_bucket and files.is_remote(path):
        if "/" not in path.rstrip("/").partition("://")[2]:
            raise UserError(
                f"{path} is a bucket. Give a directory in it, such as "
                f"{path.rstrip('/')}/data."
            )
        return
    _check_parent(path)
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        raise UserError(f"{path} is a file. Give the path of a directory.")
    if os.path.ismount(os.path.realpath(path)):
        raise UserError(
            f"{path} is the root of a file system and cannot be replaced. Give "
            f"a directory in it, such as {os.path.join(path, 'out')}."
        )
    if os.listdir(path):
        if not overwrite:
            raise _not_empty(path)
        own_files.check(path)


def _not_empty(path: str) -> UserError:
    advice = "Choose another directory"
    if own_files.read(path) is not None:
        advice += ", or set `overwrite` to replace it"
    return UserError(f"{path} exists and is not empty. {advice}.")


@contextlib.contextmanager
def atomic_file(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a file that replaces `path` when the block succeeds.

    If the block raises, `path` stays unchanged. Creates parent directories.
    Text is written as UTF-8. Raises a `UserError` if the path cannot be
    written.
    """
    path = _prepare(path)
    check_file(path, overwrite=True)
    temporary = swaps.partial_path(path)
    encoding = None if "b" in mode else "utf-8"
    # A new file gets the system's default permissions (0o666 minus the umask).
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with _named(path), os.fdopen(handle, mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def output_directory(path: str, overwrite: bool = False) -> Iterator[str]:
    """Works like `atomic_directory`, and accepts paths such as gs://a/b.

    In a bucket, the files are renamed one by one at the end, so the replacement
    is not atomic.
    """
    if not files.is_remote(path):
        with atomic_directory(path, overwrite) as directory:
            yield directory
        return
    import tensorflow as tf

    check_directory(path, overwrite, in_bucket=True)
    gfile, path = tf.io.gfile, path.rstrip("/")
    is_there = gfile.exists(path)
    if is_there and gfile.listdir(path):
        if not overwrite:
            raise _not_empty(path)
        own_files.check(path)
    parent, name = path.rsplit("/", 1)
    temporary = f"{parent}/partial-{uuid.uuid4().hex}-{name}"
    gfile.makedirs(temporary)
    try:
        yield temporary
        own_files.write(temporary)
        if is_there:
            gfile.rmtree(path)
        for folder, _, names in gfile.walk(temporary):
            target = path + folder.rstrip("/").removeprefix(temporary)
            gfile.makedirs(target)
            for name in names:
                gfile.rename(f"{folder.rstrip('/')}/{name}", f"{target}/{name}")
    finally:
        with contextlib.suppress(tf.errors.OpError):
            gfile.rmtree(temporary)


@contextlib.contextmanager
def atomic_directory(path: str, overwrite: bool = False) -> Iterator[str]:
    """Yields a new directory that becomes `path` when the block succeeds.

    If the block raises, `path` stays unchanged. Creates parent directories.

    Raises:
        UserError: `path` cannot be written; it is not empty and `overwrite` is
            not set; or it contains files that this function did not write.
    """
    path = _prepare(path)
    check_directory(path, overwrite)
    temporary = swaps.partial_path(path)
    # `mkdtemp` would deny access to other users, whose workers may write here.
    os.mkdir(temporary)
    try:
        with _named(path):
            yield temporary
            own_files.write(temporary)
        if os.path.isdir(path) and os.listdir(path):
            swaps.replace_directory(temporary, path)
        else:
            os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
