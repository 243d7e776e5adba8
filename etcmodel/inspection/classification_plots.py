"""Draws the confusion matrix and the calibration of predicted labels."""

import collections
import os
import warnings
from collections.abc import Iterator
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from etcmodel import extras
from etcmodel.datasets import classification
from etcmodel.pipeline.atomic import atomic_file

# Endings of the pictures' names.
ENDINGS = ("_confusion.png", "_calibration.png")
MAX_LABELS = 40
OTHERS = "(other labels)"
MISSING = "(no prediction)"
_OUTCOMES = ("found", "missed", "added")
_MAX_NAME_CHARS = 24
_NUM_BINS = 10
# In inches: a cell, the minimum side, the margin of the matrix, a character.
_CELL, _MIN_SIDE, _MARGIN, _CHARACTER = 0.34, 2.5, 1.4, 0.08


class ConfusionMatrix(NamedTuple):
    """Numbers of documents by right label and prediction.

    Attributes:
        rows: names of the rows, the right labels.
        columns: names of the columns: predicted labels, or outcomes where
            documents have several labels.
        counts: `<int>[rows, columns]`.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: np.ndarray


class Calibration(NamedTuple):
    """Accuracy of predicted labels by their probability.

    Attributes:
        probabilities: `<float>[bins]`, the mean probability in each bin of
            width 0.1 that is not empty.
        accuracies: `<float>[bins]`, the share that is right.
        counts: `<int>[bins]`, the number of labels.
        expected_error: the mean distance of the two, weighted by the counts.
    """

    probabilities: np.ndarray
    accuracies: np.ndarray
    counts: np.ndarray
    expected_error: float


def confusion_matrix(predictions: Mapping, gold: Mapping) -> ConfusionMatrix:
    """Counts the predictions for the documents of each label.

    Args:
        predictions: as for `classification.score`.
        gold: as for `classification.score`; not numbers.

    Returns:
        One label: rows and columns are labels, with one more column if some
        documents have no prediction. Several labels: the columns are "found",
        "missed" and "added" (predicted and wrong). Beyond 40 labels, the less
        frequent ones are counted together.

    Raises:
        ValueError: there are no documents, or numbers instead of labels.
    """
    kind = _kind(gold)
    missing = {"label": MISSING if kind == "single" else ()}
    pairs = [
        (truth, predictions.get(key, missing)["label"])
        for key, truth in gold.items()
    ]
    if kind == "multiple":
        return _outcomes(pairs)
    extras.require("sklearn")
    from sklearn import metrics

    names = _frequent(pairs)
    columns = names
    if any(found == MISSING for _, found in pairs):
        columns += (MISSING,)
    truths, found = (
        [x if x in columns else OTHERS for x in side]
        for side in zip(*pairs, strict=True)
    )
    counts = metrics.confusion_matrix(truths, found, labels=columns)
    return ConfusionMatrix(names, columns, counts[: len(names)])


def calibration(predictions: Mapping, gold: Mapping) -> Calibration:
    """Compares probabilities with the share of right predictions.

    Args:
        predictions: as for `classification.score`. Those without probabilities
            are ignored.
        gold: as for `classification.score`; not numbers.

    Returns:
        One label: of the predicted label of each document. Several labels: of
        each label of each document.

    Raises:
        ValueError: there are no documents, or numbers instead of labels.
    """
    extras.require("sklearn")
    from sklearn.calibration import calibration_curve

    kind = _kind(gold)
    pairs = [
        pair
        for key, truth in gold.items()
        for pair in _judged(predictions.get(key, {}), truth, kind)
    ]
    if not pairs:
        nothing = np.zeros(0)
        return Calibration(nothing, nothing, nothing.astype(int), 0.0)
    right, probabilities = map(np.array, zip(*pairs, strict=True))
    # float32 softmax may exceed 1 by a rounding error.
    probabilities = np.clip(probabilities, 0, 1)
    accuracies, means = calibration_curve(
        right, probabilities, n_bins=_NUM_BINS, strategy="uniform"
    )
    # As in `calibration_curve`: a bin includes its upper end.
    ends = np.linspace(0, 1, _NUM_BINS + 1)[1:-1]
    counts = np.bincount(np.searchsorted(ends, probabilities))
    counts = counts[counts > 0]
    error = np.average(np.abs(means - accuracies), weights=counts)
    return Calibration(means, accuracies, counts, float(error))


def _kind(gold: Mapping) -> classification.Kind:
    """Returns the kind of labels; raises a ValueError if none can be drawn."""
    if not gold:
        raise ValueError("There are no documents to draw.")
    kind = classification.kind_of(next(iter(gold.values())))
    if kind == "number":
        raise ValueError("Got numbers, expected labels to draw.")
    return kind


def _frequent(pairs) -> tuple[str, ...]:
    """Returns the labels to draw, sorted, with `OTHERS` last if needed."""
    counts = collections.Counter()
    for pair in pairs:
        for i, labels in enumerate(pair):
            for name in (labels,) if isinstance(labels, str) else labels:
                # Labels that are only predicted come last.
                counts[name] += not i
    del counts[MISSING]
    names = sorted(counts, key=lambda x: (-counts[x], x))
    shown = tuple(sorted(names[:MAX_LABELS]))
    return shown + (OTHERS,) * (len(names) > MAX_LABELS)


def _outcomes(pairs) -> ConfusionMatrix:
    """Counts documents by label and outcome."""
    names = _frequent(pairs)
    counts = np.zeros((len(names), len(_OUTCOMES)), int)
    for truth, found in pairs:
        truth, found = set(truth), set(found)
        for column, labels in enumerate(
            (truth & found, truth - found, found - truth)
        ):
            for name in labels:
                row = name if name in names else OTHERS
                counts[names.index(row), column] += 1
    return ConfusionMatrix(names, _OUTCOMES, counts)


def _judged(prediction: Mapping, truth, kind) -> Iterator[tuple[bool, float]]:
    """Yields whether labels are right, and their probabilities."""
    probabilities = prediction.get("probabilities") or {}
    if kind == "multiple":
        for name, probability in probabilities.items():
            yield name in truth, probability
    elif prediction.get("label") in probabilities:
        label = prediction["label"]
        yield label == truth, probabilities[label]


def write_confusion_matrix(
    path: str | os.PathLike, predictions: Mapping, gold: Mapping
) -> str:
    """Writes a picture (PNG) of `confusion_matrix`; returns its path.

    Raises:
        MissingExtraError: matplotlib or scikit-learn is not installed.
        UserError: the file cannot be written.
        ValueError: as for `confusion_matrix`.
    """
    return _save(_draw_matrix(confusion_matrix(predictions, gold)), path)


def write_calibration(
    path: str | os.PathLike, predictions: Mapping, gold: Mapping
) -> str:
    """Writes a picture (PNG) of `calibration`; returns its path.

    Raises:
        MissingExtraError: matplotlib or scikit-learn is not installed.
        UserError: the file cannot be written.
        ValueError: as for `calibration`.
    """
    return _save(_draw_calibration(calibration(predictions, gold)), path)


def _shorten(text: str) -> str:
    if len(text) <= _MAX_NAME_CHARS:
        return text
    return text[: _MAX_NAME_CHARS - 1] + "\u2026"


def _draw_matrix(matrix: ConfusionMatrix):
    """Draws counts in cells whose color is the share of their row."""
    extras.require("matplotlib")
    from matplotlib.figure import Figure

    rows, columns = (list(map(_shorten, x)) for x in matrix[:2])
    counts = matrix.counts
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    width, height = (
        max(_CELL * len(x), _MIN_SIDE)
        + _MARGIN
        + _CHARACTER * max(map(len, other), default=0)
        for x, other in ((columns, rows), (rows, columns))
    )
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(counts / totals, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    size = 9 if counts.max(initial=0) < 1000 else 6
    for (row, column), count in np.ndenumerate(counts):
        if count:
            is_dark = count / totals[row, 0] > 0.5
            axes.text(
                column,
                row,
                str(count),
                ha="center",
                va="center",
                fontsize=size,
                color="white" if is_dark else "black",
            )
    axes.set_xlabel("outcome" if matrix.columns == _OUTCOMES else "predicted")
    axes.set_ylabel("right label")
    axes.set_title("Documents", fontsize=10)
    figure.colorbar(image, label="share of the row", shrink=0.8)
    # Labels may contain dollar signs.
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
    return figure


def _draw_calibration(curve: Calibration):
    """Draws accuracy by probability, above the number of labels."""
    extras.require("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    top.plot((0, 1), (0, 1), color="gray", linestyle=":", label="calibrated")
    top.plot(
        curve.probabilities, curve.accuracies, marker="o", label="predicted"
    )
    top.set(xlim=(0, 1), ylim=(0, 1), ylabel="share that is right")
    top.set_title(
        f"Expected calibration error: {curve.expected_error:.3f}", fontsize=10
    )
    top.legend(loc="upper left")
    bottom.bar(curve.probabilities, curve.counts, width=0.06)
    bottom.set(xlabel="probability", ylabel="labels")
    return figure


def _save(figure, path: str | os.PathLike) -> str:
    path = os.fspath(path)
    with warnings.catch_warnings(), atomic_file(path, "wb") as stream:
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(stream, format="png", dpi=120)
    return path


def write_plots(prefix: str, predictions: Mapping, gold: Mapping) -> list[str]:
    """Writes both pictures beside a file; returns their paths.

    Draws nothing for numbers.

    Args:
        prefix: the path of the file, without its ending.
        predictions: as for `classification.score`.
        gold: as for `classification.score`.
    """
    if "number" in {classification.kind_of(x) for x in gold.values()}:
        return []
    paths = [f"{prefix}{ending}" for ending in ENDINGS]
    write_confusion_matrix(paths[0], predictions, gold)
    write_calibration(paths[1], predictions, gold)
    return paths
