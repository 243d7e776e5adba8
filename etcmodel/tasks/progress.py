"""Progress bars for the commands; silent when nobody watches a terminal."""

from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager

import tqdm

from etcmodel.datasets import files


class FileProgress:
    """How far a file has been read, and how many records came out of it."""

    def __init__(self, bar: tqdm.tqdm):
        self._bar = bar
        self._records = 0

    def at(self, position: int) -> None:
        """Moves the bar to a position in the files.

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
def file_progress(
    paths: Sequence[str], description: str
) -> Iterator[FileProgress]:
    """Shows a bar over the bytes of files.

    Args:
        paths: the files that are read.
        description: what is being done.

    Yields:
        What moves the bar.
    """
    with tqdm.tqdm(
        total=sum(map(files.size, paths)),
        desc=description,
        unit="B",
        unit_scale=True,
        disable=None,
        dynamic_ncols=True,
    ) as bar:
        yield FileProgress(bar)


def training_bar(total: int, is_shown: bool) -> tqdm.tqdm:
    """A bar over the steps of a training, with the time that is left.

    Args:
        total: number of steps.
        is_shown: whether to show it, if somebody watches.

    Returns:
        The bar.
    """
    return tqdm.tqdm(
        total=total,
        desc="Training",
        unit="step",
        disable=None if is_shown else True,
        dynamic_ncols=True,
        leave=False,
    )
