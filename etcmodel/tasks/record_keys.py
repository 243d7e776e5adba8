"""Numbers that stand for records where strings cannot go, as on a TPU."""

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
