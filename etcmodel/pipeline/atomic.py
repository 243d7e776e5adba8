"""Writes files and directories that appear only when they are complete."""

import contextlib
import glob
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from typing import IO

from etcmodel.datasets import files
from etcmodel.errors import UserError


def _check_parent(path: str) -> None:
    """Raises a `UserError` if nothing can be made at a path."""
    if files.is_remote(path):
        raise UserError(
            f"{path}: outputs are written to local disks only. Write to a "
            "local path and copy the result."
        )
    parent = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise UserError(
            f"{path}: its directory cannot be made ({parent} is a file). "
            "Choose another path."
        )
    if not os.access(parent, os.W_OK):
        raise UserError(
            f"{path}: you may not write into {parent}. Choose another path."
        )


def _prepare(path: str) -> tuple[str, str]:
    """Makes the parent; returns the absolute path and the parent."""
    path = os.path.abspath(path)
    parent = os.path.dirname(path)
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{path}: its directory cannot be made ({error.strerror}). Choose "
            "another path."
        ) from None
    _remove_leftovers(path)
    return path, parent


def _prefix(path: str, process: int | str) -> str:
    """Returns the prefix of temporary names: `.stats.json.host-1234.`."""
    host = socket.gethostname().replace(".", "-")
    return f".{os.path.basename(path)}.{host}-{process}."


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove_leftovers(path: str) -> None:
    """Removes temporary outputs of processes that have ended."""
    pattern = os.path.join(
        glob.escape(os.path.dirname(path)),
        glob.escape(_prefix(path, "")[:-1]) + "*.partial",
    )
    for leftover in glob.glob(pattern, include_hidden=True):
        process = os.path.basename(leftover).split(".")[-3].split("-")[-1]
        if process.isdigit() and not _is_running(int(process)):
            print(f"Removes {leftover}, which an earlier process left.")
            if os.path.isdir(leftover):
                shutil.rmtree(leftover)
            else:
                os.unlink(leftover)


def _default_mode(base: int) -> int:
    """Returns the permissions of a new file, given the umask."""
    mask = os.umask(0)
    os.umask(mask)
    return base & ~mask


def check_file(path: str, overwrite: bool) -> None:
    """Raises a `UserError` if a file cannot be written or replaced."""
    _check_parent(path)
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory. Name a file to write.")
    if os.path.lexists(path) and not overwrite:
        raise UserError(
            f"{path} exists. Choose another file, or replace it with "
            "--overwrite."
        )


def check_directory(
    path: str, overwrite: bool, in_bucket: bool = False
) -> None:
    """Raises a `UserError` if a directory cannot be made or replaced.

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
    if os.listdir(path) and not overwrite:
        raise _not_empty(path)


def _not_empty(path: str) -> UserError:
    return UserError(
        f"{path} exists and is not empty. Choose another directory, or replace "
        "it with --overwrite."
    )


@contextlib.contextmanager
def atomic_file(path: str, mode: str = "w") -> Iterator[IO]:
    """Opens a file that replaces `path` when the block succeeds.

    If the block raises, `path` stays as it was. Text is UTF-8. Parents are
    made. Raises a `UserError` if the path cannot be written.
    """
    check_file(path, overwrite=True)
    path, parent = _prepare(path)
    handle, temporary = tempfile.mkstemp(
        prefix=_prefix(path, os.getpid()), suffix=".partial", dir=parent
    )
    encoding = None if "b" in mode else "utf-8"
    try:
        with os.fdopen(handle, mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _default_mode(0o666))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def output_directory(path: str, overwrite: bool = False) -> Iterator[str]:
    """Does what `atomic_directory` does, also for addresses such as gs://a/b.

    There all files are copied to their final names at the end, one by one.
    """
    if not files.is_remote(path):
        with atomic_directory(path, overwrite) as directory:
            yield directory
        return
    import tensorflow as tf

    check_directory(path, overwrite, in_bucket=True)
    gfile, path = tf.io.gfile, path.rstrip("/")
    is_there = gfile.exists(path)
    if is_there and not overwrite and gfile.listdir(path):
        raise _not_empty(path)
    parent, name = path.rsplit("/", 1)
    temporary = f"{parent}/partial-{uuid.uuid4().hex}-{name}"
    gfile.makedirs(temporary)
    try:
        yield temporary
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

    If the block raises, `path` stays as it was. Parents are made. Raises a
    `UserError` if `path` cannot be written, or has files without `overwrite`.
    """
    check_directory(path, overwrite)
    path, parent = _prepare(path)
    temporary = tempfile.mkdtemp(
        prefix=_prefix(path, os.getpid()), suffix=".partial", dir=parent
    )
    try:
        # Workers of other users write into it, too.
        os.chmod(temporary, _default_mode(0o777))
        yield temporary
        if os.path.exists(path):
            old = tempfile.mkdtemp(suffix=".old", dir=parent)
            os.rename(path, os.path.join(old, "old"))
            os.rename(temporary, path)
            shutil.rmtree(old)
        else:
            os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
