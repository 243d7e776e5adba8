"""Selection: turns documents into features, and labels gold units."""

from etcmodel.datasets import unit_positions
from etcmodel.feature_utils import layout
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.tasks.documents import document_units
from etcmodel.tasks.documents import documents


class SelectPreprocessor(documents.DocumentPreprocessor):
    """Turns queries and documents into features."""

    QUERY_LEVEL = "token"
    VALUES = (document_units.unit_value("document"),)
    SCHEMA = example_schema.etc_schema(
        **document_units.FIELDS,
        # Whether to select a global token: 1, 0, or -1 if it cannot be
        # selected.
        is_relevant=example_schema.Field(
            "global", example_schema.LABEL, pad=-1
        ),
    )

    def encode(self, query, units):
        """Builds the features of queries and units."""
        made = self.lay_out(
            query,
            self.tokenizer.tokenize(units.texts),
            global_units=layout.unit_indices(units.texts, "unit"),
        )
        return Encoded(
            layout=made,
            context=made.values,
            text=document_units.describe_units(*units),
        )

    def labels(self, record, view, split):
        """Returns the labels and counts of a record."""
        counts = self.count(record, view)
        if record.selected is None or split == "predict":
            return Labelled([{}], {}, counts)
        units = document_units.list_units(view.text)
        positions = unit_positions.right_positions(
            unit_positions.Selected(record.selected, record.selected_texts),
            [x for x in units if x.text >= 0],
        )
        right = {i for i, x in enumerate(units) if x[:2] in positions}
        labels, kept = document_units.label_globals(
            view, self.engine.spec.index("document"), right
        )
        counts |= {
            "selected": len(right),
            "selected_cut": len(right) - kept,
            "selected_not_in_document": len(positions - {x[:2] for x in units}),
        }
        is_kept = split != "train" or kept or not positions
        return Labelled(
            [{"is_relevant": labels} if is_kept else None], {}, counts
        )

    def describe(self, record):
        """Lists the names and values that `inspect` shows."""
        number = len(record.selected or ()) + len(record.selected_texts)
        return [*super().describe(record), ("selected", number)]
