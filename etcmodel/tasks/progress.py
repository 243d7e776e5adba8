"""Progress bars for the commands; silent when nobody watches a terminal."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import tqdm


class FileProgress:
    """How far a file has been read, and how many records came out of it."""

    def __init__(self, bar: tqdm.tqdm):
        self._bar = bar
        self._records = 0

    def at(self, position: int) -> None:
        """Moves the bar to a position in the file.

        Args:
            position: bytes read so far.
        """
        self._bar.update(position - self._bar.n)

    def done(self, count: int = 1) -> None:
        """Counts finished records.

        Args:
            count: how many more.
        """
        self._records += count
        self._bar.set_postfix_str(f"{self._records} records", refresh=False)


@contextmanager
def file_progress(path: str, description: str) -> Iterator[FileProgress]:
    """Shows a bar over the bytes of a file.

    Args:
        path: the file that is read.
        description: what is being done.

    Yields:
        What moves the bar.
    """
    total = os.path.getsize(path) if os.path.isfile(path) else None
    with tqdm.tqdm(
        total=total,
        desc=description,
        unit="B",
        unit_scale=True,
        disable=None,
        dynamic_ncols=True,
    ) as bar:
        yield FileProgress(bar)
