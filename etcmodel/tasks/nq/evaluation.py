"""Official metrics while training: windows on the device, pages on the host."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.datasets.nq import metrics
from etcmodel.tasks import tfrecords
from etcmodel.tasks.nq import decoding
from etcmodel.tasks.nq import examples
from etcmodel.tasks.record_keys import keyed


def predict_windows(
    outputs: Mapping[str, tf.Tensor],
    labels: Mapping[str, tf.Tensor],
    max_short_answer_words: int,
) -> dict[str, tf.Tensor]:
    """The answers of a batch of windows, in numbers; graph code.

    Args:
        outputs: the logits of a batch.
        labels: the batch's `record`, `weight` and `words`.
        max_short_answer_words: greatest length of a short answer.

    Returns:
        A dict of `record` `<int32>[windows, 2]`, `weight`
        `<float32>[windows]`, and the fields of `WindowAnswers`.
    """
    answers = decoding.answer_windows(
        outputs, labels["words"], max_short_answer_words
    )
    return {
        "record": labels["record"],
        "weight": labels["weight"],
        **answers._asdict(),
    }


class GoldPage(NamedTuple):
    """What predictions of a page are made of and compared with.

    Attributes:
        id: the record's id.
        gold: the right answers.
        candidates: `<int32>[candidates, 2]`, start and end of each.
    """

    id: str
    gold: metrics.NQGold
    candidates: np.ndarray


def read_gold(input_path) -> dict[tuple[int, int], GoldPage]:
    """Reads the answers of TFRecords.

    Args:
        input_path: as for `tfrecords.find_files`.

    Returns:
        Key of a record, see `record_keys` -> its page.
    """
    pages = {}
    for example_id, stored in tfrecords.read_examples(input_path):
        if example_id in pages:
            continue
        gold = examples.parse_gold(stored)
        if gold is not None:
            pages[example_id] = GoldPage(
                example_id,
                gold,
                np.array(
                    [
                        stored[name].int64_list.value
                        for name in ("candidate_starts", "candidate_ends")
                    ],
                    np.int32,
                ).T,
            )
    return keyed(list(pages.values()))


def predict_pages(
    batches: Sequence[Mapping[str, np.ndarray]],
    pages: Mapping[tuple[int, int], GoldPage],
) -> dict[str, metrics.NQPrediction]:
    """The answers of pages from those of their windows.

    Args:
        batches: what `predict_windows` made.
        pages: what `read_gold` read.

    Returns:
        Record id -> prediction.
    """
    merged = {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }
    real = merged["weight"] > 0
    index = {key: i for i, key in enumerate(pages)}
    record = [index[tuple(key)] for key in merged["record"][real].tolist()]
    most = max(len(page.candidates) for page in pages.values())
    # [pages, candidates, 2]
    candidates = np.stack(
        [
            np.pad(
                page.candidates,
                [[0, most - len(page.candidates)], [0, 0]],
                constant_values=-1,
            )
            for page in pages.values()
        ]
    )
    decoded = decoding.decode_pages(
        decoding.WindowAnswers(
            **{
                name: tf.constant(merged[name][real])
                for name in decoding.WindowAnswers._fields
            }
        ),
        tf.constant(record, tf.int32),
        tf.constant(candidates[..., 0]),
        tf.constant(candidates[..., 1]),
    )
    columns = [decoded[name].numpy().tolist() for name in decoding.DECODED]
    there = set(record)
    return {
        page.id: decoding.make_prediction(*(column[i] for column in columns))
        for i, page in enumerate(pages.values())
        if i in there
    }


def score(
    batches: Sequence[Mapping[str, np.ndarray]],
    pages: Mapping[tuple[int, int], GoldPage],
) -> dict[str, float]:
    """The official metrics.

    Args:
        batches: what `predict_windows` made.
        pages: what `read_gold` read.

    Returns:
        The metrics, see `metrics.evaluate`, with names that are identifiers.
    """
    gold = {page.id: page.gold for page in pages.values()}
    results = metrics.evaluate(
        predict_pages(batches, pages),
        gold,
        metrics.usual_min_annotations(gold.values()),
    )
    return {
        name.replace("-", "_").replace(">=", "_"): value
        for name, value in results.items()
    }
