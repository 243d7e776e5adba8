"""Labels, losses and decoding for models that score a document's units."""

from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.datasets.unit_positions import Unit
from etcmodel.feature_utils import layout
from etcmodel.feature_utils import ragged_rows
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import RecordView

# Index of each global token's unit in the record; -1 if it has none.
UNIT_FIELD = example_schema.Field("global", example_schema.DECODING, pad=-1)
FIELDS = {
    "global_units": UNIT_FIELD,
    # See `documents.Units`.
    "units": example_schema.Field("list", example_schema.TEXT, tf.string),
    "unit_paragraphs": example_schema.Field("list", example_schema.TEXT),
    "unit_numbers": example_schema.Field("list", example_schema.TEXT),
}


def unit_value(section: str) -> layout.Value:
    """Returns the layout value that fills `global_units`."""
    return layout.Value(
        "global_units", section, "unit", source="global", pad=-1
    )


def describe_units(
    texts: tf.RaggedTensor, numbers: tf.RaggedTensor
) -> dict[str, tf.RaggedTensor]:
    """Returns the `TEXT` fields for `documents.Units`; graph code."""
    # [all units]
    paragraph = ragged_rows.index_in(
        ragged_rows.owners_in(texts), texts.row_splits
    )
    paragraph = tf.gather(paragraph, ragged_rows.owners_in(texts.values))
    return {
        "units": ragged_rows.merge(texts),
        "unit_paragraphs": ragged_rows.merge(
            texts.with_flat_values(tf.cast(paragraph, tf.int32))
        ),
        "unit_numbers": ragged_rows.merge(numbers),
    }


def list_units(text: Mapping[str, Any]) -> list[Unit]:
    """Lists a record's units and titles from fields of `describe_units`."""
    return [
        Unit(int(p), int(n), content=x.decode("utf-8"))
        for p, n, x in zip(
            text["unit_paragraphs"],
            text["unit_numbers"],
            text["units"],
            strict=True,
        )
    ]


def label_globals(
    view: RecordView, section: int, right: Collection[int]
) -> tuple[list[int], int]:
    """Labels the global tokens of a record that is one row of the input.

    A gold unit labels its own global token, that of its paragraph, and that of
    the paragraph's title as 1. Example: a paragraph has a title (unit 0) and
    two sentences, and unit 2 is gold. The labels are `[1, 1, 0, 1]`.

    `section` is the index of the layout's section with the document, `right`
    has the indices of the gold units. Returns 1, 0, or -1 (outside of the
    document) for every global token, and the number of gold units that have a
    global token.
    """
    paragraphs = view.text["unit_paragraphs"]
    titles = view.text["unit_numbers"] < 0
    right_paragraphs = {int(paragraphs[i]) for i in right}
    labels, kept = [], 0
    for (place, group, unit, _), i in zip(
        view.global_sources[0].tolist(),
        view.features["global_units"][0].tolist(),
        strict=True,
    ):
        if place != section:
            labels.append(-1)
        elif unit < 0 or titles[i]:
            labels.append(int(group in right_paragraphs))
        else:
            labels.append(int(i in right))
            kept += labels[-1]
    return labels, kept


def unit_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Sums the cross entropies of global tokens, `<float32>[batch]`.

    Logits and labels are `[batch, global]`; labels are 1, 0, or -1 for tokens
    without a loss.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(tf.maximum(labels, 0), tf.float32), logits=logits
    )
    return tf.reduce_sum(tf.where(labels >= 0, losses, 0.0), axis=1)


# Axes of the results of `decode_units`; see `TaskModel.ANSWER_AXES`.
UNIT_AXES = {
    "units": ("units",),
    "unit_probabilities": ("units",),
    "unit_paragraphs": ("units",),
    "unit_numbers": ("units",),
}


def decode_units(
    global_units: tf.Tensor, probabilities: tf.Tensor, text: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Returns all units except titles, with their probabilities.

    `global_units` and `probabilities`, `[batch, global]`, are the unit and the
    probability of each global token; `text` is from `describe_units`.

    Returns:
        `[batch, units]`: `units`, padded with ""; `unit_probabilities`, 0 for
        units that were cut; `unit_paragraphs` and `unit_numbers`, each unit's
        paragraph and its index in the paragraph, -1 for padding.
    """
    units = text["units"]
    first = tf.cast(units.row_starts(), tf.int32)[:, tf.newaxis]
    # [all units]
    flat = tf.math.unsorted_segment_max(
        tf.reshape(probabilities, [-1]),
        tf.reshape(tf.where(global_units >= 0, global_units + first, -1), [-1]),
        tf.size(units.flat_values),
    )
    is_text = text["unit_numbers"].flat_values >= 0

    def dense(values, pad):
        kept = ragged_rows.keep(units.with_values(values), is_text)
        return kept.to_tensor(default_value=pad)

    return {
        "units": dense(units.flat_values, ""),
        "unit_probabilities": dense(tf.maximum(flat, 0.0), 0.0),
        "unit_paragraphs": dense(text["unit_paragraphs"].flat_values, -1),
        "unit_numbers": dense(text["unit_numbers"].flat_values, -1),
    }


def to_unit_predictions(
    answers: Mapping[str, np.ndarray], threshold: float
) -> list[Unit]:
    """Lists a record's units; selects those that reach the threshold."""
    is_there = answers["unit_paragraphs"] >= 0
    return [
        Unit(
            paragraph,
            number,
            probability,
            probability >= threshold,
            unit.decode("utf-8", "replace"),
        )
        for paragraph, number, probability, unit in zip(
            *(
                answers[name][is_there].tolist()
                for name in (
                    "unit_paragraphs",
                    "unit_numbers",
                    "unit_probabilities",
                    "units",
                )
            ),
            strict=True,
        )
    ]
