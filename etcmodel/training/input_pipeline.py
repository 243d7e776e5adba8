"""Reads stored examples in batches of a static size.

Works only with Keras 2; see `training.configuration`.
"""

# Imported first, because it raises an error under Keras 3.
from etcmodel.training import configuration

# isort: split
import functools
import random
from collections.abc import Callable

import tensorflow as tf
from official.core import config_definitions as cfg
from official.core import input_reader

from etcmodel.errors import UserError
from etcmodel.feature_utils import random_masks
from etcmodel.pipeline import tfrecords

# Maps serialized examples and a seed to features and labels; graph code. The
# seed, `<int32>[2]`, differs for each call in training, and is None in
# evaluation.
Parse = Callable[[tf.Tensor, tf.Tensor | None], object]
# Number of files whose records are interleaved. It affects the order of the
# records.
_CYCLE_LENGTH = 8


@configuration.graph_code
def read_batches(
    params: cfg.DataConfig,
    parse: Parse,
    input_context: tf.distribute.InputContext | None = None,
    sorted_batches: int = 0,
    first_step: int = 0,
) -> tf.data.Dataset:
    """Reads TFRecords in batches with a static number of records.

    Evaluation counts every record exactly once, on any number of replicas. The
    last batch is padded with zeros, and batches of zeros follow until every
    replica has one. Parsed batches must therefore have weights that are 1 for
    records and 0 for padding.

    With a seed, training batches are the same in each process.

    Args:
        params: files, batch size and seed.
        parse: maps `<string>[batch]` to tensors `[batch, ...]`; see `Parse`.
        input_context: determines the host's share of the data.
        sorted_batches: if above 1, training batches hold records of similar
            length; see `sort_by_length`.
        first_step: training skips the batches of steps before this one.

    Raises:
        UserError: there are no files.
    """

    def batch(dataset, input_context):
        size, replicas = params.global_batch_size, 1
        if input_context is not None:
            size = input_context.get_per_replica_batch_size(size)
            replicas = (
                input_context.num_replicas_in_sync
                // input_context.num_input_pipelines
            )

        def fill(value):
            missing = size - tf.shape(value)[0]
            paddings = [[0, missing]] + [[0, 0]] * (value.shape.rank - 1)
            # [size, ...]
            return tf.ensure_shape(
                tf.pad(value, paddings), [size, *value.shape[1:]]
            )

        if sorted_batches > 1 and params.is_training:
            dataset = sort_by_length(dataset, size, sorted_batches, params.seed)
        dataset = dataset.batch(size, drop_remainder=params.is_training)
        dataset = _parsed(
            dataset, parse, params, input_context, first_step * replicas
        )
        dataset = dataset.map(lambda *x: tf.nest.map_structure(fill, x))
        if params.is_training or replicas == 1:
            return dataset
        nothing = dataset.take(1).map(
            lambda *x: tf.nest.map_structure(tf.zeros_like, x)
        )
        return dataset.concatenate(nothing.repeat(replicas - 1))

    return read_files(params, batch, input_context)


def _parsed(dataset, parse, params, input_context, num_seen) -> tf.data.Dataset:
    """Parses elements; in training, skips the first `num_seen`."""
    if not params.is_training:
        return dataset.map(
            lambda x: parse(x, None), num_parallel_calls=tf.data.AUTOTUNE
        )
    host = input_context.input_pipeline_id if input_context else 0
    seed = random.getrandbits(31) if params.seed is None else params.seed

    def parse_seeded(number, serialized):
        # [2]
        of_batch = tf.random.experimental.stateless_fold_in(
            tf.constant([seed % 2**31, host]),
            tf.cast(number, tf.int32),
            random_masks.ALGORITHM,
        )
        return parse(serialized, of_batch)

    return (
        dataset.skip(num_seen)
        .enumerate(num_seen)
        .map(parse_seeded, num_parallel_calls=tf.data.AUTOTUNE)
    )


def read_examples(
    params: cfg.DataConfig,
    size: int,
    first: int,
    number: int,
    sorted_batches: int = 0,
) -> list[bytes]:
    """Reads the serialized examples of consecutive batches of this host.

    Args:
        params: files and seed of the training run.
        size: number of examples in a batch.
        first: index of the first batch, from 0.
        number: number of batches.
        sorted_batches: the value of the training run; see `read_batches`.
    """

    def batch(dataset, input_context):
        del input_context
        if sorted_batches > 1:
            dataset = sort_by_length(dataset, size, sorted_batches, params.seed)
        return dataset.batch(size).skip(first).take(number)

    batches = read_files(params, batch).as_numpy_iterator()
    return [example for batch in batches for example in batch]


def sort_by_length(
    dataset: tf.data.Dataset, size: int, number: int, seed: int | None = None
) -> tf.data.Dataset:
    """Orders examples so that batches have examples of similar length.

    Sorts the examples of `number` batches by their number of bytes, then
    shuffles these batches.

    Args:
        dataset: dataset of `<string>[]`.
        size: number of examples in a batch.
        number: number of batches to sort together. If the dataset repeats
            sooner, a batch can have copies of an example.
        seed: seed for shuffling.
    """

    def sort(examples):
        return tf.gather(examples, tf.argsort(tf.strings.length(examples)))

    return (
        dataset.batch(number * size)
        .map(sort)
        .unbatch()
        .batch(size)
        .shuffle(number, seed)
        .unbatch()
    )


def read_files(
    params: cfg.DataConfig,
    batch: Callable[
        [tf.data.Dataset, tf.distribute.InputContext | None], tf.data.Dataset
    ],
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Reads TFRecords with the Model Garden's reader.

    Disables tf.data's autotuning. Its thread can miss the signal to stop; then
    deleting the iterator after validation blocks for up to a minute.

    Args:
        params: files and reading options.
        batch: maps a dataset of examples, `<string>[]`, to a dataset of
            batches.
        input_context: determines the host's share of the data.
    """
    files = tfrecords.find_files(params.input_path)
    # The Model Garden's default depends on the number of CPU cores.
    cycle_length = params.cycle_length or min(len(files), _CYCLE_LENGTH)
    reader = input_reader.InputReader(
        params.replace(input_path=files, cycle_length=cycle_length),
        dataset_fn=functools.partial(
            tf.data.TFRecordDataset,
            compression_type=tfrecords.compression_type(files),
        ),
        transform_and_batch_fn=batch,
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    return reader.read(input_context).with_options(options)


@configuration.graph_code
def read_blocks(
    params: cfg.DataConfig,
    parse: Parse,
    num_blocks_per_example: int,
    input_context: tf.distribute.InputContext | None = None,
    first_step: int = 0,
) -> tf.data.Dataset:
    """Reads packed segments in batches of a static size.

    `global_batch_size` counts segments. The replicas of a host together read
    whole examples, so that the segments of a document stay together; the batch
    of one replica can begin in the middle of an example. Documents of different
    examples have different `block_ids`, even if training repeats an example.

    Evaluation counts every segment exactly once. Its last batch is padded with
    examples of zeros.

    Args:
        params: files, batch size and seed.
        parse: maps an example, `<string>[]`, to a tuple of dicts of tensors,
            `[num_blocks_per_example, ...]`. The first dict has `block_ids`;
            other dicts may have them as well.
        num_blocks_per_example: number of segments per example.
        input_context: determines the host's share of the data.
        first_step: see `read_batches`.

    Raises:
        UserError: the batch size is not a multiple of the size of the examples
            and of the number of replicas.
    """
    host, hosts, replicas = 0, 1, 1
    if input_context is not None:
        host = input_context.input_pipeline_id
        hosts = input_context.num_input_pipelines
        replicas = input_context.num_replicas_in_sync
    size = params.global_batch_size
    if size % (hosts * num_blocks_per_example) or size % replicas:
        raise UserError(
            f"global_batch_size is {size}. It counts segments, and must be a "
            f"multiple of {hosts * num_blocks_per_example} (the segments of an "
            f"example times {hosts} hosts) and of {replicas} (replicas)."
        )
    # Number of examples in a host's part of a global batch.
    number = size // hosts // num_blocks_per_example

    def number_documents_of_batch(features, *others):
        block_ids = number_documents(
            features["block_ids"],
            # [number]
            number * host + tf.range(number),
        )
        return tuple(
            {**x, "block_ids": block_ids} if "block_ids" in x else x
            for x in (features, *others)
        )

    def batch(dataset, input_context):
        dataset = _parsed(
            dataset, parse, params, input_context, first_step * number
        )
        if not params.is_training:
            nothing = dataset.take(1).map(
                lambda *x: tf.nest.map_structure(tf.zeros_like, x)
            )
            dataset = dataset.concatenate(nothing.repeat(number - 1))
        dataset = dataset.batch(number, drop_remainder=True)
        dataset = dataset.map(number_documents_of_batch)
        # Unbatches to single segments, then makes a batch for each replica.
        dataset = dataset.unbatch().unbatch()
        return dataset.batch(size // replicas, drop_remainder=True)

    return read_files(params, batch, input_context)


def number_documents(block_ids, example_numbers) -> tf.Tensor:
    """Numbers the documents of several examples uniquely.

    Example: `[[7, 7, 8], [7, 9, 0]]` with the example numbers 0 and 5 becomes
    `[[1, 1, 3], [16, 17, 0]]`.

    Args:
        block_ids: the document of each segment, unique within an example; 0 for
            padding, `<int32>[examples, blocks]`.
        example_numbers: distinct numbers, `<int32>[examples]`.
    """
    # [examples, blocks, blocks]
    is_same = tf.equal(block_ids[:, :, tf.newaxis], block_ids[:, tf.newaxis])
    # [examples, blocks]: index of the first segment of the same document
    first = tf.argmax(is_same, axis=2, output_type=tf.int32)
    first += block_ids.shape[1] * example_numbers[:, tf.newaxis]
    return tf.where(tf.equal(block_ids, 0), 0, first + 1)
