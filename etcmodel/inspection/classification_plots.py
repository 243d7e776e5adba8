"""Writes a report, a confusion matrix and a calibration curve of labels."""

import collections
import warnings
from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np

from etcmodel import extras
from etcmodel.datasets import classification
from etcmodel.pipeline.atomic import atomic_file

# Endings of the file names, after the prefix.
ENDINGS = ("_report.txt", "_confusion.png", "_calibration.png")
MAX_LABELS = 40
OTHERS = "(other labels)"
MISSING = "(no prediction)"
_MAX_NAME_CHARS = 24
_NUM_BINS = 10
# In inches: a cell of the matrix, and the margin around all cells.
_CELL, _MARGIN = 0.34, 3.0


def write_plots(prefix: str, predictions: Mapping, gold: Mapping) -> list[str]:
    """Writes scikit-learn's report and plots of labels; returns the paths.

    The report has precision, recall and F1 of each label. The confusion matrix
    is written if documents have one label; beyond 40 labels, the less frequent
    ones are counted together. The calibration curve compares the probability of
    the predicted label (of every label, if documents may have several) with the
    share of correct predictions. Nothing is written if the labels are numbers.

    Args:
        prefix: the start of the paths.
        predictions: as for `classification.score`.
        gold: as for `classification.score`.

    Raises:
        MissingExtraError: matplotlib or scikit-learn is not installed.
        UserError: a file cannot be written.
    """
    (kind,) = {classification.kind_of(x) for x in gold.values()}
    if kind == "number":
        return []
    missing = {"label": MISSING if kind == "single" else ()}
    pairs = [
        (truth, predictions.get(key, missing)["label"])
        for key, truth in gold.items()
    ]
    judged = [
        pair
        for key, truth in gold.items()
        for pair in _judged(predictions.get(key, {}), truth, kind)
    ]
    report, confusion, calibration = (f"{prefix}{x}" for x in ENDINGS)
    with atomic_file(report) as stream:
        stream.write(make_report(pairs))
    written = [report]
    if kind == "single":
        _save(draw_confusion(pairs), confusion)
        written.append(confusion)
    if judged:
        _save(draw_calibration(judged), calibration)
        written.append(calibration)
    return written


def _judged(prediction: Mapping, truth, kind) -> Iterator[tuple[bool, float]]:
    """Yields pairs (is correct, probability), one for each judged label."""
    probabilities = prediction.get("probabilities") or {}
    if kind == "multiple":
        for name, probability in probabilities.items():
            yield name in truth, probability
    elif prediction.get("label") in probabilities:
        label = prediction["label"]
        yield label == truth, probabilities[label]


def make_report(pairs) -> str:
    """Returns the `classification_report` of pairs (gold, predicted)."""
    extras.require("sklearn")
    from sklearn import metrics
    from sklearn import preprocessing

    sets = [
        [{labels} if isinstance(labels, str) else {*labels} for labels in pair]
        for pair in pairs
    ]
    names = sorted(set().union(*(x for pair in sets for x in pair)) - {MISSING})
    if not names:
        return "There are no labels.\n"
    encoder = preprocessing.MultiLabelBinarizer(classes=[*names, MISSING])
    # <int>[documents, labels + 1]
    truths, found = map(encoder.fit_transform, zip(*sets, strict=True))
    return metrics.classification_report(
        truths,
        found,
        labels=range(len(names)),
        target_names=names,
        zero_division=0,
    )


def draw_confusion(pairs):
    """Draws the `ConfusionMatrixDisplay` of pairs (gold, predicted)."""
    extras.require("matplotlib", "sklearn")
    from matplotlib.figure import Figure
    from sklearn import metrics

    counts = collections.Counter(truth for truth, _ in pairs)
    # Labels that occur only in predictions come last.
    counts.update(dict.fromkeys((x for _, x in pairs if x != MISSING), 0))
    names = sorted(counts, key=lambda x: (-counts[x], x))
    shown = sorted(names[:MAX_LABELS])
    names = shown + [OTHERS] * (len(names) > MAX_LABELS)
    if any(found == MISSING for _, found in pairs):
        names.append(MISSING)
    truths, found = (
        [x if x in names else OTHERS for x in side]
        for side in zip(*pairs, strict=True)
    )
    size = _CELL * len(names) + _MARGIN
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.add_subplot()
    metrics.ConfusionMatrixDisplay.from_predictions(
        truths,
        found,
        labels=names,
        display_labels=[_shorten(x) for x in names],
        cmap="Blues",
        xticks_rotation="vertical",
        text_kw={"fontsize": 8},
        ax=axes,
    )
    # Labels may contain dollar signs.
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
    return figure


def _shorten(text: str) -> str:
    if len(text) <= _MAX_NAME_CHARS:
        return text
    return text[: _MAX_NAME_CHARS - 1] + "\u2026"


def draw_calibration(judged):
    """Draws the `CalibrationDisplay` of pairs (is correct, probability)."""
    extras.require("matplotlib", "sklearn")
    from matplotlib.figure import Figure
    from sklearn.calibration import CalibrationDisplay

    figure = Figure(figsize=(5, 5), layout="constrained")
    right, probabilities = zip(*judged, strict=True)
    CalibrationDisplay.from_predictions(
        right,
        # A float32 softmax may exceed 1 by a rounding error.
        np.clip(probabilities, 0, 1),
        n_bins=_NUM_BINS,
        name="predicted",
        ax=figure.add_subplot(),
    )
    return figure


def _save(figure, path: str) -> None:
    with warnings.catch_warnings(), atomic_file(path, "wb") as stream:
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(stream, format="png", dpi=120)
