"""Finds and opens data files, compressed or plain, local or remote.

TensorFlow opens addresses with a scheme that it supports, such as `gs://`;
fsspec opens the others (`s3://`, `hf://`, `https://`).
"""

import codecs
import contextlib
import contextvars
import glob
import io
import itertools
import json
import os
import unicodedata
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

from etcmodel import extras
from etcmodel.errors import UserError
from etcmodel.readers import compression

_CHUNK_BYTES = 1 << 16
_MAX_FIRST_LINE = 1 << 28
_T = TypeVar("_T")
# 256 MiB: more than any book, and far less than a machine's memory.
MAX_RECORD_BYTES = 1 << 28
_max_record_bytes: contextvars.ContextVar[int] = contextvars.ContextVar(
    "etcmodel.max_record_bytes", default=MAX_RECORD_BYTES
)


class MissingFile(UserError):
    """Raised when a file does not exist."""


def is_remote(path: str) -> bool:
    """Tells whether a path is an address such as `gs://bucket/a`."""
    return "://" in path


def is_below(name: str) -> bool:
    """Tells whether a relative path stays inside its folder.

    Example: true for `"a/b.txt"`, false for `"/b.txt"` and `"a/../../b.txt"`.
    """
    return not (name.startswith("/") or ".." in name.split("/"))


def _gfile():
    # Imported here because TensorFlow loads slowly and most files are local.
    import tensorflow as tf

    return tf.io.gfile


class _FsspecFiles:
    """Accesses files of an fsspec file system, like `_TensorFlowFiles`."""

    def __init__(self, path: str):
        scheme = path.partition("://")[0]
        try:
            extras.require("fsspec")
            import fsspec

            self._files = fsspec.filesystem(scheme)
        except (ImportError, ValueError) as error:
            # fsspec's message names the package to install.
            raise UserError(f"{path}: cannot be opened ({error}).") from None

    def _call(self, path: str, function: Callable[..., _T]) -> _T:
        try:
            return function(path)
        except FileNotFoundError:
            raise
        # Each fsspec file system raises its own exception types.
        except Exception as error:
            raise UserError(
                f"{path}: cannot be read ({error}). Check the address and your "
                "read permission."
            ) from None

    def glob(self, path: str) -> list[str]:
        """Returns the paths that match a name or pattern."""
        if not any(x in path for x in "*?["):
            return [path] if self.exists(path) else []
        found = self._call(path, self._files.glob)
        return [self._files.unstrip_protocol(x) for x in found]

    def exists(self, path: str) -> bool:
        """Tells whether a file exists."""
        return self._call(path, self._files.exists)

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes; 0 if it is unknown."""
        return self._call(path, self._files.size) or 0

    def open(self, path: str) -> io.RawIOBase:
        """Opens a file to read its bytes."""
        return self._call(path, self._files.open)


class _TensorFlowFiles:
    """Accesses files of a file system that TensorFlow supports."""

    def __init__(self):
        self._gfile = _gfile()
        self.glob = self._gfile.glob
        self.exists = self._gfile.exists

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes."""
        return self._gfile.stat(path).length

    def open(self, path: str) -> io.RawIOBase:
        """Opens a file to read its bytes."""
        return _Remote(path)


def _remote(path: str) -> _FsspecFiles | _TensorFlowFiles:
    scheme = path.partition("://")[0]
    if scheme in _gfile().get_registered_schemes():
        return _TensorFlowFiles()
    return _FsspecFiles(path)


def find(paths: str | Sequence[str]) -> list[str]:
    """Finds data files by names or patterns such as `nq-*.gz`.

    Args:
        paths: a list of names or patterns, or a string that separates them by
            commas.

    Returns:
        The paths without duplicates: in the order of the patterns, and sorted
        within each pattern.

    Raises:
        UserError: a name or pattern matches no file, or is a directory.
    """
    if isinstance(paths, str):
        paths = split_paths(paths)
    found = []
    for part in (part.strip() for part in paths):
        if is_remote(part):
            files = _remote(part).glob(part)
        elif os.path.isdir(part):
            raise UserError(
                f"{part} is a directory, expected files. Give a pattern of "
                f"files inside it, such as {os.path.join(part, '*.json')}."
            )
        elif os.path.exists(part):
            files = [part]
        else:
            files = glob.glob(part)
        if not files:
            raise UserError(f"{part}: there is no such file. Check the path.")
        found += sorted(files)
    return list(dict.fromkeys(found))


def split_paths(paths: str) -> list[str]:
    """Splits names or patterns at commas.

    A comma is part of a name if a file or directory with the whole name exists,
    and none with the part before the comma.
    """
    # If a file with this name exists, `[` does not begin a pattern.
    if os.path.exists(paths):
        return [paths]
    found, parts = [], paths.split(",")
    while parts:
        joined = itertools.accumulate(parts, lambda x, y: f"{x},{y}")
        number = next(
            (i for i, x in enumerate(joined, 1) if os.path.exists(x.strip())), 1
        )
        found.append(",".join(parts[:number]))
        del parts[:number]
    return found


def size(path: str) -> int:
    """Returns the size of a file in bytes; 0 if a local file does not exist."""
    if is_remote(path):
        return _remote(path).size(path)
    return os.path.getsize(path) if os.path.isfile(path) else 0


def read_form(read: Callable[[str], _T], folder: str, name: str) -> _T | None:
    """Reads a file whose name may use another Unicode normalization form.

    macOS and its archives store "é" as "e" and a combining accent (NFD).

    Args:
        read: called with a path; opens it with `open_plain`. The given name is
            tried first, then its NFC and NFD forms.
        folder: the folder of the file.
        name: the file's name within the folder.

    Returns:
        The result of `read`; None if no form of the name exists.
    """
    forms = (unicodedata.normalize(x, name) for x in ("NFC", "NFD"))
    for form in dict.fromkeys((name, *forms)):
        with contextlib.suppress(MissingFile):
            return read(os.path.join(folder, form))
    return None


def full_name(path: str) -> str:
    """Returns the absolute path of a local file; remote paths are unchanged."""
    return path if is_remote(path) else os.path.abspath(path)


class _Remote(io.RawIOBase):
    """Wraps a `tf.io.gfile.GFile` as a Python raw file."""

    def __init__(self, path: str):
        super().__init__()
        self._file = _gfile().GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()


class Part(NamedTuple):
    """A range of lines of a file, or the whole file.

    Attributes:
        path: path of the file.
        start: byte offset of the first line.
        stop: byte offset after the last line; None for the whole file.
        lines: number of lines before `start`.
        records: number of records before `start`.
    """

    path: str
    start: int = 0
    stop: int | None = None
    lines: int = 0
    records: int = 0


_part: contextvars.ContextVar[Part | None] = contextvars.ContextVar(
    "etcmodel.part", default=None
)


def within(
    part: Part, read: Callable[..., Iterator[_T]], *args: object
) -> Iterator[_T]:
    """Yields from `read(*args)`, limited to a part of the file.

    Within `read`, `open_plain` opens only `part`. The caller's context does not
    change, so several parts can be read in turn, and a reader can be closed in
    another thread.
    """
    yield from _with(_part, part, read, *args)


def limited(
    max_record_bytes: int,
    read: Callable[..., Iterator[_T]],
    *args: object,
    **kwargs: object,
) -> Iterator[_T]:
    """Yields from `read(*args, **kwargs)`, with a limit on the record size.

    0 means no limit. Outside this function, the limit is `MAX_RECORD_BYTES`.
    """
    yield from _with(_max_record_bytes, max_record_bytes, read, *args, **kwargs)


def check_size(size: int, place: str) -> None:
    """Raises a `UserError` if a record exceeds the maximum size.

    Readers call this function while they read, so that one record cannot fill
    the memory.

    Args:
        size: bytes of the record read so far.
        place: where the record begins, such as `"a.json, line 3"`.
    """
    most = _max_record_bytes.get()
    if 0 < most < size:
        raise UserError(
            f"{place}: the record has more than {most:,} bytes. If that is "
            "right, raise `max_record_bytes` (0: no limit). Otherwise, a line "
            "break or a closing quote is missing: get the file again."
        )


def read_whole(plain: io.BufferedIOBase, path: str) -> bytes:
    """Reads a file that holds one record, and checks its size."""
    most = _max_record_bytes.get()
    content = plain.read(most + 1 if most else -1)
    check_size(len(content), path)
    return content


def _with(variable, value, read, *args, **kwargs) -> Iterator[_T]:
    """Yields from `read(...)` in a context where `variable` has `value`."""

    def values():
        yield from read(*args, **kwargs)

    context = contextvars.copy_context()
    context.run(variable.set, value)
    reader = values()
    try:
        for found in iter(lambda: context.run(_next, reader), []):
            yield found[0]
    finally:
        context.run(reader.close)


def _next(values: Iterator[_T]) -> list[_T]:
    """Returns a list with the next value, or an empty list at the end."""
    return [*itertools.islice(values, 1)]


def part_of(path: str) -> Part:
    """Returns the part of a file that `within` has set, or the whole file."""
    part = _part.get()
    return part if part is not None and part.path == path else Part(path)


class _Lines(io.RawIOBase):
    """The plain bytes of a part of a file."""

    def __init__(self, raw: io.RawIOBase, part: Part):
        super().__init__()
        self._raw = raw
        self._left = part.stop - part.start
        raw.seek(part.start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        view = memoryview(buffer)[: max(self._left, 0)]
        number = self._raw.readinto(view) or 0
        self._left -= number
        return number


def line_parts(path: str, size: int) -> list[Part]:
    """Divides a file of JSON lines into parts of about `size` bytes.

    Compressed files and files of other formats become one part. `lines` and
    `records` of the parts are not set yet; see `count_lines` and `numbered`.
    """
    raw, plain = open_plain(path)
    with raw, plain:
        is_compressed = getattr(plain, "raw", None) is not raw
        if is_compressed or not _has_json_line(plain):
            return [Part(path)]
        end = plain.seek(0, os.SEEK_END)
        starts = [0]
        for place in range(size, end, size):
            # The line that contains byte `place - 1` belongs to the previous
            # part.
            plain.seek(place - 1)
            while plain.readline(_CHUNK_BYTES)[-1:] not in (b"\n", b""):
                pass
            starts.append(plain.tell())
    starts = sorted({x for x in starts if x < end})
    if len(starts) < 2:
        return [Part(path)]
    return [Part(path, *x) for x in itertools.pairwise([*starts, end])]


def _has_json_line(plain: io.BufferedIOBase) -> bool:
    """Tells whether the first line of a file is a JSON object."""
    start = plain.read(_CHUNK_BYTES).removeprefix(codecs.BOM_UTF8).lstrip()
    if not start.startswith(b"{"):
        return False
    line, end, _ = start.partition(b"\n")
    if not end:
        line += plain.readline(_MAX_FIRST_LINE)
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def count_lines(part: Part) -> tuple[int, int]:
    """Returns a part's number of lines and its number of nonblank lines."""
    lines = records = 0
    is_start = is_blank = True
    for piece in within(part, plain_lines, part.path):
        lines += is_start
        is_blank = (is_start or is_blank) and piece.isspace()
        is_start = piece.endswith(b"\n")
        records += is_start and not is_blank
    return lines, records + (not is_start and not is_blank)


def numbered(parts: Sequence[Part], counts: Mapping[Part, tuple]) -> list[Part]:
    """Sets `lines` and `records` of each part; drops parts without records.

    `counts` maps each part, except whole files, to the result of `count_lines`.
    """
    found, before = [], {}
    for part in parts:
        lines, records = before.get(part.path, (0, 0))
        more = (0, 1) if part.stop is None else counts[part]
        if more[1]:
            found.append(part._replace(lines=lines, records=records))
        before[part.path] = (lines + more[0], records + more[1])
    return found


def open_plain(path: str) -> tuple[io.RawIOBase, io.BufferedIOBase]:
    """Opens a plain or compressed file, recognized by its first bytes.

    Returns:
        The raw file, whose position tells how much has been read, and a file
        with the decompressed bytes.

    Raises:
        MissingFile: the file does not exist.
        UserError: the file cannot be read, or its format is not supported.
    """
    try:
        if is_remote(path):
            # TensorFlow reports a missing file only at the first read.
            remote = _remote(path)
            raw = remote.open(path) if remote.exists(path) else None
        else:
            raw = open(path, "rb", buffering=0)  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # Python raises ValueError for a name with a NUL character.
        raw = None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, expected a file.") from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}). Check your read "
            "permission."
        ) from None
    if raw is None:
        raise MissingFile(f"{path}: there is no such file. Check the path.")
    head = raw.read(compression.HEAD_BYTES)
    raw.seek(0)
    part = part_of(path)
    if part.stop is not None:
        return raw, io.BufferedReader(_Lines(raw, part), _CHUNK_BYTES)
    plain = compression.open_compressed(path, raw, head)
    if plain is None:
        return raw, io.BufferedReader(raw, _CHUNK_BYTES)
    compression.check_content(path, plain)
    return raw, plain


def plain_lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a plain or compressed file as bytes.

    Splits long lines into pieces; only the last piece ends with a line feed.
    """
    raw, plain = open_plain(path)
    with raw, plain:
        while line := plain.readline(_CHUNK_BYTES):
            yield line
