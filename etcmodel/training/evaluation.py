"""Official metrics of stored records, by way of what `predict` writes.

While the model runs, wherever that is, every row gives a few numbers (see
`AnswerModel.choose`). Texts are looked up in the files of the records
afterwards, and answers and predictions are made of both by the code that
serves.
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
from etcmodel.errors import show
from etcmodel.pipeline import example_schema as schema_lib
from etcmodel.pipeline import shards
from etcmodel.pipeline import tfrecords
from etcmodel.pipeline.record_keys import keyed
from etcmodel.pipeline.spec import TaskSpec
from etcmodel.pipeline.task_model import AnswerModel

_RECORDS_AT_ONCE = 64


class StoredRecord(NamedTuple):
    """What evaluation has to know of a record.

    Attributes:
        id: its id.
        text: name -> values of the schema's text.
        gold: the right answer, as of the dataset's `gold`.
        reference: see `AnswerModel.reference`.
    """

    id: str
    text: Mapping[str, Sequence]
    gold: Any
    reference: Any


def _values(feature: tf.train.Feature) -> Sequence:
    """What a stored field holds; nothing has no kind."""
    kind = feature.WhichOneof("kind")
    return getattr(feature, kind).value if kind else ()


def read_records(
    spec: TaskSpec, schema: schema_lib.Schema, input_path: str | Sequence[str]
) -> list[StoredRecord]:
    """Reads the texts and answers of all records with an answer.

    Args:
        spec: the task.
        schema: its fields.
        input_path: as for `tfrecords.find_files`.

    Returns:
        The records, each once.

    Raises:
        UserError: a file is missing or damaged (see `tfrecords.read_stored`),
            or a record is none of the task's.
    """
    gold = typing.get_type_hints(spec.dataset.gold)["return"]
    names = schema.names(schema_lib.TEXT)
    records, known = {}, {}
    for path, number, stored in tfrecords.read_stored(input_path):
        found = _values(stored[schema_lib.REFERENCE])
        ids = stored["example_id"].bytes_list.value if found else ()
        for index, record_id in enumerate(ids):
            record_id = record_id.decode("utf-8")
            if record_id in records:
                continue
            try:
                answer, reference = msgspec.json.decode(
                    found[index], type=tuple[gold, Any]
                )
                text = {name: list(_values(stored[name])) for name in names}
                if len(found) > 1:
                    # One of several records of an example.
                    text = {name: [x[index]] for name, x in text.items()}
            except (msgspec.MsgspecError, IndexError) as error:
                raise UserError(
                    f"{path}, record {number} (id {show(record_id)}) is none "
                    f"of the task {spec.name}: its answer cannot be read "
                    f"({error}). {shards.ADVICE}"
                ) from error
            # Many questions may have the same text.
            text = {
                name: [known.setdefault(x, x) for x in values]
                for name, values in text.items()
            }
            records[record_id] = StoredRecord(
                record_id, text, answer, reference
            )
    return list(records.values())


def _text(schema, records) -> dict[str, Any]:
    """The texts of some records, as `Schema.parse` reads them."""
    text = {}
    for name in schema.names(schema_lib.TEXT):
        values = [record.text[name] for record in records]
        flat = [x for row in values for x in row]
        field = schema.fields[name]
        if field.axis == "one":
            value = tf.constant(flat, field.dtype)
        else:
            # [batch, (values)]
            value = tf.RaggedTensor.from_row_lengths(
                tf.constant(flat, field.dtype),
                tf.constant([len(row) for row in values], tf.int64),
            )
        if field.dtype == tf.int64:
            value = tf.cast(value, tf.int32)
        text[name] = value
    return text


def collect(
    task_model: AnswerModel, answers: Mapping[str, Any], references: Sequence
) -> list[Any]:
    """The predictions of a batch of records.

    Args:
        task_model: the task's model.
        answers: from `AnswerModel.answer`, `[batch, ...]`.
        references: those of the records.

    Returns:
        A prediction of each.
    """
    arrays = {name: np.asarray(value) for name, value in answers.items()}
    return [
        task_model.predict({name: x[i] for name, x in arrays.items()}, known)
        for i, known in enumerate(references)
    ]


class Batch(NamedTuple):
    """Some records with what was chosen in their rows.

    Attributes:
        records: the records.
        chosen: from `AnswerModel.choose`, `[rows, ...]`.
        owner: the record of each row, `<int32>[rows]`.
        text: their texts, as `Schema.parse` reads them.
    """

    records: Sequence[StoredRecord]
    chosen: Mapping[str, tf.Tensor]
    owner: tf.Tensor
    text: Mapping[str, Any]


def make_batches(
    schema: schema_lib.Schema,
    chosen: Mapping[str, np.ndarray],
    owner: np.ndarray,
    records: Sequence[StoredRecord],
) -> list[Batch]:
    """Deals rows out to batches of whole records.

    Args:
        schema: the task's fields.
        chosen: from `AnswerModel.choose`, `[rows, ...]`, the rows of a record
            in their order.
        owner: index of the record of each row, ascending, `<int>[rows]`.
        records: the records.

    Returns:
        The batches, of those records that have a row.
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
                {name: tf.constant(x[rows]) for name, x in chosen.items()},
                tf.constant(np.searchsorted(some, owner[rows]), tf.int32),
                _text(schema, batch),
            )
        )
    return batches


def predict_records(
    task_model: AnswerModel, batches: Sequence[Batch]
) -> dict[str, Any]:
    """Predictions of records from what was chosen in their rows.

    Args:
        task_model: the task's model.
        batches: from `make_batches`.

    Returns:
        Record id -> prediction.
    """
    predictions = {}
    for records, chosen, owner, text in batches:
        made = collect(
            task_model,
            task_model.answer(chosen, owner, text),
            [x.reference for x in records],
        )
        predictions.update(zip([x.id for x in records], made, strict=True))
    return predictions


def score(
    spec: TaskSpec,
    task_model: AnswerModel,
    schema: schema_lib.Schema,
    batches: Sequence[Mapping[str, np.ndarray]],
    records: Sequence[StoredRecord],
) -> dict[str, float]:
    """The official metrics, and the value of what is tuned.

    Args:
        spec: the task.
        task_model: its model. If the option that is tuned is None, the value
            with the best metrics is chosen; otherwise its value holds.
        schema: the task's fields.
        batches: what `choose` gave, with the rows' `record` (see
            `record_keys`), `window` and `weight`.
        records: what they are compared with.

    Returns:
        name -> value.

    Raises:
        UserError: there are rows of other records.
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
            "The validation records do not tell their right answers. "
            "Preprocess them again with --split=dev."
        )
    owner = np.array([index[key] for key in keys], int)
    order = np.lexsort([merged.pop("window")[real], owner])
    chosen = {name: x[real][order] for name, x in merged.items()}
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
    # Once for all values of what is tuned.
    with_text = make_batches(schema, chosen, owner[order], records)

    def measure(model):
        predictions = predict_records(model, with_text)
        metrics = spec.dataset.score(predictions, gold)
        for suffix, some in groups.items():
            found = spec.dataset.score(predictions, some)
            metrics |= {name + suffix: x for name, x in found.items()}
        return metrics

    tuned = spec.tuned
    if tuned is None:
        return measure(task_model)
    own = getattr(task_model.options, tuned.option)
    values = tuned.values if own is None else [own]
    results = {
        value: measure(task_model.with_option(tuned.option, value))
        for value in values
    }
    best = tuned.choose(results)
    return {**results[best], tuned.option: best}
