"""Hashes record ids to integers, because TPUs do not support strings."""

import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def record_keys(example_ids: tf.Tensor) -> tf.Tensor:
    """Hashes each id twice: `<string>[batch]` to `<int32>[batch, 2]`.

    Among a million ids, the probability of a collision is about 1e-7.
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
    """Hashes a part of a document to 1 ... 2**31 - 1, equally in every run."""
    name = f"{record.source.path}\n{record.id}\n{part}".encode()
    return zlib.crc32(name) % (2**31 - 1) + 1


def keyed(records: Sequence[Any]) -> dict[tuple[int, int], Any]:
    """Returns `(hash, hash)` -> record; see `record_keys`."""
    ids = tf.constant([record.id for record in records], tf.string)
    keys = record_keys(ids).numpy().tolist()
    return {
        tuple(key): record for key, record in zip(keys, records, strict=True)
    }
