"""Names unfinished outputs, and moves finished ones to their final names.

A killed process leaves behind its unfinished output, or the output that it was
replacing. `recover` cleans up both.
"""

import ctypes
import itertools
import os
import re
import shutil
import socket
import uuid

_PARTIAL, _OLD = ".partial", ".old"
# Distinguishes processes with equal ids, such as in different containers.
_TOKEN = uuid.uuid4().hex
_numbers = itertools.count()
# Arguments of Linux's `renameat2`: paths are relative to the working directory;
# both names are exchanged.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def partial_path(path: str) -> str:
    """Returns a unique name beside a path: `.out.host-12.34.partial`."""
    folder, name = os.path.split(path)
    unique = f"{_TOKEN}{next(_numbers)}"
    return os.path.join(
        folder, f".{name}.{_host()}-{os.getpid()}.{unique}{_PARTIAL}"
    )


def _host() -> str:
    return socket.gethostname().replace(".", "-")


def replace_directory(new: str, path: str) -> None:
    """Replaces the directory at `path` by the finished directory `new`.

    The replacement is atomic if the file system can exchange names. If it
    cannot, and the process is killed during the replacement, `recover` restores
    the old directory.
    """
    old = new
    if not _exchange(new, path):
        old = new.removesuffix(_PARTIAL) + _OLD
        os.rename(path, old)
        try:
            os.rename(new, path)
        except BaseException:
            os.rename(old, path)
            raise
    _remove(old)


def _exchange(new: str, path: str) -> bool:
    """Exchanges two names atomically; returns False if that is impossible."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    names = os.fsencode(new), os.fsencode(path)
    arguments = (_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    return rename(*arguments) == 0


def recover(path: str) -> None:
    """Removes or restores the outputs that killed processes left behind.

    Prints each action. Keeps files of other machines and of running processes,
    and prints advice about them.
    """
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        return
    form = rf"\.{re.escape(name)}\.([^.]+)-(\d+)\.([^.]+)(\{_PARTIAL}|\{_OLD})"
    # Old outputs come first, so that they are restored before any are removed.
    for entry in sorted(os.listdir(folder), key=lambda x: x.endswith(_PARTIAL)):
        match = re.fullmatch(form, entry)
        if not match:
            continue
        host, process, unique, kind = match.groups()
        if int(process) == os.getpid() and unique.startswith(_TOKEN):
            continue
        leftover = os.path.join(folder, entry)
        is_lost = kind == _OLD and not os.path.lexists(path)
        if host != _host() or _is_running(int(process)):
            advice = (
                f"rename {entry} to {name}" if is_lost else f"remove {entry}"
            )
            print(
                f"{leftover} is used by process {process} on {host}, or was "
                f"left behind by it. If no process writes {path}, {advice}."
            )
        elif is_lost:
            print(f"Restores {path}, which a killed process was replacing.")
            os.rename(leftover, path)
        else:
            print(f"Removes {leftover}, which a killed process left behind.")
            _remove(leftover)


def _is_running(process: int) -> bool:
    """Tells whether another process on this machine has this id."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _remove(path: str) -> None:
    """Removes a file or directory; prints a message if that fails."""
    try:
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        print(
            f"{path} cannot be removed ({error.strerror}). Remove it yourself."
        )
