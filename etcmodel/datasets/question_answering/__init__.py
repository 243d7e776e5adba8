"""Question answering: rows, SQuAD's files, predictions and metrics."""

from etcmodel.datasets.question_answering.predictions import gold as gold
from etcmodel.datasets.question_answering.predictions import score as score
from etcmodel.datasets.question_answering.predictions import stratum as stratum
from etcmodel.datasets.question_answering.predictions import (
    write_predictions as write_predictions,
)
from etcmodel.datasets.question_answering.records import FORMAT as FORMAT
from etcmodel.datasets.question_answering.records import (
    make_format as make_format,
)
