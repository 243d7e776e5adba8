"""Natural Questions: official files, predictions and metrics."""

from etcmodel.datasets.nq.predictions import gold as gold
from etcmodel.datasets.nq.predictions import score as score
from etcmodel.datasets.nq.predictions import (
    write_predictions as write_predictions,
)
from etcmodel.datasets.nq.records import FORMAT as FORMAT
