"""HotpotQA: official files, predictions and metrics."""

from etcmodel.datasets.hotpotqa.predictions import gold as gold
from etcmodel.datasets.hotpotqa.predictions import score as score
from etcmodel.datasets.hotpotqa.predictions import (
    write_predictions as write_predictions,
)
from etcmodel.datasets.hotpotqa.records import FORMAT as FORMAT
