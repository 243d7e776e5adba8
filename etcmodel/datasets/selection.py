"""Selection: documents with selected sentences or paragraphs.

A row has a document (see `sectioned`), the selected units (see
`unit_positions.read_selected`) and, optionally, a `query`:

    {"id": "1", "query": "Where is Brno?", "paragraphs": [["Brno is a city.",
     "It is in Moravia."], ["Jan paints."]], "selected": [[0, 1]]}
    {"id": "2", "text": "Jan paints. Brno is a city.",
     "selected": ["Brno is a city."]}
"""

import functools
from collections.abc import Iterable
from collections.abc import Mapping
from typing import IO

from etcmodel import extras
from etcmodel.datasets import answer_metrics
from etcmodel.datasets import unit_positions
from etcmodel.datasets.predictions import write_lines
from etcmodel.datasets.unit_positions import Position
from etcmodel.datasets.unit_positions import Selected
from etcmodel.datasets.unit_positions import Unit as Unit
from etcmodel.readers import row_formats
from etcmodel.readers import sectioned
from etcmodel.readers.records import Format
from etcmodel.readers.sectioned import DocumentRecord
from etcmodel.readers.sectioned import Row

SELECTED_FIELDS = ("selected", "evidence", "supporting_facts")


class SelectionRecord(DocumentRecord, frozen=True):
    """A document and its selected units.

    Attributes:
        selected: positions of the selected units: index of the paragraph,
            counted through all sections, and index of the text in it, or -1 for
            a whole paragraph; None if the row has no selection.
        selected_texts: the selected texts, instead of positions, if the
            document is not split into sentences yet;
            `unit_positions.find_units` finds their positions.
    """

    selected: tuple[Position, ...] | None = None
    selected_texts: tuple[str, ...] = ()


def _make(units: str, row: Row) -> SelectionRecord:
    document = row.document()
    field = row.find(row.fields.label, SELECTED_FIELDS)
    selected, texts = None, ()
    # An empty cell means no selection: CSV cannot leave out a cell.
    if field is not None and row.values[field] != "":
        selected, texts = unit_positions.read_selected(
            row, field, document, units
        )
    return SelectionRecord(
        id=row.id,
        sections=document.sections,
        query=row.query(),
        has_units=document.has_units,
        selected=selected,
        selected_texts=texts,
        source=row.source,
    )


def _check(field: str, record: SelectionRecord, split: str) -> None:
    if split != "predict" and record.selected is None:
        raise record.missing_answer(
            *("selected texts", field, None, split), sectioned.NO_LABEL
        )


def make_format(
    text_field: str | None = None,
    query_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    units: str = "auto",
    title_field: str | None = None,
) -> Format:
    """Returns the format of rows with selected units.

    Each `..._field` is the name of a field, instead of the usual names (see
    `sectioned.Fields`). `units` sets the units that can be selected (see
    `unit_positions.read_selected`).

    Raises:
        ValueError: `units` is unknown.
    """
    unit_positions.check_units(units)
    field = label_field or SELECTED_FIELDS[0]
    return row_formats.row_format(
        functools.partial(_make, units),
        functools.partial(_check, field),
        sectioned.Fields(
            text_field, query_field, id_field, label_field, title=title_field
        ),
        f'"{text_field or "paragraphs"}": [["...", ...], ...], "{field}": '
        "[[0, 1], ...]",
        SELECTED_FIELDS,
    )


FORMAT = make_format()


def gold(record: SelectionRecord) -> Selected | None:
    """Returns the selected positions or texts; None if the row has none."""
    if record.selected is None:
        return None
    return Selected(record.selected, record.selected_texts)


def write_predictions(
    predictions: Mapping[str, Iterable[tuple]], stream: IO[str]
) -> None:
    """Writes one JSON line per document.

    Each line is `{"id": ..., "selected": [[paragraph, text], ...], "scores":
    [[paragraph, text, score], ...]}`. For `predictions`, see `score`.
    """
    for name, units in predictions.items():
        units = [Unit(*x) for x in units]
        line = {
            "id": name,
            "selected": [x[:2] for x in units if x.is_selected],
            "scores": [(*x[:2], float(x.score)) for x in units],
        }
        write_lines([line], stream)


def unit_scores(
    units: Iterable[Unit], right: set[Position]
) -> answer_metrics.Scores:
    """Compares the selected units of one document with the right ones.

    All scores are 1 if no unit is selected and none is right.
    """
    selected = {x[:2] for x in units if x.is_selected}
    if not selected and not right:
        return answer_metrics.Scores(1.0, 1.0, 1.0, 1.0)
    return answer_metrics.set_scores(selected, right)


def score(
    predictions: Mapping[str, Iterable[tuple]], gold: Mapping[str, Selected]
) -> dict[str, float]:
    """Scores selected units and their ranks, from 0 to 1.

    A document without a prediction scores 0.

    Args:
        predictions: record id -> tuples like `Unit` for all units of the
            document, in order; the content may be left out if `gold` has
            positions.
        gold: record id -> the right units.

    Returns:
        `precision`, `recall` and `f1` are means over documents, like those of
        HotpotQA's supporting facts. They are 1 for a document with neither gold
        nor selected units. `micro_f1` is the F1 of the units of all documents
        together. `mean_average_precision` is the mean of scikit-learn's
        `average_precision_score` over documents with gold units; it is left out
        if there are none.
    """
    totals = answer_metrics.Scores()
    counts = [0, 0, 0]
    ranks = []
    for key, selected in gold.items():
        units = [Unit(*x) for x in predictions.get(key, ())]
        right = unit_positions.right_positions(selected, units)
        if key in predictions:
            scores = unit_scores(units, right)
            totals = answer_metrics.Scores(
                *map(sum, zip(totals, scores, strict=True))
            )
        found = {x[:2] for x in units if x.is_selected}
        for i, x in enumerate((found & right, found, right)):
            counts[i] += len(x)
        if right:
            ranks.append(_average_precision(units, right))
    number = max(len(gold), 1)
    common, found, right = counts
    result = {
        "precision": totals.precision / number,
        "recall": totals.recall / number,
        "f1": totals.f1 / number,
        "micro_f1": 2 * common / max(found + right, 1),
    }
    if ranks:
        result["mean_average_precision"] = sum(ranks) / len(ranks)
    return result


def _average_precision(units: list[Unit], right: set[Position]) -> float:
    """Computes average precision; missing right units rank last."""
    extras.require("sklearn")
    from sklearn import metrics

    if not units:
        return 0.0
    num_missing = len(right - {x[:2] for x in units})
    scores = [x.score for x in units]
    scores += [min(scores) - 1] * num_missing
    is_right = [x[:2] in right for x in units] + [True] * num_missing
    return float(metrics.average_precision_score(is_right, scores))
