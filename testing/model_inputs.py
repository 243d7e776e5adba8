"""Small inputs for layers and for the models of all tasks."""

import numpy as np
import tensorflow as tf

RELATIVE_VOCAB = 6


def make_attention_call(
    seed, long_len, global_len, radius, long_size=8, global_size=8
):
    """Returns random `FusedGlobalLocalAttention` arguments.

    Every token sees itself.
    """
    rng = np.random.default_rng(seed)
    width = 2 * radius + 1

    def ints(high, *shape):
        return tf.constant(rng.integers(high, size=shape), tf.int32)

    shapes = {
        "l2l": (2, long_len, width),
        "g2g": (2, global_len, global_len),
        "l2g": (2, long_len, global_len),
        "g2l": (2, global_len, long_len),
    }
    masks = {f"{piece}_att_mask": ints(2, *s) for piece, s in shapes.items()}
    masks["l2l_att_mask"] |= tf.one_hot(radius, width, dtype=tf.int32)
    masks["g2g_att_mask"] |= tf.eye(global_len, dtype=tf.int32)
    return dict(
        long_input=tf.constant(
            rng.standard_normal((2, long_len, long_size)), tf.float32
        ),
        global_input=tf.constant(
            rng.standard_normal((2, global_len, global_size)), tf.float32
        ),
        **masks,
        **{
            f"{piece}_relative_att_ids": ints(RELATIVE_VOCAB, *shape)
            for piece, shape in shapes.items()
        },
    )


def make_sentences(batch=2):
    """Returns two sentences and padding."""
    row = {
        "long_token_ids": [5, 6, 7, 8, 9, 0, 0],
        "long_breakpoints": [0, 0, 0, 0, 1, 0, 0],
        "sentence_ids": [0, 0, 1, 1, 1, 0, 0],
        "global_token_ids": [1, 1, 0],
        "global_breakpoints": [0, 1, 0],
    }
    return {k: np.array([v] * batch, np.int32) for k, v in row.items()}


def make_paragraphs(batch=2):
    """Returns two candidates, a question of one token, a paragraph, padding."""
    row = {
        "long_token_ids": [3, 6, 7, 8, 9, 0, 0],
        "long_token_type_ids": [3, 1, 1, 1, 1, 0, 0],
        "long_sentence_ids": [2, 4, 4, 5, 5, -1, -1],
        "long_paragraph_ids": [-1, 3, 3, 3, 3, -1, -1],
        "long_paragraph_breakpoints": [1, 0, 0, 0, 1, 0, 0],
        "l2g_linked_ids": [-1, 0, -1, 1, -1, -1, -1],
        "global_token_ids": [4, 4, 3, 5, 1, 1, 0],
        "global_token_type_ids": [6, 6, 5, 7, 1, 1, 0],
        "global_paragraph_breakpoints": [0, 1, 1, 0, 0, 1, 0],
    }
    return {k: np.array([v] * batch, np.int32) for k, v in row.items()}


def _repeated(features, batch):
    """Repeats lists of ids `batch` times."""
    return {
        name: tf.tile(tf.constant([value], tf.int32), [batch, 1])
        for name, value in features.items()
    }


def wikihop(batch=2):
    """Returns two candidates, a query token and a document of two sentences."""
    features = {
        "long_token_ids": [5, 6, 7, 8, 5, 9, 10, 0, 0, 0, 0, 0],
        "long_token_type_ids": [4, 4, 3, 1, 1, 1, 1, 0, 0, 0, 0, 0],
        "long_sentence_ids": [0, 1, 2, 4, 4, 5, 5, -1, -1, -1, -1, -1],
        "long_paragraph_ids": [-1, -1, -1, 3, 3, 3, 3, -1, -1, -1, -1, -1],
        "long_paragraph_breakpoints": [1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        "l2g_linked_ids": [0, 1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1],
        "l2g_linked_ids_2": [-1] * 12,
        "l2g_linked_ids_3": [-1] * 12,
        "global_token_ids": [4, 4, 3, 5, 1, 1, 0, 0],
        "global_token_type_ids": [6, 6, 5, 7, 0, 0, 0, 0],
        "global_paragraph_breakpoints": [1, 1, 1, 0, 0, 1, 0, 0],
    }
    return _repeated(features, batch)


# A question of two words and two paragraphs, each of a title and sentences.
_HOTPOTQA = {
    "long_token_ids": [11, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0],
    "long_token_type_ids": [1, 3, 3, 2, 1, 1, 1, 2, 2, 1, 0, 0],
    "long_sentence_ids": [-1, 1, 2, 4, 5, 5, 6, 8, 8, 9, -1, -1],
    "long_paragraph_ids": [-1, -1, -1, 3, 3, 3, 3, 7, 7, 7, -1, -1],
    "long_paragraph_breakpoints": [1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0],
    "l2g_linked_ids": [-1] * 12,
    "global_token_ids": [11, 12, 12, 13, 1, 1, 1, 13, 1, 1, 0],
    "global_token_type_ids": [8, 5, 5, 7, 0, 0, 0, 7, 0, 0, 0],
    "global_paragraph_breakpoints": [1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0],
}


def hotpotqa(**changes):
    """Returns a batch that repeats `_HOTPOTQA`, with changes, twice."""
    return _repeated({**_HOTPOTQA, **changes}, 2)


def nq(batch=2):
    """Returns [CLS], a question of two tokens, and a page of two candidates."""
    features = {
        "long_token_ids": [4, 7, 8, 5, 9, 10, 11, 12, 13, 5, 0, 0],
        "long_token_type_ids": [1, 3, 3, 3, 1, 1, 1, 1, 1, 3, 0, 0],
        "long_sentence_ids": [0, 1, 2, -1, 3, 3, 4, 4, 4, -1, -1, -1],
        "long_paragraph_ids": [-1] * 12,
        "long_paragraph_breakpoints": [0] * 9 + [1, 0, 0],
        "l2g_linked_ids": [-1] * 12,
        "global_token_ids": [4, 3, 3, 1, 1, 0, 0],
        "global_token_type_ids": [8, 5, 5, 0, 0, 0, 0],
        "global_paragraph_breakpoints": [0, 0, 0, 0, 1, 0, 0],
    }
    return _repeated(features, batch)


def openkp(batch=2):
    """Returns two nodes, of three words and one word, with visual features."""
    features = {
        "long_token_ids": [5, 6, 7, 8, 9, 5, 0, 0, 0, 0, 0, 0],
        "long_token_type_ids": [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
        "long_sentence_ids": [0, 0, 0, 0, 1, 1, -1, -1, -1, -1, -1, -1],
        "long_paragraph_ids": [-1] * 12,
        "long_paragraph_breakpoints": [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        "l2g_linked_ids": [-1] * 12,
        "global_token_ids": [1, 1, 0, 0, 0, 0, 0, 0],
        "global_token_type_ids": [0] * 8,
        "global_paragraph_breakpoints": [0, 1, 0, 0, 0, 0, 0, 0],
        "words": [1, 1, 2, 3, 4, 4, 0, 0, 0, 0, 0, 0],
    }
    visual = np.zeros([8, 20], np.float32)
    visual[0] = [48, 619, 114, 36, 1, 0, 1, 0, 26, 0] * 2
    visual[1] = [190, 77, 97, 14, 0, 1, 0, 1, 11, 1, *visual[0, :10]]
    visual = tf.tile(visual[np.newaxis], [batch, 1, 1])
    return _repeated(features, batch) | {"visual": visual}
