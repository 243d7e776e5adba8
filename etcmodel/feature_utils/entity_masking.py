"""Masks tokens for ReadTwice's masked language model; graph code.

A batch is a list of segments of one or more documents, one segment per row.
Mentions of entities are masked as a whole and more often than other text, so
that the model must look them up in its memory.

Source: ReadTwice paper, section 2.2, "Pre-training".
"""

import math
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import random_masks
from etcmodel.ops import shapes

MENTION_MASK_MODES = ("whole_mention", "whole_entity", "whole_entity_batch")

# Label of a mention of an unknown entity. Label 0 is padding; known entities
# have higher labels.
UNKNOWN_ENTITY = 1


class MaskedTokens(NamedTuple):
    """Masked tokens, each `[batch, length]`.

    Attributes:
        token_ids: the input ids, where masked tokens have the mask token's id.
        is_target: whether the model predicts the token. Some masked tokens are
            not predicted.
        is_entity: whether the token is part of a mention, masked or not.
    """

    token_ids: tf.Tensor
    is_target: tf.Tensor
    is_entity: tf.Tensor


def mention_token_mask(begins, ends, labels, length) -> tf.Tensor:
    """Marks the tokens of mentions, `<bool>[batch, length]`.

    `begins` and `ends` are the first and the last token of each mention, both
    `<int>[batch, mentions]`; `labels` has the same shape and is 0 for padding.
    Example: `begins=[[1, 4, 0]]`, `ends=[[2, 4, 0]]`, `labels=[[7, 8, 0]]` and
    a length of 5 give `[[0, 1, 1, 0, 1]]`.
    """
    # [1, 1, length]
    positions = tf.range(length, dtype=begins.dtype)[tf.newaxis, tf.newaxis]
    # [batch, mentions, length]
    inside = (
        (positions >= begins[..., tf.newaxis])
        & (positions <= ends[..., tf.newaxis])
        & tf.not_equal(labels, 0)[..., tf.newaxis]
    )
    # [batch, length]
    return tf.reduce_any(inside, axis=1)


def mask_same_entity_mentions(
    token_ids,
    annotation_begins,
    annotation_ends,
    annotation_labels,
    masked_lm_positions,
    masked_lm_weights,
    mask_token_id: int,
    apply_across_whole_batch: bool,
) -> tf.Tensor:
    """Masks all mentions of each entity that has a masked token.

    Otherwise another mention of the entity would give the answer away. The
    tokens that this function masks are not predicted. Mentions of unknown
    entities are ignored. If a mention that is masked here shares tokens with a
    mention of another entity, the other entity is not masked in turn. The
    ReadTwice paper (section 2.2) masks only the chosen mentions.

    `masked_lm_positions` is `<int>[batch, predictions]`; positions with a
    weight below 1 are ignored. Mentions are given as for `mask_tokens`. With
    `apply_across_whole_batch`, mentions in all segments are masked.

    Example: `[0, 13, 2, 3, 4, 5, 13, 7]` has the mask token 13 at the positions
    1 and 6. The mentions of entity 100 are token 0 and the tokens 5 to 7. The
    result is `[13, 13, 2, 3, 4, 13, 13, 13]`.
    """
    token_ids = tf.convert_to_tensor(token_ids)
    batch, length = shapes.get_shape_list(token_ids, 2, "token_ids")
    begins, ends, labels, positions, weights = (
        tf.cast(x, tf.int32)
        for x in (
            annotation_begins,
            annotation_ends,
            annotation_labels,
            masked_lm_positions,
            masked_lm_weights,
        )
    )
    counts = (weights >= 1) & (positions >= 0) & (positions < length)
    # [batch, predictions]; the number of each token in the batch. The segment
    # sum drops -1.
    numbers = tf.where(
        counts, tf.range(batch)[:, tf.newaxis] * length + positions, -1
    )
    # [batch * length]
    is_masked = tf.math.unsorted_segment_sum(
        tf.ones_like(numbers), numbers, batch * length
    )
    # [batch, length]
    is_masked = tf.reshape(is_masked > 0, [batch, length])
    documents = _document_ids(batch, apply_across_whole_batch, None)
    is_hidden = _same_entity_tokens(begins, ends, labels, is_masked, documents)
    return tf.where(
        is_hidden, tf.cast(mask_token_id, token_ids.dtype), token_ids
    )


def mask_tokens(
    token_ids,
    is_continuation,
    is_text,
    annotation_begins,
    annotation_ends,
    annotation_labels,
    mask_token_id: int,
    seed,
    mlm_fraction_to_mask: float = 0.15,
    mlm_entity_fraction_to_mask: float = 0.25,
    mlm_max_consecutive_masks: int = 5,
    mention_mask_mode: str = "whole_mention",
    block_ids=None,
) -> MaskedTokens:
    """Chooses tokens to predict, and masks them.

    Each mention is chosen independently and masked as a whole; mentions of
    unknown entities are chosen, too. A token in several mentions is masked if
    one of them is chosen.

    Tokens outside of mentions are masked in runs of whole words. Any word can
    begin a run of random length. The probability of a run is computed such that
    each word is masked with the given probability. A run may begin before the
    segment, so that the first words are masked as often as all others. Runs
    continue across mentions and special tokens. The words of mentions and
    special tokens count towards a run's length, but the run does not mask them.
    A masked token always becomes the mask token. It is never replaced by a
    random token, and never kept.

    Example: `[CLS] We saw Mount Eve ##rest to ##day` has a mention from 3 to 5.
    If the mention is chosen and a run of one word begins at the last word, the
    segment becomes `[CLS] We saw [M] [M] [M] [M] [M]`. If the mention is not
    chosen and a run of four words begins at "saw", the segment becomes
    `[CLS] We [M] Mount Eve ##rest [M] [M]`.

    Source: ReadTwice paper, section 2.2.

    Args:
        token_ids: `<int32>[batch, length]`, one segment per row.
        is_continuation: `<int32>[batch, length]`, 1 for tokens that continue a
            word.
        is_text: `<bool>[batch, length]`, False for padding and special tokens,
            which are never masked.
        annotation_begins: `<int32>[batch, mentions]`, first token of each
            mention.
        annotation_ends: `<int32>[batch, mentions]`, last token of each mention.
        annotation_labels: `<int32>[batch, mentions]`, entity of each mention; 1
            if unknown, 0 for padding.
        mask_token_id: id of the token that replaces masked tokens.
        seed: `<int32>[2]`. The masks for a seed are the same with and without
            XLA.
        mlm_fraction_to_mask: probability that a word outside of mentions is
            masked, at least 0 and less than 1.
        mlm_entity_fraction_to_mask: probability that a mention is masked.
        mlm_max_consecutive_masks: maximum length of a run, in words. All
            lengths from 1 are equally likely; adjacent runs make longer ones.
        mention_mask_mode: which mentions besides the chosen ones are masked,
            but not predicted. "whole_mention": none. "whole_entity": all
            mentions in the segment of each entity that has a masked token (see
            `mask_same_entity_mentions`). "whole_entity_batch": all mentions of
            such entities in the whole document.
        block_ids: `<int>[batch]`, the document of each segment, 0 for padding;
            None if all segments belong to one document. Used by
            "whole_entity_batch" only.

    Raises:
        ValueError: the mode is unknown, a probability or length is out of
            range, or `token_ids` is not a matrix.
    """
    if mention_mask_mode not in MENTION_MASK_MODES:
        raise ValueError(
            f"mention_mask_mode is {mention_mask_mode!r}. Expected one of "
            f"{', '.join(map(repr, MENTION_MASK_MODES))}."
        )
    random_masks.check_fraction("mlm_fraction_to_mask", mlm_fraction_to_mask)
    random_masks.check_fraction(
        "mlm_entity_fraction_to_mask", mlm_entity_fraction_to_mask
    )
    if mlm_max_consecutive_masks < 1:
        raise ValueError(
            f"mlm_max_consecutive_masks is {mlm_max_consecutive_masks}. "
            "Expected at least 1 word."
        )
    token_ids = tf.cast(token_ids, tf.int32)
    batch, length = shapes.get_shape_list(token_ids, 2, "token_ids")
    is_text = tf.cast(is_text, tf.bool)
    begins, ends, labels = (
        tf.cast(x, tf.int32)
        for x in (annotation_begins, annotation_ends, annotation_labels)
    )
    mention_seed, *run_seeds = tf.unstack(
        tf.random.split(seed, 3, alg=random_masks.ALGORITHM)
    )

    # [batch, mentions]
    is_chosen = random_masks.random_bools(
        shapes.get_shape_list(labels),
        mention_seed,
        mlm_entity_fraction_to_mask,
    )
    # [batch, length]
    is_entity = mention_token_mask(begins, ends, labels, length)
    in_chosen = mention_token_mask(
        begins, ends, tf.where(is_chosen, labels, 0), length
    )
    in_run = _tokens_in_runs(
        is_continuation,
        run_seeds,
        mlm_fraction_to_mask,
        mlm_max_consecutive_masks,
    )
    is_target = tf.where(is_entity, in_chosen, in_run) & is_text

    is_masked = is_target
    if mention_mask_mode != "whole_mention":
        documents = _document_ids(
            batch, mention_mask_mode == "whole_entity_batch", block_ids
        )
        is_hidden = _same_entity_tokens(
            begins, ends, labels, is_target, documents
        )
        is_masked = is_target | (is_hidden & is_text)
    return MaskedTokens(
        token_ids=tf.where(
            is_masked, tf.cast(mask_token_id, tf.int32), token_ids
        ),
        is_target=is_target,
        is_entity=is_entity,
    )


def _run_probability(fraction: float, max_length: int) -> float:
    """Computes the probability q that a word begins a run."""

    # A run that begins d words earlier reaches a word if it is longer than d.
    # The probability of this is q * (max_length - d) / max_length. A word stays
    # unmasked if no run reaches it.
    def masked_fraction(q):
        return -math.expm1(
            math.fsum(
                math.log1p(-q * reaching / max_length)
                for reaching in range(1, max_length + 1)
            )
        )

    # A word that begins a run is masked, so q is at most the fraction.
    low, high = 0.0, fraction
    for _ in range(64):
        middle = (low + high) / 2
        if masked_fraction(middle) < fraction:
            low = middle
        else:
            high = middle
    return high


def _tokens_in_runs(is_continuation, seeds, fraction, max_length):
    """Draws runs of words, and marks the tokens of all words in a run."""
    # [batch, length]
    word = random_masks.word_numbers(is_continuation)
    batch, length = shapes.get_shape_list(word)
    # A segment has at most as many words as tokens, and a run may begin before
    # its first word.
    # [batch, max_length - 1 + length]
    shape = [batch, max_length - 1 + length]
    begins_run = random_masks.random_bools(
        shape, seeds[0], _run_probability(fraction, max_length)
    )
    run_lengths = random_masks.random_ints(shape, seeds[1], max_length + 1, 1)
    run_lengths = tf.where(begins_run, run_lengths, 0)
    # Whether a run reaches a word that begins `distance` words before it.
    # [batch, length]
    is_reached = tf.zeros([batch, length], tf.bool)
    for distance in range(max_length):
        start = max_length - 1 - distance
        is_reached |= run_lengths[:, start : start + length] > distance
    return tf.gather(is_reached, word, batch_dims=1)


def _document_ids(batch, apply_across_whole_batch, block_ids):
    """Returns segments' ids, equal if masked together, 0 for padding."""
    if not apply_across_whole_batch:
        return tf.range(1, batch + 1)
    if block_ids is None:
        return tf.ones([batch], tf.int32)
    return tf.cast(block_ids, tf.int32)


def _same_entity_tokens(begins, ends, labels, is_masked, documents):
    """Marks tokens of all mentions of each entity that has a masked token.

    Equal labels in segments of different `documents` are different entities.
    """
    batch, length = shapes.get_shape_list(is_masked)
    mentions = shapes.get_shape_list(labels)[1]
    # Number of masked tokens before each position.
    # [batch, length + 1]
    before = tf.pad(
        tf.cumsum(tf.cast(is_masked, tf.int32), axis=1), [[0, 0], [1, 0]]
    )

    def count_before(position):
        position = tf.clip_by_value(position, 0, length)
        return tf.gather(before, position, batch_dims=1)

    # [batch, mentions]
    is_known = tf.not_equal(labels, 0) & tf.not_equal(labels, UNKNOWN_ENTITY)
    is_known &= tf.not_equal(documents, 0)[:, tf.newaxis]
    is_cause = is_known & (count_before(ends + 1) > count_before(begins))

    # Sorting mentions by document and entity makes the mentions of an entity
    # adjacent, so no table of all pairs is needed.
    # [batch, mentions]
    keys = tf.cast(documents, tf.int64)[:, tf.newaxis] * 2**32
    keys += tf.cast(labels, tf.int64)
    # [batch * mentions]
    number = batch * mentions
    keys = tf.reshape(keys, [number])
    order = tf.argsort(keys)
    keys = tf.gather(keys, order)
    is_next = tf.pad(tf.not_equal(keys[1:], keys[:-1]), [[1, 0]])[:number]
    entity = tf.cumsum(tf.cast(is_next, tf.int32))
    causes = tf.gather(tf.reshape(tf.cast(is_cause, tf.int32), [-1]), order)
    # [batch * mentions]; the entries past the number of entities are unused.
    entity_causes = tf.math.unsorted_segment_sum(causes, entity, number)
    # Restores the original order.
    # [batch * mentions]
    mention_causes = tf.math.unsorted_segment_sum(
        tf.gather(entity_causes, entity), order, number
    )
    # [batch, mentions]
    is_same = tf.reshape(mention_causes > 0, [batch, mentions])
    is_hidden = is_known & is_same
    return mention_token_mask(
        begins, ends, tf.where(is_hidden, labels, 0), length
    )
