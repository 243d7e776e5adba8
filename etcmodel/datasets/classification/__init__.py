"""Classification and regression: rows, labels, predictions and metrics."""

from etcmodel.datasets.classification.metrics import notes as notes
from etcmodel.datasets.classification.metrics import score as score
from etcmodel.datasets.classification.records import FORMAT as FORMAT
from etcmodel.datasets.classification.records import (
    LABEL_FIELDS as LABEL_FIELDS,
)
from etcmodel.datasets.classification.records import LABEL_KINDS as LABEL_KINDS
from etcmodel.datasets.classification.records import (
    ClassificationRecord as ClassificationRecord,
)
from etcmodel.datasets.classification.records import Kind as Kind
from etcmodel.datasets.classification.records import Label as Label
from etcmodel.datasets.classification.records import Labels as Labels
from etcmodel.datasets.classification.records import Names as Names
from etcmodel.datasets.classification.records import find_labels as find_labels
from etcmodel.datasets.classification.records import gold as gold
from etcmodel.datasets.classification.records import kind_of as kind_of
from etcmodel.datasets.classification.records import make_format as make_format
from etcmodel.datasets.classification.records import stratum as stratum
from etcmodel.datasets.classification.records import (
    unknown_labels as unknown_labels,
)
from etcmodel.datasets.classification.records import (
    write_predictions as write_predictions,
)
