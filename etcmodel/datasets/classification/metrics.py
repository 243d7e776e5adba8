"""Metrics of predicted labels and numbers."""

import collections
import functools
from collections.abc import Mapping

from etcmodel import extras
from etcmodel.datasets.classification.records import Label
from etcmodel.datasets.classification.records import comparable
from etcmodel.datasets.classification.records import kind_of
from etcmodel.datasets.classification.records import labels_in

_MAIN_METRICS = {
    "single": "accuracy",
    "multiple": "micro_f1",
    "number": "negative_mean_squared_error",
}


def score(
    predictions: Mapping[str, Mapping], gold: Mapping[str, Label]
) -> dict[str, float]:
    """Scores labels or numbers, with scikit-learn's definitions.

    Spellings of the same label (see `Names`) are equal. A document without a
    prediction counts as wrong: as having no label, as probability 1 for all
    wrong labels, or as the number in `gold` farthest from the right one.

    Args:
        predictions: record id -> dict with `"label"`, of the type in `gold`,
            and, except for numbers, `"probabilities"`, label -> probability.
        gold: record id -> label, labels or number; all of the same kind.

    Returns:
        For one label: `accuracy`, `macro_f1`, `micro_f1`, `auroc`,
        `majority_accuracy` (the accuracy of always predicting the most frequent
        label in `gold`) and `labels_predicted` (number of different labels
        predicted). For several labels: `exact_match` (all labels of a document
        are right), `macro_f1`, `micro_f1` and `auroc`. For numbers:
        `mean_squared_error`, `negative_mean_squared_error` (higher is better)
        and `spearman`.

        `macro_f1` is the mean over all labels in `gold` or predicted. `auroc`
        is the mean over the labels in `gold`, each against the rest; it is left
        out if all documents have the same labels. `spearman` is left out if all
        predicted or all gold numbers are equal.

        `score` is the metric that selects checkpoints: `accuracy`, `micro_f1`
        or `negative_mean_squared_error`. The result is empty if there are no
        documents.
    """
    kinds = {kind_of(x) for x in gold.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"gold mixes kinds of labels: {sorted(kinds)}. Use one of them."
        )
    if not kinds:
        return {}
    (kind,) = kinds
    if kind == "number":
        scores = _score_numbers(predictions, gold)
    else:
        scores = _score_labels(predictions, gold, kind == "single")
    return {**scores, "score": scores[_MAIN_METRICS[kind]]}


def _score_labels(predictions, gold, is_single: bool) -> dict[str, float]:
    extras.require("sklearn")
    import numpy as np
    from sklearn import metrics

    def as_set(label):
        return set(map(comparable, labels_in(label)))

    truths = {key: as_set(x) for key, x in gold.items()}
    found = {
        key: as_set(predictions[key]["label"])
        for key in gold
        if key in predictions
    }
    exact = sum(found.get(key) == truth for key, truth in truths.items())
    scores = {"accuracy" if is_single else "exact_match": exact / len(gold)}
    names = sorted(set().union(*truths.values(), *found.values()))
    # <bool>[documents, labels]
    shape = len(gold), len(names)
    true, predicted = (
        np.array(
            [[x in labels.get(key, ()) for x in names] for key in gold]
        ).reshape(shape)
        for labels in (truths, found)
    )
    if is_single:
        counts = collections.Counter(
            x for labels in truths.values() for x in labels
        )
        scores["majority_accuracy"] = max(counts.values()) / len(gold)
        scores["labels_predicted"] = int(predicted.any(axis=0).sum())
    f1 = functools.partial(metrics.f1_score, zero_division=0)
    scores |= {"macro_f1": 0.0, "micro_f1": 0.0}
    if names:
        scores["macro_f1"] = float(np.mean(_by_label(f1, true, predicted)))
        scores["micro_f1"] = f1(true.ravel(), predicted.ravel())
    probabilities = np.array(
        [
            _probabilities(predictions.get(key), names, labels)
            for key, labels in truths.items()
        ]
    ).reshape(shape)
    # <bool>[labels]: whether some documents, but not all, have the label.
    has_both = true.any(axis=0) & ~true.all(axis=0)
    if has_both.any():
        areas = _by_label(
            metrics.roc_auc_score,
            true[:, has_both],
            probabilities[:, has_both],
        )
        scores["auroc"] = float(np.mean(areas))
    return scores


def _by_label(metric, true, values):
    """Computes a scikit-learn metric for each label.

    `true` and `values` are `[documents, labels]`.
    """
    if true.shape[1] == 1:
        # scikit-learn would read a single column as class indices.
        return [metric(true[:, 0], values[:, 0])]
    return metric(true, values, average=None)


def _probabilities(prediction: Mapping | None, names, truth) -> list[float]:
    if prediction is None:
        return [float(x not in truth) for x in names]
    given = prediction.get("probabilities")
    if given is None:
        given = dict.fromkeys(labels_in(prediction["label"]), 1.0)
    given = {comparable(x): y for x, y in given.items()}
    return [given.get(x, 0.0) for x in names]


def _score_numbers(predictions, gold) -> dict[str, float]:
    extras.require("scipy", "sklearn")
    from scipy import stats
    from sklearn import metrics

    truths = list(gold.values())
    ends = min(truths), max(truths)
    found = [
        predictions[key]["label"]
        if key in predictions
        else max(ends, key=lambda end, truth=truth: abs(end - truth))
        for key, truth in gold.items()
    ]
    error = float(metrics.mean_squared_error(truths, found))
    scores = {"mean_squared_error": error}
    scores["negative_mean_squared_error"] = -error
    if len(set(truths)) > 1 and len(set(found)) > 1:
        scores["spearman"] = float(stats.spearmanr(truths, found).statistic)
    return scores


def notes(metrics: Mapping[str, float]) -> list[str]:
    """Returns sentences for the user about the metrics of `score`.

    There is one if a model of single labels predicts the same label for all
    documents, or is no better than always predicting the most frequent label.
    """
    majority = metrics.get("majority_accuracy", 1.0)
    is_better = majority == 1.0 or metrics["accuracy"] > majority
    # Without predictions, the model is not what is wrong.
    if is_better or not metrics["labels_predicted"]:
        return []
    accuracy = f"an accuracy of {metrics['accuracy']:.4g}"
    if metrics["labels_predicted"] == 1:
        return [
            f"The model predicts the same label for all documents ({accuracy})."
            " It has not learned to tell them apart: train for more epochs, or "
            "with another learning rate."
        ]
    return [
        f"The model has {accuracy}, which is not above {majority:.4g}, the "
        "accuracy of always predicting the most frequent label: train for more "
        "epochs, or with another learning rate."
    ]
