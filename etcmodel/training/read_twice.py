"""Parameters of ReadTwice's encoder, and batches of its segments.

Works with Keras 2 only; see `training.experiments`.
"""

from etcmodel.training import experiments  # First: it explains Keras 3.

# isort: split
import dataclasses
from collections.abc import Callable

import tensorflow as tf
from official.core import config_definitions as cfg

from etcmodel.errors import UserError
from etcmodel.models import ReadTwiceConfig


@dataclasses.dataclass
class ReadTwiceParams(
    experiments.preset_params(ReadTwiceConfig, "summary_padding_token_id")
):
    """The encoder of ReadTwice: values of a `ReadTwiceConfig`."""


def check_length(config: ReadTwiceConfig, block_length: int) -> None:
    """Checks that a model can read the segments of the records.

    Args:
        config: its sizes.
        block_length: tokens of a segment.

    Raises:
        UserError: they are too long.
    """
    if block_length > config.max_seq_length:
        raise UserError(
            f"The records have segments of {block_length} tokens, but "
            "task.model.encoder.max_seq_length is "
            f"{config.max_seq_length}."
        )


@experiments.graph_code
def read_blocks(
    params: cfg.DataConfig,
    parse: Callable[[tf.Tensor], object],
    num_blocks_per_example: int,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Reads packed segments in batches of one static size.

    `global_batch_size` counts segments. A batch of all replicas of a host holds
    whole examples, so that the segments of a document are always together; a
    replica's part of it can begin in the middle of one. Documents of different
    examples have different `block_ids`, also if the same example is there
    twice, as it can be in training.

    In evaluation no segment is dropped and none counts twice: the last batch is
    filled up with examples of zeros.

    Args:
        params: files (see `tfrecords.find_files`), batch size, shuffling of
            examples.
        parse: graph function from a serialized example, `<string>[]`, to a
            tuple of dicts of tensors `[num_blocks_per_example, ...]`, the first
            of them with `block_ids`, which others may have, too.
        num_blocks_per_example: segments of an example.
        input_context: which part of the input belongs to this host.

    Returns:
        The dataset of batches.

    Raises:
        UserError: there are no such files, or the batch size does not go
            together with the size of examples or the number of replicas.
    """
    host, hosts, replicas = 0, 1, 1
    if input_context is not None:
        host = input_context.input_pipeline_id
        hosts = input_context.num_input_pipelines
        replicas = input_context.num_replicas_in_sync
    size = params.global_batch_size
    if size % (hosts * num_blocks_per_example) or size % replicas:
        raise UserError(
            f"global_batch_size is {size}: it counts segments, and must be a "
            f"multiple of {hosts * num_blocks_per_example} (the segments of an "
            f"example times {hosts} hosts) and of {replicas} (replicas)."
        )
    # Examples of a host in a batch of all replicas.
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
        del input_context  # Known already.
        dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        if not params.is_training:
            nothing = dataset.take(1).map(
                lambda *x: tf.nest.map_structure(tf.zeros_like, x)
            )
            dataset = dataset.concatenate(nothing.repeat(number - 1))
        dataset = dataset.batch(number, drop_remainder=True)
        dataset = dataset.map(number_documents_of_batch)
        # One by one, to be dealt out to the replicas of this host.
        dataset = dataset.unbatch().unbatch()
        return dataset.batch(size // replicas, drop_remainder=True)

    return experiments.read_files(params, batch, input_context)


def number_documents(block_ids, example_numbers) -> tf.Tensor:
    """Numbers the documents of some examples, each with another number.

    The documents `[[7, 7, 8], [7, 9, 0]]` of the examples 0 and 5 become
    `[[1, 1, 3], [16, 17, 0]]`.

    Args:
        block_ids: `<int32>[examples, blocks]` document of each segment, 0 for
            padding.
        example_numbers: `<int32>[examples]`, from 0, no two of them alike.

    Returns:
        `<int32>[examples, blocks]`, 0 for padding.
    """
    # [examples, blocks, blocks]
    is_same = tf.equal(block_ids[:, :, tf.newaxis], block_ids[:, tf.newaxis])
    # [examples, blocks]: the first segment of the document
    first = tf.argmax(is_same, axis=2, output_type=tf.int32)
    first += block_ids.shape[1] * example_numbers[:, tf.newaxis]
    return tf.where(tf.equal(block_ids, 0), 0, first + 1)
