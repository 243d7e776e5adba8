"""Checks of the ids and breakpoints that describe a text's structure.

Functions return `etcmodel.ops.checks.Check` objects. Tokens after the last
breakpoint of a row are padding; their ids are not checked.
"""

from collections.abc import Mapping

import tensorflow as tf

from etcmodel.ops import checks

SENTENCES_EXAMPLE = (
    "Example with two sentences: long_token_ids [23, 24, 9, 25, 9], "
    "sentence_ids [0, 0, 0, 1, 1], long_breakpoints [0, 0, 0, 0, 1], "
    "global_token_ids [1, 1], global_breakpoints [0, 1]."
)
PARAGRAPHS_EXAMPLE = (
    "Example with a question of one token and a paragraph of two sentences: "
    "long_sentence_ids [0, 2, 2, 3], long_paragraph_ids [-1, 1, 1, 1], "
    "long_paragraph_breakpoints [1, 0, 0, 1], global_paragraph_breakpoints "
    "[1, 0, 0, 1]."
)
BREAKPOINTS_EXAMPLE = (
    "Example with two texts of three and two tokens: [0, 0, 1, 0, 1]."
)
# A text of up to two tokens, such as [CLS] and [SEP], needs no sentence.
_MAX_UNOWNED = 2


def breakpoints(name: str, values: tf.Tensor) -> checks.Check:
    """Checks that breakpoints are 0 or 1."""
    return checks.in_range(
        name, values, 0, 1, "expected 1 on the last token of each text, else 0"
    )


def of_features(
    features: Mapping[str, tf.Tensor],
) -> tuple[list[checks.Check], str]:
    """Returns the checks of an encoder's features, and a correct example.

    Features that `build_encoder` does not use are ignored.
    """
    for names, check, example in (
        (
            ("long_breakpoints", "global_breakpoints", "sentence_ids"),
            sentences,
            SENTENCES_EXAMPLE,
        ),
        (
            (
                "long_paragraph_breakpoints",
                "global_paragraph_breakpoints",
                "long_sentence_ids",
            ),
            _paragraph_features,
            PARAGRAPHS_EXAMPLE,
        ),
    ):
        if names[0] in features:
            *ends, sentence_ids = (features[x] for x in names)
            found = [
                breakpoints(name, x)
                for name, x in zip(names, ends, strict=False)
            ]
            if "long_token_ids" in features:
                found.append(
                    text_end(
                        names[0],
                        ends[0],
                        sentence_ids,
                        features["long_token_ids"],
                    )
                )
            numbers = [
                tf.cumsum(tf.cast(x, tf.int32), axis=1, reverse=True)
                for x in ends
            ]
            given = features if check is _paragraph_features else sentence_ids
            return found + check(*numbers, given), example
    return [], ""


def _paragraph_features(long_contexts, global_contexts, features):
    """Checks the ids of the structure "paragraphs"."""
    names = ("long_sentence_ids", "long_paragraph_ids", "l2g_linked_ids")
    ids = {name: features[name] for name in names if name in features}
    return paragraphs(long_contexts, global_contexts, ids, {})


def text_end(
    name: str, values: tf.Tensor, sentence_ids: tf.Tensor, token_ids: tf.Tensor
) -> checks.Check:
    """Checks that a row whose tokens differ has a breakpoint."""
    num_ends = tf.reduce_sum(tf.cast(values, tf.int32), axis=1)
    return checks.Check(
        name,
        "expected a 1 on the last token of each text, since the tokens of the "
        "row differ",
        (num_ends == 0) & varies(sentence_ids) & varies(token_ids),
        num_ends,
    )


def sentences(
    long_example_ids: tf.Tensor,
    global_example_ids: tf.Tensor,
    sentence_ids: tf.Tensor,
) -> list[checks.Check]:
    """Checks that both inputs hold the same texts, and sentence ids match.

    Example ids, `<int>[batch, length]`, number the packed texts as
    `example_ids_from_breakpoints` does; 0 is padding.
    """
    is_text = long_example_ids > 0
    # [batch]
    num_long, num_global = (
        tf.reduce_max(tf.pad(x, [[0, 0], [0, 1]]), axis=1)
        for x in (long_example_ids, global_example_ids)
    )
    num_tokens = tf.reduce_sum(tf.cast(is_text, tf.int32), axis=1)
    last_owner = tf.reduce_max(tf.where(is_text, sentence_ids, -1), axis=1)
    long_len = tf.shape(long_example_ids)[1]
    global_len = tf.shape(global_example_ids)[1]
    return [
        checks.Check(
            "The number of texts in long_breakpoints",
            "expected at least the number of texts in global_breakpoints: put "
            "a 1 on the last token of each text in both",
            # A text without global tokens has no sentences.
            (num_long < num_global) & (long_len > 0),
            num_long,
        ),
        _indices("sentence_ids", sentence_ids, global_len, is_text),
        _own_sentences(long_example_ids, global_example_ids, sentence_ids),
        checks.Check(
            "sentence_ids",
            "expected each token to have the index of its sentence's global "
            "token, counted from 0; no token of the row has one",
            (last_owner < 0) & (num_tokens > _MAX_UNOWNED) & (num_global > 0),
            last_owner,
        ),
    ]


def _own_sentences(long_example_ids, global_example_ids, sentence_ids):
    """Checks that a token and its global token belong to the same text."""
    # [batch, 1 + global], 0 for no text
    padded = tf.pad(global_example_ids, [[0, 0], [1, 0]])
    last = tf.shape(global_example_ids)[1]
    index = tf.cast(sentence_ids, tf.int32) + 1
    # [batch, long]
    owner_text = tf.gather(
        padded, tf.clip_by_value(index, 0, last), batch_dims=1
    )
    is_other = (
        (owner_text != long_example_ids) & (index > 0) & (long_example_ids > 0)
    )
    found = tf.reduce_max(tf.where(is_other, index - 1, -1), axis=1)
    return checks.Check(
        "sentence_ids",
        "expected a global token of the same text, counted from 0 in the row "
        "(see global_breakpoints), or -1",
        found >= 0,
        found,
    )


def paragraphs(
    long_contexts: tf.Tensor,
    global_contexts: tf.Tensor,
    long_ids: Mapping[str, tf.Tensor],
    global_ids: Mapping[str, tf.Tensor],
) -> list[checks.Check]:
    """Checks that the ids of all tokens except padding are valid indices.

    `long_contexts` and `global_contexts`, `<int>[batch, length]`, number the
    paragraphs; 0 is padding. `long_ids` and `global_ids` map names to indices
    of global tokens, in the shapes of `long_contexts` and `global_contexts`.
    The first of `long_ids` are sentence ids.
    """
    is_global = global_contexts > 0
    # [batch]
    num_global = tf.reduce_sum(tf.cast(is_global, tf.int32), axis=1)
    num_long = tf.reduce_sum(tf.cast(long_contexts > 0, tf.int32), axis=1)
    sentence_ids = next(iter(long_ids.values()))
    return [
        checks.Check(
            "long_paragraph_breakpoints",
            "expected a 1 on the last token of the question and of each "
            "paragraph; the row has several sentences, but no 1",
            (num_long == 0) & (num_global > 0) & varies(sentence_ids),
            num_long,
        ),
        *(
            _indices(name, ids, num_global, is_used)
            for given, is_used in (
                (long_ids, long_contexts > 0),
                (global_ids, is_global),
            )
            for name, ids in given.items()
        ),
    ]


def _indices(name, ids, num_global, is_used):
    """Checks that ids are -1 to `num_global - 1`.

    `num_global` is an int or `<int>[batch]`.
    """
    return checks.in_range(
        name,
        ids,
        -1,
        num_global - 1,
        "expected the index of a global token of the row, counted from 0 up to "
        "the last global breakpoint, or -1 for none",
        is_used,
    )


def varies(values: tf.Tensor) -> tf.Tensor:
    """Marks rows whose values are not all equal, `<bool>[batch]`."""
    return tf.reduce_min(values, axis=1) < tf.reduce_max(values, axis=1)
