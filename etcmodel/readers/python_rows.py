"""Reads rows from Python collections."""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping

from etcmodel import extras
from etcmodel.errors import show
from etcmodel.readers import arrow_rows
from etcmodel.readers import cells
from etcmodel.readers import sectioned

_SOURCE = "the records"


def rows_of(
    source: object,
    text_field: str | None = None,
    used: Collection[str] | None = None,
) -> Iterator[dict]:
    """Yields rows from Python collections.

    Args:
        source: one of

            *   an iterable of dicts, such as a list or a Hugging Face
                `datasets.Dataset`; a string element means `{"text": element}`,
                whose lines that begin with `# ` are titles (see
                `sectioned.split_sections`);
            *   a pandas `DataFrame`;
            *   a `tf.data.Dataset` of dicts;
            *   an Arrow table or stream, or an object that exports one, such as
                a Polars data frame;
            *   a dict from field to column, with columns of equal length.
        text_field: the field for string elements; by default, "text".
        used: names of the fields to read; None for all.

    Yields:
        Dicts from field to value, as in `cells.read_row`. Integers of a Hugging
        Face `ClassLabel` become class names.

    Raises:
        TypeError: `source` or one of its elements has another type, or is
            batched.
        UserError: two columns have the same name.
        ValueError: the columns differ in length.
    """
    features = getattr(source, "features", None)
    if not isinstance(features, Mapping):
        features = {}
    if isinstance(source, str | bytes) or not _is_iterable(source):
        raise TypeError(
            f"Got {show(source)}, expected rows: an iterable of dicts or "
            "strings, a DataFrame, a tf.data.Dataset, or a dict of columns."
        )
    if hasattr(source, "as_numpy_iterator"):
        source = _unbatched(source.as_numpy_iterator())
    elif hasattr(source, "select_columns") and features:
        source = _selected(source, used)
    elif hasattr(source, "iloc") and hasattr(source, "columns"):
        source = _frame_rows(source, used)
    elif hasattr(source, "__arrow_c_stream__") and hasattr(source, "schema"):
        source = _arrow_rows(source, used)
    elif isinstance(source, Mapping):
        source = _column_rows(source)
    for index, element in enumerate(source):
        is_text = isinstance(element, str | bytes)
        if element is None or is_text:
            element = {text_field or "text": element}
        if not isinstance(element, Mapping):
            raise TypeError(
                f"Element {index} is {show(element)}, expected a dict from "
                'field to value, such as {"text": "..."}, or a string.'
            )
        row = cells.read_row(element.items(), used)
        if len(row) < len(element):
            arrow_rows.check_names(element, f"{_SOURCE}, element {index}")
        if is_text:
            row = {x: _with_sections(y) for x, y in row.items()}
        yield {
            name: _with_names(value, features.get(name))
            for name, value in row.items()
        }


def _with_sections(value: object) -> object:
    """Splits a plain text at its headings."""
    return sectioned.split_sections(value) if isinstance(value, str) else value


def _is_iterable(source: object) -> bool:
    return hasattr(source, "__iter__") or hasattr(source, "__getitem__")


def _unbatched(elements: Iterator[object]) -> Iterator[object]:
    """Yields the elements of a dataset; raises a `TypeError` for batches."""
    for index, element in enumerate(elements):
        if index == 0 and isinstance(element, dict) and len(element) > 1:
            values = element.values()
            shapes = {getattr(x, "shape", ())[:1] for x in values}
            # A single document may have a list with a boolean for each of its
            # texts.
            has_flags = any(
                str(getattr(x, "dtype", "")) == "bool" for x in values
            )
            if len(shapes) == 1 and shapes != {()} and not has_flags:
                raise TypeError(
                    f"All fields of element 0 have {shapes.pop()[0]} values: "
                    "the dataset seems to be batched. Pass "
                    "`dataset.unbatch()`. If each element is one document, "
                    'add a scalar field such as "id".'
                )
        yield element


def _selected(dataset, used: Collection[str] | None) -> Iterator[dict]:
    """Yields the rows of a Hugging Face dataset; decodes only used columns."""
    names = list(dataset.features)
    chosen = [x for x in names if used is None or x in used]
    kind = (getattr(dataset, "format", None) or {}).get("type")
    if kind in ("pandas", "arrow", "polars"):
        dataset = dataset.with_format(None)
    # A transform may need any column.
    if used is not None and kind != "custom":
        # A dataset without columns has no rows, so one column is kept.
        dataset = dataset.select_columns(chosen or names[:1])
    for index, row in enumerate(dataset):
        if not isinstance(row, Mapping):
            raise TypeError(
                f"Element {index} is a {type(row).__name__}, expected a dict. "
                "Remove the dataset's format: `dataset.with_format(None)`."
            )
        row = {name: row.get(name) for name in names}
        if not index:
            _check_no_batch(chosen, row)
        yield row


def _check_no_batch(names: Collection[str], row: Mapping) -> None:
    """Raises a `TypeError` if all fields are lists of the same length."""
    lists = [row[x] for x in names if isinstance(row[x], list)]
    sizes = {len(x) for x in lists}
    if 1 < len(lists) == len(names) and len(sizes) == 1:
        raise TypeError(
            f"All fields of element 0 are lists of {sizes.pop()} values: the "
            "dataset seems to be batched. Pass the one before `batch`. If each "
            'element is one document, add a scalar field such as "id".'
        )


def _with_names(value: object, feature: object) -> object:
    """Replaces integers of a Hugging Face `ClassLabel` by class names."""
    if isinstance(value, list):
        # Two forms declare a list: `[feature]` and an object with `feature`.
        inner = getattr(feature, "feature", None)
        if isinstance(feature, list) and feature:
            (inner,) = feature
        return (
            value if inner is None else [_with_names(x, inner) for x in value]
        )
    if not hasattr(feature, "int2str") or not isinstance(value, int):
        return value
    if value >= feature.num_classes:
        return cells.BadCell(
            "unknown class",
            f"got class {value}, expected a class below {feature.num_classes}",
        )
    # Hugging Face stores an unknown class as -1.
    return None if value < 0 else feature.int2str(value)


def _frame_rows(frame, used: Collection[str] | None) -> Iterator[dict]:
    """Yields the rows of a pandas DataFrame; ignores the index."""
    names = [str(x) for x in frame.columns]
    arrow_rows.check_names(names, _SOURCE)
    columns = [
        frame.iloc[:, i]
        if used is None or name in used
        else [None] * len(frame)
        for i, name in enumerate(names)
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _arrow_rows(source, used: Collection[str] | None) -> Iterator[dict]:
    extras.require("pyarrow")
    import pyarrow

    reader = pyarrow.RecordBatchReader.from_stream(source)
    names = reader.schema.names
    arrow_rows.check_names(names, _SOURCE)
    for batch in reader:
        yield from arrow_rows.rows(batch, names, used)


def _column_rows(columns: Mapping) -> Iterator[dict]:
    arrow_rows.check_names(columns, _SOURCE)
    for name, column in columns.items():
        if hasattr(column, "column_names"):
            raise TypeError(
                f"Got a dict of datasets, {list(columns)}. Pass one of them."
            )
        if isinstance(column, str | bytes | Mapping) or not hasattr(
            column, "__len__"
        ):
            raise TypeError(
                f"Column {name!r} is {show(column)}, expected a list of "
                'values, as in pandas\' to_dict("list").'
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Columns must be equally long, got {lengths}.")
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))
