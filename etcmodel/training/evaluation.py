"""Computes official metrics on stored records.

`TaskModel.select_candidates` reduces every row to a few numbers. As in exported
models, `decode` makes answers from these and from the texts of the stored
records, so predictions equal those of `predict`.
"""

import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import msgspec
import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.errors import where
from etcmodel.pipeline import example_schema as schema_lib
from etcmodel.pipeline import shards
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.record_keys import keyed
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.task_model import TaskModel
from etcmodel.pipeline.task_model import to_predictions

_RECORDS_AT_ONCE = 64


class StoredRecord(NamedTuple):
    """A record to evaluate.

    Attributes:
        id: the record's id.
        text: the `TEXT` fields: name -> values.
        gold: the gold answer; see the dataset's `gold`.
    """

    id: str
    text: Mapping[str, Sequence]
    gold: Any


def _values(feature: tf.train.Feature) -> Sequence:
    """Returns the values of a stored field; empty if it has none."""
    kind = feature.WhichOneof("kind")
    return getattr(feature, kind).value if kind else ()


def read_records(
    spec: TaskSpec,
    schema: schema_lib.ExampleSchema,
    input_path: str | Sequence[str],
) -> list[StoredRecord]:
    """Reads the texts and gold answers of all records that have an answer.

    Each record occurs once, even if it is stored as several examples.

    Raises:
        UserError: a file is missing or damaged (see `tfrecords.read_stored`),
            or a record belongs to another task.
    """
    gold = typing.get_type_hints(spec.dataset.gold)["return"]
    names = {
        name: schema.fields[name].axis == "one"
        for name in schema.names(schema_lib.TEXT)
    }
    records, known, parts = {}, {}, {}
    for path, number, stored in tfrecords.read_stored(input_path):
        found = _values(stored[schema_lib.GOLD])
        ids = stored["example_id"].bytes_list.value if found else ()
        for index, record_id in enumerate(ids):
            record_id = record_id.decode("utf-8")
            if record_id in records and not schema.merge_texts:
                continue
            try:
                answer = msgspec.json.decode(found[index], type=gold)
                text = {
                    # A packed example has one value per record.
                    name: values[index] if is_one else list(values)
                    for name, is_one in names.items()
                    for values in [_values(stored[name])]
                }
            except (msgspec.MsgspecError, IndexError) as error:
                raise UserError(
                    f"{where(path, number, record_id=record_id)} is not a "
                    f"record of the task {spec.name}: its answer cannot be "
                    f"read ({error}). {shards.ADVICE}"
                ) from error
            # Many questions may share a text, so equal texts are kept only
            # once.
            text = {
                name: known.setdefault(x, x) if names[name] else x
                for name, x in text.items()
            }
            records[record_id] = StoredRecord(record_id, text, answer)
            parts.setdefault(record_id, []).append(text)
    for record_id, texts in parts.items():
        if len(texts) > 1:
            merged = schema.merge_texts(texts)
            merged = {x: known.setdefault(y, y) for x, y in merged.items()}
            records[record_id] = records[record_id]._replace(text=merged)
    return list(records.values())


def _text(schema, records) -> dict[str, Any]:
    """Returns the texts of records as tensors, like `ExampleSchema.parse`."""
    text = {}
    for name in schema.names(schema_lib.TEXT):
        field = schema.fields[name]
        values = [record.text[name] for record in records]
        if field.axis == "one":
            value = tf.constant(values, field.dtype)
        else:
            # [batch, (values)]
            value = tf.RaggedTensor.from_row_lengths(
                tf.constant([x for row in values for x in row], field.dtype),
                tf.constant([len(row) for row in values], tf.int64),
            )
        if field.dtype == tf.int64:
            value = tf.cast(value, tf.int32)
        text[name] = value
    return text


class Batch(NamedTuple):
    """A batch of whole records with the candidates of their rows.

    Attributes:
        records: the records.
        candidates: from `TaskModel.select_candidates`, `[rows, ...]`.
        owner: index of each row's record, `<int32>[rows]`.
        text: the records' texts, as `ExampleSchema.parse` returns them.
    """

    records: Sequence[StoredRecord]
    candidates: Mapping[str, tf.Tensor]
    owner: tf.Tensor
    text: Mapping[str, Any]


def make_batches(
    schema: schema_lib.ExampleSchema,
    candidates: Mapping[str, np.ndarray],
    owner: np.ndarray,
    records: Sequence[StoredRecord],
) -> list[Batch]:
    """Groups rows into batches of whole records.

    Records without rows are in no batch.

    Args:
        schema: the schema of the records.
        candidates: `[rows, ...]`; the rows of a record are in order.
        owner: index of each row's record, ascending, `<int>[rows]`.
        records: the records.
    """
    numbers = np.unique(owner)
    batches = []
    for start in range(0, len(numbers), _RECORDS_AT_ONCE):
        some = numbers[start : start + _RECORDS_AT_ONCE]
        rows = slice(*np.searchsorted(owner, [some[0], some[-1] + 1]))
        batch = [records[i] for i in some]
        batches.append(
            Batch(
                batch,
                {name: tf.constant(x[rows]) for name, x in candidates.items()},
                tf.constant(np.searchsorted(some, owner[rows]), tf.int32),
                _text(schema, batch),
            )
        )
    return batches


def predict_records(
    task_model: TaskModel, batches: Sequence[Batch]
) -> dict[str, Any]:
    """Decodes batches of `make_batches`; returns record id -> prediction."""
    predictions = {}
    for records, candidates, owner, text in batches:
        made = to_predictions(
            task_model,
            task_model.decode(candidates, owner, text),
            [x.text for x in records],
        )
        predictions.update(zip([x.id for x in records], made, strict=True))
    return predictions


def score(
    spec: TaskSpec,
    task_model: TaskModel,
    schema: schema_lib.ExampleSchema,
    batches: Sequence[Mapping[str, np.ndarray]],
    records: Sequence[StoredRecord],
) -> dict[str, float]:
    """Computes the official metrics, and tunes the task's option.

    If the tuned option of `task_model` is None, and answers depend on it, all
    its values are tried and the best is chosen; otherwise it is kept.

    Args:
        spec: the task.
        task_model: the task's model.
        schema: the schema of the records.
        batches: results of `select_candidates`, with `record` (see
            `record_keys`), `window` and `weight` of each row.
        records: the records to evaluate.

    Returns:
        Metrics by name, and the value of the tuned option, if answers depend on
        it.

    Raises:
        UserError: `records` lacks the record of a row.
    """
    index = {key: i for i, key in enumerate(keyed(records))}
    merged = {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }
    real = np.flatnonzero(merged.pop("weight"))
    keys = [tuple(key) for key in merged.pop("record")[real].tolist()]
    if not index.keys() >= {*keys}:
        raise UserError(
            "The validation records have no gold answers. Preprocess them "
            "again with `split=dev`."
        )
    owner = np.array([index[key] for key in keys], int)
    order = np.lexsort([merged.pop("window")[real], owner])
    candidates = {name: x[real][order] for name, x in merged.items()}
    gold = {x.id: x.gold for x in records}
    rows = np.bincount(owner, minlength=len(records))
    groups = {
        suffix: {
            x.id: x.gold
            for x, number in zip(records, rows, strict=True)
            if is_in(number)
        }
        for suffix, is_in in task_model.GROUPS.items()
    }
    # Creates the tensors once, for all values of the tuned option.
    with_text = make_batches(schema, candidates, owner[order], records)

    def measure(model):
        predictions = predict_records(model, with_text)
        metrics = spec.dataset.score(predictions, gold)
        for suffix, some in groups.items():
            found = spec.dataset.score(predictions, some)
            metrics |= {name + suffix: x for name, x in found.items()}
        return metrics

    tuned = spec.tuned
    if tuned is None or not tuned.is_used(task_model.sizes):
        return measure(task_model)
    own = getattr(task_model.options, tuned.option)
    values = tuned.values if own is None else (own,)
    results = {
        value: measure(task_model.with_option(tuned.option, value))
        for value in values
    }
    best = tuned.choose(results)
    return {**results[best], tuned.option: best}
