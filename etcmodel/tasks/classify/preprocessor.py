"""Classification: turns documents into features, and labels into numbers."""

import dataclasses
from collections.abc import Iterable

import tensorflow as tf

from etcmodel.datasets import classification
from etcmodel.datasets.classification import ClassificationRecord
from etcmodel.errors import show
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.tasks.classify.task import ClassifyPreprocessingConfig
from etcmodel.tasks.documents import documents


def complete(
    config: ClassifyPreprocessingConfig,
    records: Iterable[ClassificationRecord],
) -> ClassifyPreprocessingConfig:
    """Completes a configuration with the labels of the training records."""
    units = documents.UnitsFinder(config.units)
    labels = classification.find_labels(
        map(units.see, records), config.label_kind, config.labels
    )
    names = tuple(config.labels) or labels.names
    if labels.singletons:
        print(
            f"Note: {len(labels.singletons)} of {len(names)} labels have one "
            f"record: {show(list(labels.singletons))}."
        )
    return dataclasses.replace(
        config,
        units=units.found,
        kind=labels.kind,
        labels=names,
        labels_as_json=tuple(
            x for x in names if x in (*labels.as_json, *config.labels_as_json)
        ),
        label_counts=tuple(labels.counts.get(x, 0) for x in names),
        label_mean=labels.mean,
        label_deviation=labels.standard_deviation,
    )


class ClassifyPreprocessor(documents.DocumentPreprocessor):
    """Turns documents and, if there are any, queries into features."""

    SCHEMA = example_schema.etc_schema(
        # Indices of the labels; empty if they are unknown.
        label_ids=example_schema.Field("list", example_schema.LABEL),
        number=example_schema.Field(
            "one", example_schema.LABEL, tf.float32, pad=0.0
        ),
    )

    def encode(self, query, units):
        """Builds the features of queries and units."""
        ids = self.tokenizer.tokenize(units.texts)
        if self.kind == "blocks":
            ids = documents.to_blocks(ids, self.config.block_size)
        return Encoded(layout=self.lay_out(query, ids), context={}, text={})

    def labels(self, record, view, split):
        """Returns the labels and counts of a record."""
        config = self.config
        names = ("paragraphs", "units")
        if self.kind == "blocks":
            # Each block is a group of one unit.
            names = ("blocks", None)
        counts = self.count(record, view, names)
        if record.label is None or split == "predict":
            return Labelled([{}], {}, counts)
        if config.kind == "number":
            return Labelled([{"number": record.label}], {}, counts)
        given = record.label
        given = (given,) if isinstance(given, str) else given
        unknown = classification.unknown_labels(given, config.labels)
        if unknown and split == "train":
            raise record.error(
                "unknown label",
                field="label",
                problem=(
                    f"got {show(unknown[0])}, expected one of "
                    f"{show(list(config.labels))}"
                ),
                advice="Add it to `labels`",
            )
        counts["labels_not_in_training_data"] = len(unknown)
        ids = [config.labels.index(x) for x in given if x in config.labels]
        return Labelled([{"label_ids": ids}], {}, counts)

    def describe(self, record):
        """Lists the names and values that `inspect` shows."""
        return [*super().describe(record), ("label", show(record.label))]
