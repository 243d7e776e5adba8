"""Finds mentions of candidates in text by string matching; graph code.

Source: ETC paper, Appendix C (WikiHop): candidate answers are linked to their
mentions, "where mentions are determined only by string matching".
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.text.tf_text import tf_text

# Marks word boundaries while texts are split into words.
_MARK = "\x1f"
_WORD = r"[\p{L}\p{N}\p{M}_]+|[^\p{L}\p{N}\p{M}_\s\p{Z}]"
_KEYS = 2**31 - 1
# Lengths of runs of tokens: 1, 2, 4 and so on.
_POWERS = 2 ** np.arange(62)


def link_mentions(
    keys: tf.RaggedTensor, candidates: tf.RaggedTensor, max_mentions: int = 1
) -> tf.RaggedTensor:
    """Finds the candidates that every token mentions; graph code.

    A candidate is mentioned where its tokens are adjacent within one text.
    Where mentions overlap, a token mentions several candidates; the
    `max_mentions` candidates with the greatest indices are kept. A candidate
    without tokens has no mentions.

    All candidates are matched at once: step k holds the positions at which the
    first k tokens of some candidate start. The work is at most the length of
    the text times that of the longest candidate.

    Example: in the texts `[7, 8, 9], [8]` the candidates `[8]`, `[7, 8]` and
    `[9, 8]` give `[1, 1, -1], [0]`, and, with `max_mentions=2`, `[[1, -1],
    [1, 0], [-1, -1]], [[0, -1]]`.

    Args:
        keys: `<int32>[batch, ..., (texts), (tokens)]`, non-negative numbers
            that identify tokens: token ids, or keys of `tokenize_with_keys`.
        candidates: keys, `<int32>[batch, (candidates), (tokens)]`.
        max_mentions: maximum number of candidates per token; if it is above 1,
            the result has one more axis.
    """
    keys = keys.with_row_splits_dtype(tf.int64)
    candidates = candidates.with_row_splits_dtype(tf.int64)
    # The record of each token, and the end of its text.
    rows = tf.range(keys.nrows())
    inner = keys
    while isinstance(inner, tf.RaggedTensor):
        owner, splits = ragged_rows.owners_in(inner), inner.row_splits
        rows = tf.gather(rows, owner)
        inner = inner.values
    ends = tf.gather(splits[1:], owner)

    lengths = candidates.values.row_lengths()
    candidate_rows = ragged_rows.owners_in(candidates)
    linked = _match(
        text=tf.cast(inner, tf.int64),
        rows=rows,
        ends=ends,
        tokens=tf.cast(candidates.flat_values, tf.int64),
        starts=candidates.values.row_starts(),
        lengths=lengths,
        candidate_rows=candidate_rows,
        indices=ragged_rows.index_in(candidate_rows, candidates.row_splits),
        width=max_mentions,
    )
    return keys.with_flat_values(linked[:, 0] if max_mentions == 1 else linked)


def _greatest(values: tf.Tensor, width: int) -> tf.Tensor:
    """Returns each row's greatest distinct values, padded with -1."""
    # Processes whole columns, since there are many short rows.
    columns = tf.unstack(values, axis=1)
    found = []
    for _ in range(width):
        if found:
            columns = [tf.where(x < found[-1], x, -1) for x in columns]
        found.append(functools.reduce(tf.maximum, columns))
    return tf.stack(found, axis=1)


def _match(
    text, rows, ends, tokens, starts, lengths, candidate_rows, indices, width
) -> tf.Tensor:
    """Runs the loop of `link_mentions` on flat vectors, `[tokens, width]`."""
    size = tf.size(text, tf.int64)
    # Candidates longer than every text have no mentions.
    longest = tf.minimum(_maximum(lengths), _maximum(ends - tf.range(size)))
    # How often the longest can be halved: 0, 1, 1, 2 for 1, 2, 3, 4 tokens.
    top = tf.reduce_sum(tf.cast(_POWERS[1:] <= longest, tf.int64))

    # The state of the loop: the step; its level; the candidates longer than the
    # step; the node of each such candidate; the text positions at which a
    # candidate still matches; the node of each such position; and the links so
    # far. A node represents all candidates of a record that begin with the same
    # tokens; in step 0, it is the record. The next node is the rank of `node *
    # _KEYS + key`, with the next token's key, among all such numbers.
    #
    # A mention of n tokens is stored as two runs of 2**level tokens that cover
    # it, with 2**level <= n < 2**(level + 1). Row `level` of the links is
    # indexed by the token at which a run starts.
    def step(k, level, candidate, candidate_node, position, node, linked):
        longer = tf.where(tf.gather(lengths, candidate) > k)[:, 0]
        candidate = tf.gather(candidate, longer)
        key = tf.gather(tokens, tf.gather(starts, candidate) + k)
        number = tf.gather(candidate_node, longer) * _KEYS + key
        # [candidates left]
        known = tf.sort(number)
        candidate_node = tf.searchsorted(known, number, out_type=tf.int64)

        inside = tf.where(position + k < tf.gather(ends, position))[:, 0]
        position = tf.gather(position, inside)
        number = tf.gather(node, inside) * _KEYS + tf.gather(text, position + k)
        # `searchsorted` may return an index beyond all numbers; its -1 equals
        # no number.
        padded = tf.concat([known, [-1]], axis=0)
        node = tf.searchsorted(known, number, out_type=tf.int64)
        match = tf.where(tf.equal(tf.gather(padded, node), number))[:, 0]
        # [positions left]
        position = tf.gather(position, match)
        node = tf.gather(node, match)

        # The candidates that end at each node, and their mentions.
        complete = tf.equal(tf.gather(lengths, candidate), k + 1)
        number = tf.where(complete, tf.gather(indices, candidate), -1)
        best = _greatest_of_nodes(candidate_node, number, width)
        # [positions left, width]
        found = tf.gather(best, node)
        mention = tf.where(found[:, 0] >= 0)[:, 0]
        first = tf.gather(position, mention) + level * size
        second = first + k + 1 - tf.gather(_POWERS, level)
        # [mentions, width]
        value = tf.cast(tf.gather(found, mention), tf.int32)
        for run in (first, second):
            linked = _link(linked, run, value)
        level += tf.cast(k + 2 >= tf.gather(_POWERS, level + 1), tf.int64)
        return k + 1, level, candidate, candidate_node, position, node, linked

    def goes_on(k, level, candidate, candidate_node, position, node, linked):
        del level, candidate, candidate_node, node, linked
        return (k < longest) & (tf.size(position) > 0)

    zero = tf.constant(0, tf.int64)
    scalar, vector, matrix = map(tf.TensorShape, ([], [None], [None, width]))
    *_, linked = tf.while_loop(
        goes_on,
        step,
        (
            zero,
            zero,
            tf.range(tf.size(lengths, tf.int64)),
            candidate_rows,
            tf.range(size),
            rows,
            # [(top + 1) * tokens, width]
            tf.fill(tf.stack([(top + 1) * size, width]), -1),
        ),
        shape_invariants=(scalar,) * 2 + (vector,) * 4 + (matrix,),
    )
    # [top + 1, tokens, width]
    return _halve_runs(
        tf.reshape(linked, tf.stack([top + 1, size, width])), top
    )


def _maximum(values) -> tf.Tensor:
    """Returns the maximum of non-negative numbers; 0 without numbers."""
    return tf.reduce_max(tf.concat([values, [0]], axis=0))


def _greatest_of_nodes(nodes, numbers, width) -> tf.Tensor:
    """Returns each node's greatest numbers, `[nodes, width]`; pads with -1."""
    best = []
    for _ in range(width):
        best.append(
            tf.tensor_scatter_nd_max(
                tf.fill(tf.shape(nodes), tf.constant(-1, tf.int64)),
                nodes[:, tf.newaxis],
                numbers,
            )
        )
        is_less = numbers < tf.gather(best[-1], nodes)
        numbers = tf.where(is_less, numbers, -1)
    return tf.stack(best, axis=1)


def _link(linked, runs, values) -> tf.Tensor:
    """Adds links to runs; keeps the greatest of each run."""
    # [runs, 2 * width]
    links = tf.concat([tf.gather(linked, runs), values], axis=1)
    return tf.tensor_scatter_nd_update(
        linked, runs[:, tf.newaxis], _greatest(links, linked.shape[1])
    )


def _halve_runs(linked, top) -> tf.Tensor:
    """Halves the runs, of up to 2**top tokens, down to single tokens."""
    size, width = tf.shape(linked, tf.int64)[1], linked.shape[2]

    def halve(level, runs):
        half = tf.gather(_POWERS, level - 1)
        # [tokens, width]
        second = tf.concat(
            [tf.fill(tf.stack([half, width]), -1), runs[: size - half]],
            axis=0,
        )
        links = tf.concat([runs, second, linked[level - 1]], axis=1)
        return level - 1, _greatest(links, width)

    return tf.while_loop(
        lambda level, runs: level > 0,
        halve,
        (top, linked[top]),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, width])),
    )[1]


class Words(NamedTuple):
    """Words of texts: runs of letters and digits, or other single characters.

    Each Chinese character is a word, since Chinese has no spaces between words.
    Keys are hashes of the lower-cased words in Unicode's normal form C; starts
    and exclusive ends are in bytes. All are `<int32>[n, (words)]`.
    """

    keys: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def split_words(texts: tf.Tensor) -> Words:
    """Splits `<string>[n]` into words, with their places; graph code.

    Example: `"Dr. Ünal"` has the words `dr`, `.` and `ünal`, with the starts
    `0 2 4` and the ends `2 3 9`.
    """
    texts = tf.strings.regex_replace(texts, _MARK, " ")
    # `\0`, the whole match, is several times as fast as a group.
    marked = tf.strings.regex_replace(texts, r"\p{Han}", rf"{_MARK}\0{_MARK}")
    marked = tf.strings.regex_replace(marked, _WORD, rf"{_MARK}\0{_MARK}")
    # Words and the text between them, so that lengths add up to positions.
    # [n, (pieces)]
    pieces = tf.strings.split(marked, _MARK)
    sizes = pieces.with_values(tf.strings.length(pieces.values))
    ends = tf.cumsum(sizes.values)
    before = tf.gather(
        ragged_rows.cumulative(sizes.values), pieces.row_starts()
    )
    ends -= tf.cast(tf.gather(before, ragged_rows.owners_in(pieces)), tf.int32)
    is_word = ~tf.strings.regex_full_match(pieces.values, r"[\s\p{Z}]*")
    # [n, (words)]
    words = ragged_rows.keep(pieces, is_word)
    ends = tf.boolean_mask(ends, is_word)
    # Canonically equivalent words have the same key.
    lower = tf_text.normalize_utf8(
        tf.strings.lower(words.values, encoding="utf-8"), "NFC"
    )
    keys = tf.strings.to_hash_bucket_fast(lower, _KEYS)
    return Words(
        keys=words.with_values(tf.cast(keys, tf.int32)),
        starts=words.with_values(ends - tf.strings.length(words.values)),
        ends=words.with_values(ends),
    )


def link_word_mentions(
    texts: tf.RaggedTensor,
    token_ends: tf.RaggedTensor,
    candidates: tf.RaggedTensor,
    max_mentions: int = 1,
) -> tf.RaggedTensor:
    """Finds mentions as `link_mentions` does, but matches words in any case.

    This suits tokenizers that keep the case, or whose tokens depend on the
    preceding text, such as SentencePiece. A token belongs to the word in which
    it ends; the exclusive `token_ends` are in bytes, `<int32>[batch, ...,
    (texts), (tokens)]`.

    Example: in "in New York" with the tokens `_in _New _York`, which end at
    the bytes `2 6 11`, the candidates "york" and "new york" give `-1 1 1`.
    """
    words = split_words(texts.flat_values)
    linked = link_mentions(
        texts.with_flat_values(words.keys),
        candidates.with_flat_values(split_words(candidates.flat_values).keys),
        max_mentions,
    )
    # [texts, (words), ...]
    linked = words.keys.with_values(linked.flat_values)
    # [texts, (tokens)]
    ends = token_ends
    while ends.ragged_rank > 1:
        ends = ends.values
    # Bytes are counted across all texts, for a single search.
    sizes = tf.strings.length(texts.flat_values)
    base = ragged_rows.cumulative(sizes + 1)[:-1]

    def place(values, offsets):
        """Returns places in bytes, counted across all texts."""
        shift = tf.gather(base, ragged_rows.owners_in(offsets))
        return tf.cast(values, tf.int64) + shift

    last = place(ends.values - 1, ends)
    word_starts = place(words.starts.values, words.starts)
    word = tf.searchsorted(word_starts, last, side="right") - 1
    padded_ends = tf.concat(
        [[-1], place(words.ends.values, words.ends)], axis=0
    )
    inside = last < tf.gather(padded_ends, word + 1)
    # The first row is for tokens outside of words.
    padding = [[1, 0]] + [[0, 0]] * (max_mentions > 1)
    links = tf.pad(linked.values, padding, constant_values=-1)
    return token_ends.with_flat_values(
        tf.gather(links, tf.where(inside, word + 1, 0))
    )
