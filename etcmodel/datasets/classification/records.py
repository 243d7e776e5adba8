"""Classification and regression: documents with labels or a number.

A row has a document (see `sectioned`) and a `label` or `labels`:

    {"id": "1", "text": "...", "label": "sports"}
    {"id": "2", "text": "...", "labels": ["sports", "Brno"]}
    {"id": "3", "text": "...", "label": 4.5}
"""

import collections
import dataclasses
import functools
import json
import math
import re
import statistics
import unicodedata
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import IO
from typing import Literal

from etcmodel.datasets.predictions import write_lines
from etcmodel.errors import UserError
from etcmodel.errors import show
from etcmodel.errors import where
from etcmodel.readers import row_formats
from etcmodel.readers import sectioned
from etcmodel.readers.records import Format
from etcmodel.readers.sectioned import DocumentRecord
from etcmodel.readers.sectioned import Row

LABEL_FIELDS = ("label", "labels")
LABEL_KINDS = ("auto", "single", "multiple", "number")
Kind = Literal["single", "multiple", "number"]
Label = str | tuple[str, ...] | float
_INTEGER = re.compile(r"-?\d+")
_DECIMAL = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WHOLE_NUMBER = re.compile(rf"({_INTEGER.pattern})\.0+")


class ClassificationRecord(DocumentRecord, frozen=True):
    """A document and its label.

    Attributes:
        label: one label, a tuple of several labels, or a number; None if the
            row has no label.
        num_repeated: number of repeated labels that were dropped.
        labels_as_json: the labels that are numbers or booleans in the row.
    """

    label: str | tuple[str, ...] | float | None = None
    num_repeated: int = 0
    labels_as_json: tuple[str, ...] = ()

    @property
    def counts(self):
        """Number of repeated labels, reported to the user."""
        return {"labels_repeated": self.num_repeated}


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a dataset.

    Attributes:
        kind: "single" for one label per document, "multiple" for any number of
            labels, or "number" for regression.
        names: the labels, sorted; empty for numbers.
        singletons: the labels that only one document has.
        mean: the mean of the numbers.
        standard_deviation: the standard deviation of the numbers.
        counts: number of documents with each label.
        as_json: the labels that are whole numbers, or booleans, in all records;
            empty if whole numbers and booleans are mixed.
    """

    kind: Kind
    names: tuple[str, ...] = ()
    singletons: tuple[str, ...] = ()
    mean: float = 0.0
    standard_deviation: float = 1.0
    counts: Mapping[str, int] = dataclasses.field(
        default_factory=dict, compare=False
    )
    as_json: tuple[str, ...] = dataclasses.field(default=(), compare=False)


def kind_of(label: Label) -> Kind:
    """Returns the kind of a record's label: "single", "multiple", "number"."""
    if isinstance(label, str):
        return "single"
    return "number" if isinstance(label, int | float) else "multiple"


def labels_in(label: str | Iterable[str]) -> Iterable[str]:
    """Returns the labels of a record that has one label or several."""
    return (label,) if isinstance(label, str) else label


def _without_point(name: str) -> str:
    """Drops the decimal point of a whole number: `"1.0"` becomes `"1"`."""
    found = _WHOLE_NUMBER.fullmatch(name)
    return found[1] if found else name


@functools.lru_cache(maxsize=1 << 14)
def comparable(name: str) -> str:
    """Returns a label in Unicode normal form C, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def _normalized(name: str) -> str:
    """Normalizes a label: `"1.0"` becomes `"1"`, `"True"` becomes `"true"`."""
    name = comparable(name)
    lower = name.lower()
    return lower if lower in ("true", "false") else _without_point(name)


class Names:
    """Finds names that are spellings of the same label.

    Two names are spellings of the same label if they are equal in Unicode
    normal form C with single spaces. A known label `"1"` or `"true"` also
    matches `"1.0"` or `"True"`. Known labels are never merged.
    """

    def __init__(self, labels: Collection[str]):
        self._labels = frozenset(labels)
        self._normalized = {_normalized(x): x for x in reversed([*labels])}

    def find(self, name: str) -> str:
        """Returns the known label that a name matches, or else the name."""
        if name in self._labels:
            return name
        return self._normalized.get(_normalized(name), name)

    def group(self, names: Iterable[str]) -> list[list[str]]:
        """Groups names by label; keeps their order."""
        groups = {}
        for name in names:
            key = name if name in self._labels else comparable(name)
            groups.setdefault(key, []).append(name)
        return [*groups.values()]


def _is_multi_hot(labels: list) -> bool:
    """Returns whether a list has only zeros and ones, some repeated."""
    words = {"true": 1, "false": 0}
    flags = [words.get(str(x).lower(), sectioned.whole(x)) for x in labels]
    return len({*map(str, flags)}) < len(flags) and all(
        x in (0, 1) for x in flags
    )


class _LabelReader:
    def __init__(self, row: Row, field: str, kind: str, names: Names):
        self._row = row
        self._field = field
        self._kind = kind
        self._names = names
        self.as_json = []

    def read(self, value: object) -> Label:
        """Converts the field's value to a label."""
        if self._kind == "number":
            return self._number(value)
        if isinstance(value, list):
            if self._kind == "single":
                raise self._wrong(value, "one label, a string")
            if _is_multi_hot(value):
                raise self._wrong(
                    value,
                    'the names of the labels, such as ["a", "b"], not 0 or 1 '
                    "for each label",
                )
            for i, x in enumerate(value):
                if isinstance(sectioned.whole(x), float):
                    raise self._row.wrong(
                        f"{self._field}[{i}]", x, "the name of a label"
                    )
            places = (f"{self._field}[{i}]" for i in range(len(value)))
            return tuple(map(self._name, value, places))
        if self._kind == "auto" and isinstance(value, float):
            return self._number(value)
        name = self._name(value, self._field)
        return (name,) if self._kind == "multiple" else name

    def _wrong(self, value, expected):
        return self._row.wrong(self._field, value, expected)

    def _number(self, value: object) -> float:
        number = math.nan
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                # Python parses "1_000" as 1000, which is rejected here.
                number = float(str(value).replace("_", "?"))
            except (ValueError, OverflowError):
                pass
        if not math.isfinite(number):
            raise self._wrong(value, "a finite number")
        return number

    def _name(self, value: object, place: str) -> str:
        """Returns one label as text: `"3"` for 3 and 3.0, `"true"` for true."""
        if isinstance(value, float) and math.isfinite(value):
            value = sectioned.whole(value)
        elif not isinstance(value, bool | int | str):
            raise self._row.wrong(
                place, value, "a label: a string, a whole number, true or false"
            )
        name = value if isinstance(value, str) else json.dumps(value)
        name = self._row.text(place, name, may_be_empty=False)
        name = self._names.find(name.strip())
        if not isinstance(value, str):
            self.as_json.append(name)
        return name


def _make(kind: str, names: Names, row: Row) -> ClassificationRecord:
    document = row.document()
    field = row.find(row.fields.label, LABEL_FIELDS)
    value = None if field is None else row.values[field]
    label, num_repeated, as_json = None, 0, ()
    # An empty cell means no label: CSV cannot leave out a cell.
    if value is not None and not (isinstance(value, str) and not value.strip()):
        reader = _LabelReader(row, field, kind, names)
        label, as_json = reader.read(value), tuple(reader.as_json)
    if isinstance(label, tuple):
        distinct = tuple(x[0] for x in names.group(label))
        label, num_repeated = distinct, len(label) - len(distinct)
    return ClassificationRecord(
        id=row.id,
        sections=document.sections,
        query=row.query(),
        has_units=document.has_units,
        label=label,
        num_repeated=num_repeated,
        labels_as_json=as_json,
        source=row.source,
    )


def _check(field: str, record: ClassificationRecord, split: str) -> None:
    if split != "predict" and record.label is None:
        raise record.missing_answer(
            *("label", field, None, split), sectioned.NO_LABEL
        )


def make_format(
    text_field: str | None = None,
    query_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    label_kind: str = "auto",
    labels: Collection[str] = (),
    title_field: str | None = None,
) -> Format:
    """Returns the format of rows with labels.

    Args:
        text_field: name of the field with the document, instead of the usual
            names (see `sectioned.Fields`).
        query_field: name of the field with the query.
        id_field: name of the field with the id.
        label_field: name of the field with the label.
        label_kind: "single" for one label; "multiple" for several, where a
            string is a list of one label; "number", where numeric strings are
            numbers; or "auto". With "auto", a list has several labels, a number
            with a fraction or an exponent is a number, and any other value is
            one label. Integers and booleans become labels such as `"3"` and
            `"true"`.
        labels: the known labels, if any. They set the spelling: `"3.0"` becomes
            `"3"` if `"3"` is known, and `"3"` becomes `"3.0"` if only `"3.0"`
            is known.
        title_field: name of the field with the title, if there is one.

    Raises:
        ValueError: `label_kind` has another value.
    """
    if label_kind not in LABEL_KINDS:
        raise ValueError(
            f"label_kind is {label_kind!r}, expected one of "
            f"{', '.join(LABEL_KINDS)}."
        )
    return row_formats.row_format(
        functools.partial(_make, label_kind, Names(labels)),
        functools.partial(_check, label_field or LABEL_FIELDS[0]),
        sectioned.Fields(
            text_field, query_field, id_field, label_field, title=title_field
        ),
        f'"{text_field or "text"}": "...", "{label_field or "label"}": "..."',
        LABEL_FIELDS,
    )


FORMAT = make_format()


def find_labels(
    records: Iterable[ClassificationRecord],
    label_kind: str = "auto",
    known: Collection[str] = (),
) -> Labels:
    """Finds the labels of records; skips records without a label.

    Spellings of the same label (see `Names`) are counted together. The most
    common spelling becomes the label; among equally common ones, the first.

    If all labels are whole numbers and some have a decimal point, such as `"1"`
    and `"2.0"`, the labels are `"1"` and `"2"`. Pass the `label_kind` and the
    labels (`known`) with which `make_format` was called to read the records.

    Raises:
        UserError: the records have labels of several kinds; or there is nothing
            to learn, since no record has a label, or all have the same labels
            or number; or, for "auto", it is unclear whether labels are classes
            or numbers. This is so if all labels are numbers as text, some with
            a decimal point, or if all are floats without a fraction.
    """
    examples: dict[Kind, ClassificationRecord] = {}
    counts = collections.Counter()
    numbers = []
    as_json, as_text = set(), set()
    num_labels = 0
    for record in records:
        label = record.label
        if label is None:
            continue
        kind = kind_of(label)
        examples.setdefault(kind, record)
        if len(examples) > 1:
            raise _mixed_kinds(examples)
        if kind == "number":
            numbers.append(label)
        else:
            counts.update(labels_in(label))
            as_json.update(record.labels_as_json)
            texts = {*labels_in(label)} - {*record.labels_as_json}
            as_text.update(map(_normalized, texts))
            num_labels += kind == "multiple"
    if not examples:
        raise UserError(
            "No record has a label. Set `label_field` to the field that has "
            "the labels."
        )
    ((kind, example),) = examples.items()
    path = example.source.path
    if kind == "number":
        if label_kind == "auto" and all(x.is_integer() for x in numbers):
            raise _classes_or_numbers(path, example.label)
        deviation = statistics.pstdev(numbers)
        if not deviation:
            raise UserError(
                f"{path}: all records have the number {show(example.label)}. "
                "Expected at least two different numbers."
            )
        mean = statistics.fmean(numbers)
        return Labels(kind, mean=mean, standard_deviation=deviation)
    counts = collections.Counter(
        {
            max(names, key=counts.get): sum(map(counts.get, names))
            for names in Names(known).group(counts)
        }
    )
    with_point = [x for x in counts if not _INTEGER.fullmatch(x)]
    if (
        with_point
        and not known
        and label_kind == "auto"
        and all(map(_DECIMAL.fullmatch, counts))
    ):
        raise _classes_or_numbers(path, with_point[0])
    is_whole = all(_INTEGER.fullmatch(_without_point(x)) for x in counts)
    if with_point and is_whole and not known:
        given, counts = counts, collections.Counter()
        for name, number in given.items():
            counts[_without_point(name)] += number
    if not counts or kind == "single" and len(counts) < 2:
        found = "no label"
        if counts:
            found = f"the label {show(next(iter(counts)))}"
        least = "two labels" if kind == "single" else "one label"
        raise UserError(
            f"{path}: all records have {found}. Expected at least {least}."
        )
    if num_labels > 1 and {*counts.values()} == {num_labels}:
        raise UserError(
            f"{path}: all records have all labels: "
            f"{', '.join(map(show, [*counts][:4]))}. Expected a different list "
            "in some records. Write the names of a record's labels, not 0 or 1 "
            "for each label."
        )
    names = tuple(sorted(counts))
    singletons = tuple(x for x in names if counts[x] == 1)
    as_json = {x for x in as_json if _normalized(x) not in as_text}
    # Compares labels as text, since 1 and True are equal in Python.
    has_both = len({x in ("true", "false") for x in as_json}) > 1
    as_json = () if has_both else tuple(x for x in names if x in as_json)
    return Labels(kind, names, singletons, counts=counts, as_json=as_json)


def _classes_or_numbers(path: str, label: Label) -> UserError:
    """Returns the error for labels that may be classes or numbers."""
    return UserError(
        f"{path}: all labels are numbers, and some have a decimal point, such "
        f"as {show(label)}. Set `label_kind` to single (for classes) or number."
    )


_WORDS = {
    "single": "one label",
    "multiple": "a list of labels",
    "number": "a number",
}


def _mixed_kinds(examples: Mapping[Kind, ClassificationRecord]) -> UserError:
    first, second = (
        f"{where(*x.source, x.id)} has {_WORDS[kind]}, {show(x.label)}"
        for kind, x in examples.items()
    )
    return UserError(
        f"Records have different kinds of labels: {first}, but {second}. Set "
        "`label_kind` to single, multiple or number."
    )


def gold(record: ClassificationRecord) -> Label | None:
    """Returns the label, labels or number; None if the row has none."""
    return record.label


def stratum(record: ClassificationRecord) -> str | None:
    """Returns the label to stratify by; None unless there is exactly one."""
    label = record.label
    return comparable(label) if isinstance(label, str) else None


def unknown_labels(label: Label, known: Collection[str]) -> list[str]:
    """Returns a record's labels that are not in `known`; none for a number."""
    if isinstance(label, int | float):
        return []
    return [x for x in labels_in(label) if x not in known]


def write_predictions(
    predictions: Mapping[str, Mapping], stream: IO[str]
) -> None:
    """Writes lines `{"id": ..., "label": ..., "probabilities": {...}}`."""
    for name, prediction in predictions.items():
        line = {"id": name, "label": prediction["label"]}
        if prediction.get("probabilities") is not None:
            line["probabilities"] = dict(prediction["probabilities"])
        write_lines([line], stream)
