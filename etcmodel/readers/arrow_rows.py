"""Reads rows from Parquet files, and from Arrow files, streams and tables."""

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator

from etcmodel import extras
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.readers import files
from etcmodel.readers import json_stream
from etcmodel.readers.json_stream import Place

# Small enough that a batch of long documents fits into memory.
_BATCH_ROWS = 32


def read(
    path: str,
    on_position: json_stream.OnPosition,
    used: Collection[str] | None,
) -> Iterator[tuple[Place, dict]]:
    """Yields the rows of a Parquet or Arrow file, batch by batch.

    Args:
        path: a Parquet file, or an Arrow file in the file or stream format.
        on_position: called with the number of bytes read so far. For Parquet,
            it is estimated from the share of rows read. For Arrow, the function
            is called once, at the end.
        used: names of the columns to read; None for all columns.

    Yields:
        Pairs of the row's `Place` and the row, see `rows`.

    Raises:
        UserError: the file is damaged, two columns have the same name, or
            pyarrow is not installed.
    """
    try:
        extras.require("pyarrow")
    except extras.MissingExtraError:
        raise UserError(
            f"{path}: reading Parquet and Arrow needs pyarrow. Run "
            "`pip install pyarrow`."
        ) from None
    import pyarrow

    raw, plain = files.open_plain(path)
    with raw, plain:
        index = 0
        try:
            if not plain.seekable():
                plain = pyarrow.BufferReader(plain.read())
            names, batches, total = _open(path, plain, used)
            check_names(names, path)
            for batch in batches:
                for row in rows(batch, names, used):
                    yield Place(index), row
                    index += 1
                    if on_position is not None and total:
                        on_position(files.size(path) * index // total)
            if on_position is not None and not total:
                on_position(files.size(path))
        except (pyarrow.ArrowException, OSError, EOFError) as error:
            message = str(error).splitlines()[0]
            raise UserError(
                f"{path}: the Parquet or Arrow data are damaged or truncated "
                f"after {index} whole records ({message}). Get the file again."
            ) from None


def _open(path: str, plain, used: Collection[str] | None):
    """Returns column names, batches, and the number of rows, 0 if unknown."""
    from pyarrow import ipc
    from pyarrow import parquet

    start = plain.read(6)
    plain.seek(0)
    if start[:4] == b"PAR1":
        table = parquet.ParquetFile(plain)
        names = table.schema_arrow.names
        columns = None if used is None else [x for x in names if x in used]
        for i in range(table.metadata.num_row_groups):
            group = table.metadata.row_group(i)
            size = group.total_byte_size // max(group.num_rows, 1)
            files.check_size(size, f"{path}, row group {i}")
        batches = table.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
        return names, batches, max(table.metadata.num_rows, 1)
    if start == b"ARROW1":
        table = ipc.open_file(plain)
        batches = map(table.get_batch, range(table.num_record_batches))
        return table.schema.names, batches, 0
    table = ipc.open_stream(plain)
    return table.schema.names, table, 0


def check_names(names: Iterable[object], where: str) -> None:
    """Raises a `UserError` if two columns have the same name."""
    counts = collections.Counter(map(str, names))
    repeated = sorted(x for x, count in counts.items() if count > 1)
    if repeated:
        raise UserError(
            f"{where}: two columns have the name {show(repeated[0])}. Give "
            "every column its own name."
        )


def rows(
    batch, names: Iterable[str], used: Collection[str] | None
) -> Iterator[dict]:
    """Yields the rows of a `RecordBatch` as dicts of Arrow scalars.

    Each row has all `names` as keys. Fields not in `used` are None.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    unread = [None] * len(batch)
    chosen = [
        columns[x] if used is None or x in used else unread for x in names
    ]
    for values in zip(*chosen, strict=True):
        yield dict(zip(names, values, strict=True))
