"""Finds the record that training or evaluation could not read.

Errors of a `tf.data` pipeline do not name the file and record.
Works only with Keras 2; see `training.configuration`.
"""

import contextlib
import functools
import re
import sys
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf
from official.core import config_definitions as cfg

from etcmodel.errors import UserError
from etcmodel.errors import where
from etcmodel.errors import without_stack
from etcmodel.pipeline import shards
from etcmodel.pipeline import tfrecords
from etcmodel.training import trainer

# Raised for damaged records, records of other tasks and missing files.
_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
)
# Matches messages of errors about records. For other errors, such as a model's,
# reading all records again would only waste time.
_OF_RECORDS = re.compile(r"Iterator|ParseExample|indices\[|No such file")
# The search takes long for larger files, so it is announced.
_LARGE_BYTES = 10**9


@contextlib.contextmanager
def explained(task: trainer.RecordsTask) -> Iterator[None]:
    """Converts TensorFlow errors about a task's records to a `UserError`.

    The `UserError` names the missing or damaged file, or the record of another
    task or with unexpected sizes. Errors about anything else are not changed.
    """
    try:
        yield
    except _ERRORS as error:
        is_lost = isinstance(error, tf.errors.DataLossError)
        if not is_lost and not _OF_RECORDS.search(error.message):
            raise
        found = find(task)
        if found is None:
            raise
        raise found from error


def find(task: trainer.RecordsTask) -> UserError | None:
    """Returns the error of a task's first unusable record, or None."""
    config = task.task_config
    try:
        for params in (config.train_data, config.validation_data):
            if params.input_path:
                counts = _count(tfrecords.find_files(params.input_path))
                _parse(task, params, counts)
    except UserError as error:
        return error
    return None


def _count(files: Sequence[str]) -> dict[str, int]:
    """Counts the records of each file; raises an error if one is damaged."""
    size = sum(tf.io.gfile.stat(path).length for path in files)
    if size > _LARGE_BYTES:
        print(
            f"A record could not be read. Searching for it in {len(files)} "
            f"files ({size / 1e9:.1f} GB).",
            file=sys.stderr,
        )
    counts = {}
    for path in files:
        number = 0
        kind = tfrecords.compression_type([path])
        try:
            for _ in tf.data.TFRecordDataset(path, kind).as_numpy_iterator():
                number += 1
        except tf.errors.DataLossError as error:
            raise shards.damaged(path, number, _reason(error)) from None
        counts[path] = number
    return counts


def _parse(task, params: cfg.DataConfig, counts: Mapping[str, int]) -> None:
    """Parses examples one by one; raises an error about the first bad one."""
    for path in counts:
        dataset = tf.data.TFRecordDataset(
            path, tfrecords.compression_type([path])
        )
        if not task.SPEC.reads_segments:
            dataset = dataset.batch(1)
        dataset = dataset.map(
            functools.partial(task.parse, is_training=params.is_training)
        )
        batches = iter(dataset)
        for number in range(counts[path]):
            try:
                next(batches)
            except tf.errors.OpError as error:
                raise _foreign(task, path, number, _reason(error)) from None


def _reason(error: tf.errors.OpError) -> str:
    """Returns the message of an error without TensorFlow's stack trace."""
    reason = " ".join(without_stack(error.message)).rstrip(".")
    # TensorFlow escapes quotes in assertions.
    return reason.replace("\\'", "'")


def _foreign(task, path: str, number: int, problem: str) -> UserError:
    """Returns the error of a record that a task cannot parse."""
    dataset = tf.data.TFRecordDataset(path, tfrecords.compression_type([path]))
    record_id = None
    with contextlib.suppress(Exception):
        (serialized,) = dataset.skip(number).take(1).as_numpy_iterator()
        features = tf.train.Example.FromString(serialized).features.feature
        (value, *_) = features["example_id"].bytes_list.value
        record_id = value.decode("utf-8")
    sizes = (task.metadata or {}).get("preprocessing_config", {})
    lengths = [f"{x}={y}" for x, y in sizes.items() if x.endswith("_length")]
    expected = f"expected a record of the task {task.SPEC.name}"
    if lengths:
        expected += f" with {', '.join(lengths)}"
    place = where(path, number, record_id=record_id)
    return UserError(f"{place}: {problem}; {expected}. {shards.ADVICE}")
