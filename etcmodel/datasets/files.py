"""Data files: several at once, plain or gzipped, on a disk or in a bucket."""

import codecs
import contextlib
import contextvars
import glob
import gzip
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

from etcmodel.errors import UserError

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 16
_MAX_FIRST_LINE = 1 << 28
_T = TypeVar("_T")


class MissingFile(UserError):
    """There is no file of that name."""


def is_remote(path: str) -> bool:
    """Whether TensorFlow reads it, as `gs://bucket/a`."""
    return "://" in path


def is_below(name: str) -> bool:
    """Whether a name that a record gives is of a file in the folder it says.

    Example: `"a/b.txt"` is, `"/b.txt"` and `"a/../../b.txt"` are not.
    """
    return not (name.startswith("/") or ".." in name.split("/"))


def _gfile():
    # Takes seconds to load, and most files are local.
    import tensorflow as tf

    return tf.io.gfile


def find(paths: str | Sequence[str]) -> list[str]:
    """Data files by their names or patterns, sorted within each; each once.

    Several names or patterns (`nq-*.gz`) have commas between, or are a list.

    Raises:
        UserError: a part names no file, or a directory.
    """
    if isinstance(paths, str):
        paths = split_paths(paths)
    found = []
    for part in (part.strip() for part in paths):
        if is_remote(part):
            files = _gfile().glob(part)
        elif os.path.isdir(part):
            raise UserError(
                f"{part} is a directory. Name the files inside it that are to "
                f"be read, such as {os.path.join(part, '*.json')}."
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
    """Splits names or patterns with commas between.

    A comma is a part of a name if there is no such file or directory without
    it, but one with it.
    """
    # Names may have brackets, too.
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
    """Number of bytes of a file; 0 if there is none."""
    if is_remote(path):
        return _gfile().stat(path).length
    return os.path.getsize(path) if os.path.isfile(path) else 0


def read_form(read: Callable[[str], _T], folder: str, name: str) -> _T | None:
    """Reads a file whose name may be in another Unicode normal form.

    macOS and archives from there write "é" as "e" and an accent. The name as it
    is given is read first, without asking whether there is such a file.

    Returns:
        What `read` returns for a path, which it opens with `open_plain`; None
        if there is no such file.
    """
    forms = (unicodedata.normalize(x, name) for x in ("NFC", "NFD"))
    for form in dict.fromkeys((name, *forms)):
        with contextlib.suppress(MissingFile):
            return read(os.path.join(folder, form))
    return None


def full_name(path: str) -> str:
    """The absolute path of a file, or its address in a bucket."""
    return path if is_remote(path) else os.path.abspath(path)


class _Remote(io.RawIOBase):
    """A file of TensorFlow's file systems as Python has them."""

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
    """Some lines of a file, or all of it.

    Attributes:
        path: the file.
        start: the first byte, which begins a line.
        stop: the byte behind the last line; None for the end of the file.
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
    """Yields from `read(*args)`, which sees only `part` of its file.

    The context of the caller does not change, so several parts may be read in
    turn, and a reader may be closed in another thread.

    Args:
        part: what readers see of its file.
        read: opens the file with `open_plain`, at once or at the first value.
        *args: arguments of `read`.
    """

    def values():
        yield from read(*args)

    context = contextvars.copy_context()
    context.run(_part.set, part)
    reader = values()
    try:
        for found in iter(lambda: context.run(_next, reader), []):
            yield found[0]
    finally:
        context.run(reader.close)


def _next(values: Iterator[_T]) -> list[_T]:
    """Returns the next value as a list of one; an empty list at the end."""
    return [*itertools.islice(values, 1)]


def part_of(path: str) -> Part:
    """Returns what is to be read of a file: all of it, or see `within`."""
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

    Other files, and gzipped ones, are one part. `lines` and `records` of the
    parts are not known yet; `count_lines` counts those of a part.
    """
    raw, plain = open_plain(path)
    with raw, plain:
        if isinstance(plain, gzip.GzipFile) or not _has_json_line(plain):
            return [Part(path)]
        end = plain.seek(0, os.SEEK_END)
        starts = [0]
        for place in range(size, end, size):
            # The line that this byte is in belongs to the part before.
            plain.seek(place - 1)
            plain.readline()
            starts.append(plain.tell())
    starts = sorted({x for x in starts if x < end})
    if len(starts) < 2:
        return [Part(path)]
    return [Part(path, *x) for x in itertools.pairwise([*starts, end])]


def _has_json_line(plain: io.BufferedIOBase) -> bool:
    """Whether a file begins with a line that is a JSON object."""
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
    """Counts the lines of a part, and those that are not blank."""
    lines = records = 0
    for line in within(part, plain_lines, part.path):
        lines += 1
        records += not line.isspace()
    return lines, records


def numbered(parts: Sequence[Part], counts: Mapping[Part, tuple]) -> list[Part]:
    """Tells each part what comes before it; leaves those without records out.

    `counts` has the result of `count_lines` for those that are not whole files.
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
    """Opens a plain or gzipped file, told by its first bytes.

    Returns:
        The file as it is, whose position tells how far it has been read, and
        its plain bytes.

    Raises:
        UserError: it cannot be read; `MissingFile`: there is none.
    """
    try:
        if is_remote(path):
            # Opened when it is read, which may be too late for messages.
            raw = _Remote(path) if _gfile().exists(path) else None
        else:
            raw = open(path, "rb", buffering=0)  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # The last is for a name with a null character.
        raw = None
    except IsADirectoryError:
        raise UserError(
            f"{path} is a directory, but a file is expected."
        ) from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}). Check that you may "
            "read it."
        ) from None
    if raw is None:
        raise MissingFile(f"{path}: there is no such file. Check the path.")
    magic = raw.read(len(_GZIP_MAGIC))
    raw.seek(0)
    part = part_of(path)
    if part.stop is not None:
        return raw, io.BufferedReader(_Lines(raw, part), _CHUNK_BYTES)
    if magic == _GZIP_MAGIC:
        return raw, gzip.GzipFile(fileobj=raw)
    return raw, io.BufferedReader(raw, _CHUNK_BYTES)


def plain_lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a file in bytes, as `open_plain` reads them."""
    raw, plain = open_plain(path)
    with raw, plain:
        yield from plain
