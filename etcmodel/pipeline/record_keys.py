"""Numbers that stand for records where strings cannot go, as on a TPU."""

import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def record_keys(example_ids: tf.Tensor) -> tf.Tensor:
    """Two hashes of every id; different ids have different pairs.

    Args:
        example_ids: `<string>[batch]`.

    Returns:
        `<int32>[batch, 2]`. The chance that two of a million ids have the same
        pair is about one in ten million.
    """
    return tf.stack(
        [
            tf.cast(
                tf.strings.to_hash_bucket_strong(
                    example_ids, 2**31 - 1, key=[17, seed]
                ),
                tf.int32,
            )
            for seed in (1, 2)
        ],
        axis=1,
    )


def document_number(record: Any, part: int) -> int:
    """Numbers a part of a document, to tell it apart in a packed example.

    Args:
        record: a record of a file.
        part: which part of its document.

    Returns:
        A positive number below 2**31, the same in every run.
    """
    name = f"{record.source.path}\n{record.id}\n{part}".encode()
    return zlib.crc32(name) % (2**31 - 1) + 1


def keyed(records: Sequence[Any]) -> dict[tuple[int, int], Any]:
    """Records by the numbers that stand for them.

    Args:
        records: anything with an `id`.

    Returns:
        The pair of hashes of its id -> record, in the same order.
    """
    ids = tf.constant([record.id for record in records], tf.string)
    keys = record_keys(ids).numpy().tolist()
    return {
        tuple(key): record for key, record in zip(keys, records, strict=True)
    }
