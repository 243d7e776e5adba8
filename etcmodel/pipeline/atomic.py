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
            f"{path}: outputs are written to local disks only. Write to a "
            "local path and copy the result."
        )
    path = os.path.abspath(path)
    if os.path.islink(path) and not os.path.exists(path):
        raise UserError(
            f"{path} is a link to {os.readlink(path)}, which does not exist. "
            "Remove the link, or choose another path."
        )
    # The target of a link is replaced, not the link.
    parent = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        kind = "broken link" if os.path.islink(parent) else "file"
        raise UserError(
            f"{path}: its directory cannot be made ({parent} is a {kind}). "
            "Choose another path."
        )
    if not os.access(parent, os.W_OK):
        raise UserError(
            f"{path}: you may not write into {parent}. Choose another path."
        )


def _prepare(path: str) -> str:
    """Creates the parent of an output; returns the path without links."""
    _check_parent(path)
    path = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{path}: its directory cannot be made ({error.strerror}). Choose "
            "another path."
        ) from None
    swaps.recover(path)
    return path


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Adds the path to the system's disk-full error."""
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
        raise UserError(f"{path} is a directory. Name a file to write.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path} is no regular file. Name a file to write.")
    if os.path.lexists(path) and not overwrite:
        raise UserError(
            f"{path} exists. Choose another file, or replace it with "
            "`overwrite`."
        )


def check_directory(
    path: str, overwrite: bool, in_bucket: bool = False
) -> None:
    """Raises a `UserError` if a directory cannot be created or replaced.

    With `in_bucket`, directories in buckets are allowed, and are checked when
    they are written.
    """
    if in_bucket and files.is_remote(path):
        if "/" not in path.rstrip("/").partition("://")[2]:
            raise UserError(
                f"{path} is a bucket. Name a directory in it, such as "
                f"{path.rstrip('/')}/data."
            )
        return
    _check_parent(path)
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        raise UserError(f"{path} is a file. Name a directory to make.")
    if os.path.ismount(os.path.realpath(path)):
        raise UserError(
            f"{path} is the root of a file system and cannot be replaced. Name "
            f"a directory in it, such as {os.path.join(path, 'out')}."
        )
    if os.listdir(path):
        if not overwrite:
            raise _not_empty(path)
        own_files.check(path)


def _not_empty(path: str) -> UserError:
    advice = "Choose another directory"
    if own_files.read(path) is not None:
        advice += ", or replace it with `overwrite`"
    return UserError(f"{path} exists and is not empty. {advice}.")


@contextlib.contextmanager
def atomic_file(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a file that replaces `path` when the block succeeds.

    If the block raises, `path` stays as it was. Text is UTF-8. Parents are
    created. Raises a `UserError` if the path cannot be written.
    """
    path = _prepare(path)
    check_file(path, overwrite=True)
    temporary = swaps.partial_path(path)
    encoding = None if "b" in mode else "utf-8"
    # The system's default permissions of a new file.
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
    """Works like `atomic_directory`, also for addresses such as gs://a/b.

    There, all files are copied to their final names at the end, one by one.
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

    If the block raises, `path` stays as it was. Parents are created. Raises a
    `UserError` if `path` cannot be written, has files without `overwrite`, or
    has files that this function did not write.
    """
    path = _prepare(path)
    check_directory(path, overwrite)
    temporary = swaps.partial_path(path)
    # The system's default permissions, so that other users' workers may write.
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
