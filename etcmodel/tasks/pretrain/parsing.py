"""Stored texts to the encoder's inputs; graph code."""

import tensorflow as tf

from etcmodel.tasks.pretrain import features as features_lib


def parse(
    serialized: tf.Tensor,
    long_length: int,
    global_length: int,
    sentence_token_id: int,
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Reads a batch of stored texts; graph code.

    Example: two texts in one example, of the sentences `5 6` and `7`, and of
    `8 9`, with room for 6 tokens and 4 sentences:

        long_token_ids    5 6 7 8 9  0      global_token_ids    1 1 1 0
        sentence_ids      0 0 1 2 2 -1      global_breakpoints  0 1 1 0
        long_breakpoints  0 0 1 0 1  0

    Args:
        serialized: `<string>[batch]`.
        long_length: length of the long input.
        global_length: length of the global input.
        sentence_token_id: the global token of every sentence.

    Returns:
        A pair of the inputs of an encoder of "sentences", `<int32>[batch,
        long_length]` and `<int32>[batch, global_length]`, and of whether tokens
        go on with a word, `<int32>[batch, long_length]`.
    """
    stored = tf.io.parse_example(
        serialized,
        {name: tf.io.RaggedFeature(tf.int64) for name in features_lib.FEATURES},
    )
    stored = {
        name: tf.cast(x, tf.int32).with_row_splits_dtype(tf.int64)
        for name, x in stored.items()
    }
    tokens = stored["token_ids"]
    lengths = stored[features_lib.SENTENCE_LENGTHS]
    # All of the batch one after the other; what ends a text is 1.
    # [sentences]
    is_last = _marks(
        tf.cumsum(stored[features_lib.TEXT_LENGTHS].values) - 1,
        tf.ones_like(stored[features_lib.TEXT_LENGTHS].values),
        lengths.values,
    )
    # [tokens]
    is_end = _marks(tf.cumsum(lengths.values) - 1, is_last, tokens.values)
    number = tf.cast(tf.ragged.range(lengths.row_lengths()).values, tf.int32)
    owner = tf.repeat(number, lengths.values)

    def dense(like, values, length, padding=0):
        """`<int32>[batch, length]`."""
        return like.with_values(values).to_tensor(padding, shape=[None, length])

    return {
        "long_token_ids": dense(tokens, tokens.values, long_length),
        "sentence_ids": dense(tokens, owner, long_length, -1),
        "long_breakpoints": dense(tokens, is_end, long_length),
        "global_token_ids": dense(
            lengths,
            tf.fill(tf.shape(number), sentence_token_id),
            global_length,
        ),
        "global_breakpoints": dense(lengths, is_last, global_length),
    }, dense(tokens, stored["is_continuation"].values, long_length)


def _marks(places, values, like):
    """Values at some places, and 0 at all others, as many as in `like`."""
    return tf.tensor_scatter_nd_max(
        tf.zeros_like(like), places[:, tf.newaxis], values
    )
