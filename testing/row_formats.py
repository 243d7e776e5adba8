"""Makes the format of a data file whose rows have no labels."""

from etcmodel.readers import row_formats
from etcmodel.readers import sectioned
from etcmodel.readers.sectioned import DocumentRecord


def _make(row):
    sections, has_units, _ = row.document()
    return DocumentRecord(
        id=row.id,
        sections=sections,
        query=row.query(),
        has_units=has_units,
        source=row.source,
    )


def make_format(**fields):
    """Returns a format whose documents have fields with the given names."""
    return row_formats.row_format(
        _make,
        lambda record, split: None,
        sectioned.Fields(**fields),
        '"text": "..."',
    )
