"""NarrativeQA: official files, stories, predictions and metrics."""

from etcmodel.datasets.narrativeqa.metrics import score as score
from etcmodel.datasets.narrativeqa.records import FORMAT as FORMAT
from etcmodel.datasets.narrativeqa.records import FORMATS as FORMATS
from etcmodel.datasets.narrativeqa.records import gold as gold
from etcmodel.datasets.narrativeqa.records import make_format as make_format
from etcmodel.datasets.narrativeqa.records import (
    write_predictions as write_predictions,
)
