"""Official metrics while training: numbers on the device, text on the host.

On the device, the answer of every record is found for each of the thresholds
from which a sentence counts as a supporting fact. The host looks the text up
in the records' files, and scores.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.datasets.hotpotqa import metrics
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks import tfrecords
from etcmodel.tasks.hotpotqa import decoding
from etcmodel.tasks.record_keys import keyed

# Paper, Appendix C.
THRESHOLDS = tuple(i / 10 for i in range(11))
_TYPE_WORDS = {1: "yes", 2: "no"}


def predict_for_thresholds(
    outputs: Mapping[str, tf.Tensor],
    labels: Mapping[str, tf.Tensor],
    max_answer_length: int,
) -> dict[str, tf.Tensor]:
    """Answers for every threshold, in numbers; graph code.

    Args:
        outputs: the logits of a batch.
        labels: the batch's `record`, `weight`, `global_segments`,
            `long_starts`, `long_ends`, `long_token_type_ids` and
            `long_sentence_ids`.
        max_answer_length: greatest length of an answer, in tokens.

    Returns:
        A dict of `record` `<int32>[batch, 2]`, `weight` `<float32>[batch]`,
        `answer_type` `<int32>[batch]`, `global_segments` `<int32>[batch,
        global]`, `fact_probabilities` `<float32>[batch, global]`, and of
        `segment`, `start` and `end`, all `<int32>[batch, thresholds]`: the
        segment with the answer, -1 for none, and its bytes.
    """
    probabilities = decoding.supporting_fact_probabilities(
        outputs, labels["global_segments"]
    )
    spans = decoding.best_spans(
        outputs,
        labels["long_token_type_ids"],
        labels["long_sentence_ids"],
        max_answer_length,
    )
    # [batch, thresholds]
    sentence = decoding.choose_sentences(
        spans, probabilities, tf.constant(THRESHOLDS)
    )
    index = tf.maximum(sentence, 0)

    def of(values):
        return tf.gather(values, index, batch_dims=1)

    return {
        "record": labels["record"],
        "weight": labels["weight"],
        "answer_type": tf.argmax(
            outputs["answer_type_logits"], axis=1, output_type=tf.int32
        ),
        "global_segments": labels["global_segments"],
        "fact_probabilities": probabilities,
        "segment": tf.where(sentence >= 0, of(labels["global_segments"]), -1),
        "start": tf.gather(
            labels["long_starts"], of(spans.begins), batch_dims=1
        ),
        "end": tf.gather(labels["long_ends"], of(spans.ends), batch_dims=1),
    }


class GoldRecord(NamedTuple):
    """What predictions of a record are made of and compared with.

    Attributes:
        id: the record's id.
        answer: the right answer.
        facts: the right supporting facts.
        segments: titles and sentences in UTF-8.
        places: (title, index of the sentence in its paragraph) of every
            segment; the index of a title is -1.
    """

    id: str
    answer: str
    facts: tuple[tuple[str, int], ...]
    segments: tuple[bytes, ...]
    places: tuple[tuple[str, int], ...]


def read_gold(input_path) -> dict[tuple[int, int], GoldRecord]:
    """Reads the texts and answers of TFRecords.

    Args:
        input_path: as for `tfrecords.find_files`.

    Returns:
        Key of a record, see `record_keys` -> the record.
    """
    records = []
    for record_id, stored in tfrecords.read_examples(input_path):
        segments = tuple(stored["segments"].bytes_list.value)
        places = []
        for size in stored["paragraph_sizes"].int64_list.value:
            if size:
                title = segments[len(places)].decode("utf-8", "replace")
                places.extend((title, i) for i in range(-1, size - 1))
        # As the titles of `places` are.
        fact_titles = [
            title.decode("utf-8")
            for title in tokenizers.sanitize(
                tf.constant(stored["fact_titles"].bytes_list.value, tf.string)
            ).numpy()
        ]
        (answer,) = stored["answer"].bytes_list.value
        fact_sentences = stored["fact_sentences"].int64_list.value
        records.append(
            GoldRecord(
                id=record_id,
                answer=answer.decode("utf-8"),
                facts=tuple(zip(fact_titles, fact_sentences, strict=True)),
                segments=segments,
                places=tuple(places),
            )
        )
    return keyed(records)


def _answer(prediction: Mapping[str, np.ndarray], index: int, record) -> str:
    """The text of a predicted answer, for one threshold."""
    answer_type = int(prediction["answer_type"])
    if answer_type in _TYPE_WORDS:
        return _TYPE_WORDS[answer_type]
    segment = int(prediction["segment"][index])
    if segment < 0:
        return ""
    start, end = (int(prediction[name][index]) for name in ("start", "end"))
    answer = record.segments[segment][start:end].strip()
    return answer.decode("utf-8", "replace")


def score(
    batches: Sequence[Mapping[str, np.ndarray]],
    gold: Mapping[tuple[int, int], GoldRecord],
) -> dict[str, float]:
    """The official metrics at the threshold with the best joint F1.

    Args:
        batches: what `predict_for_thresholds` made.
        gold: what `read_gold` read.

    Returns:
        The metrics, see `metrics.evaluate`, and
        `supporting_fact_threshold`.
    """
    answers = [{} for _ in THRESHOLDS]
    facts = [{} for _ in THRESHOLDS]
    for batch in batches:
        for i in np.flatnonzero(batch["weight"]):
            prediction = {name: batch[name][i] for name in batch}
            record = gold[tuple(prediction["record"].tolist())]
            segments = prediction["global_segments"]
            probabilities = prediction["fact_probabilities"]
            for t, threshold in enumerate(THRESHOLDS):
                answers[t][record.id] = _answer(prediction, t, record)
                chosen = segments[
                    (segments >= 0) & (probabilities >= threshold)
                ]
                places = [record.places[segment] for segment in chosen]
                # A title is none by itself.
                facts[t][record.id] = [x for x in places if x[1] >= 0]
    truth = {x.id: (x.answer, x.facts) for x in gold.values()}
    results = {
        threshold: metrics.evaluate(answers[t], facts[t], truth)
        for t, threshold in enumerate(THRESHOLDS)
    }
    best = metrics.best_threshold(results)
    return {**results[best], "supporting_fact_threshold": best}
