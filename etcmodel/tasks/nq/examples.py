"""What a stored example, a window of a page, holds beside EtcFeatures.

| name | what |
| --- | --- |
| `example_id`, `question`, `window` | the record, and which of its windows |
| `words` | see `NQWindows` |
| `candidate_starts`, `candidate_ends` | all candidates of the page |
| `gold_long_starts`, `gold_long_ends`, `gold_yes_no` | of every annotation |
| `gold_short_starts`, `gold_short_ends`, `gold_short_annotations` | short \
answers, and whose each is |
| `short_answer_start`, ..., `answer_type` | labels, see `WindowLabels` |

The last three rows are missing where the answer is not known.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.datasets.nq.metrics import YES_NO_ANSWERS
from etcmodel.datasets.nq.metrics import NQGold
from etcmodel.datasets.nq.records import Annotation
from etcmodel.datasets.nq.records import NQRecord
from etcmodel.feature_utils.etc_features import trim_padding
from etcmodel.tasks.nq.labels import WindowLabels

CONTEXT_SPEC = {
    name: tf.io.RaggedFeature(tf.int64)
    for name in ("words", "candidate_starts", "candidate_ends")
}
LABEL_SPEC = {
    name: tf.io.FixedLenFeature([], tf.int64) for name in WindowLabels._fields
}


def record_values(record: NQRecord) -> dict[str, Any]:
    """What is stored of a record itself, with each of its windows.

    Args:
        record: the record.

    Returns:
        name -> values, as `etc_features.to_example` takes them.
    """
    return {
        "example_id": record.id,
        "question": record.question,
        "candidate_starts": [x.start for x in record.candidates],
        "candidate_ends": [x.end for x in record.candidates],
    }


def gold_values(annotations: Sequence[Annotation]) -> dict[str, Any]:
    """What is stored of a record's answers, with each of its windows.

    Args:
        annotations: the answers.

    Returns:
        name -> values, as `etc_features.to_example` takes them.
    """
    short = [
        (start, end, index)
        for index, annotation in enumerate(annotations)
        for start, end in annotation.short_answers
    ]
    return {
        "gold_long_starts": [x.long_start for x in annotations],
        "gold_long_ends": [x.long_end for x in annotations],
        "gold_yes_no": [YES_NO_ANSWERS.index(x.yes_no) for x in annotations],
        "gold_short_starts": [start for start, _, _ in short],
        "gold_short_ends": [end for _, end, _ in short],
        "gold_short_annotations": [index for _, _, index in short],
    }


def window_values(
    words: np.ndarray, window: int, labels: WindowLabels | None
) -> dict[str, Any]:
    """What is stored of one window.

    Args:
        words: `<int>[long]`, see `NQWindows`.
        window: its index.
        labels: its labels, if the answer is known.

    Returns:
        name -> values, as `etc_features.to_example` takes them.
    """
    return {
        "window": window,
        "words": trim_padding(words, -1),
        **(labels._asdict() if labels is not None else {}),
    }


def parse_gold(stored: Mapping[str, tf.train.Feature]) -> NQGold | None:
    """The answers of a stored example.

    Args:
        stored: its features.

    Returns:
        The answers; None if they are not known.
    """

    def of(name):
        return list(stored[name].int64_list.value)

    yes_no = of("gold_yes_no")
    if not yes_no:
        return None
    short = [[] for _ in yes_no]
    for start, end, index in zip(
        of("gold_short_starts"),
        of("gold_short_ends"),
        of("gold_short_annotations"),
        strict=True,
    ):
        short[index].append((start, end))
    return NQGold(
        long_answers=tuple(
            zip(of("gold_long_starts"), of("gold_long_ends"), strict=True)
        ),
        short_answers=tuple(map(tuple, short)),
        yes_no=tuple(YES_NO_ANSWERS[i] for i in yes_no),
    )
