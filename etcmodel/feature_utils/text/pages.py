"""Tokenizes web pages that are given as words and HTML tags; graph code."""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.text import tokenizers


class PageTokens(NamedTuple):
    """Tokens inside candidates, which are parts of pages such as paragraphs.

    Attributes:
        token_ids: `<int32>[batch, (candidates), (tokens)]`.
        words: index of each token's word in the page, ascending, in the shape
            of `token_ids`.
    """

    token_ids: tf.RaggedTensor
    words: tf.RaggedTensor


def outer_spans(
    starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Keeps and sorts spans that no other span contains; drops all others.

    Example: starts `[3, 0, 9, -1]` and exclusive ends `[5, 9, 12, -1]`, where
    -1 is padding, give the starts `[0, 9, M, M]` and the ends `[9, 12, M, M]`,
    where M, the largest int32, marks dropped spans. Arguments and results are
    `<int32>[batch, spans]`.
    """
    starts, ends = tf.cast(starts, tf.int64), tf.cast(ends, tf.int64)
    nothing = tf.int32.max
    is_there = (starts >= 0) & (ends > starts)
    starts = tf.where(is_there, starts, nothing)
    ends = tf.where(is_there, ends, -1)
    # Sorts by start and, among equal starts, longest first. A span then comes
    # after all spans that can contain it.
    order = tf.argsort(starts * 2**32 - ends, axis=1, stable=True)
    starts, ends = (tf.gather(x, order, batch_dims=1) for x in (starts, ends))
    # The greatest end of all spans before each span.
    # [batch, spans]
    before = tf.pad(_cumulative_max(ends), [[0, 0], [1, 0]])[:, :-1]
    is_outer = ends > before
    # Spans that do not contain each other have the same order by start and by
    # end, so starts and ends can be sorted separately.
    return tuple(
        tf.sort(tf.cast(tf.where(is_outer, x, nothing), tf.int32), axis=1)
        for x in (starts, ends)
    )


def _cumulative_max(values: tf.Tensor) -> tf.Tensor:
    """Returns cumulative maxima, `<int64>[batch, n]`, of values >= -1."""
    size = tf.shape(values)[1]

    def double(step, values):
        shifted = tf.pad(
            values[:, : size - step], [[0, 0], [step, 0]], constant_values=-1
        )
        return 2 * step, tf.maximum(values, shifted)

    return tf.while_loop(
        lambda step, _: step < size,
        double,
        (tf.constant(1), values),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None])),
    )[1]


def _find_candidates(words, candidate_starts, candidate_ends):
    """Finds each word's row, position and candidate; marks words in one."""
    row = ragged_rows.owners_in(words)
    # [all words]
    position = tf.cast(
        ragged_rows.index_in(row, tf.cast(words.row_splits, tf.int64)), tf.int32
    )
    # [batch, words + 1], number of candidates that start at or before each
    # word. An extra word and an extra candidate serve pages that have none.
    num_places = 1 + tf.cast(
        tf.reduce_max(tf.pad(words.row_lengths(), [[0, 1]])), tf.int32
    )
    batch = tf.shape(candidate_starts)[0]
    found = tf.searchsorted(
        tf.pad(
            candidate_starts,
            [[0, 0], [0, 1]],
            constant_values=candidate_starts.dtype.max,
        ),
        tf.tile(tf.range(num_places)[tf.newaxis], [batch, 1]),
        side="right",
    )
    # [all words]
    where = tf.stack([row, tf.cast(position, tf.int64)], axis=1)
    candidate = tf.gather_nd(found, where) - 1
    end = tf.gather_nd(
        # An extra candidate is for words before the first candidate.
        tf.pad(candidate_ends, [[0, 0], [1, 0]]),
        tf.stack([row, tf.cast(candidate, tf.int64) + 1], axis=1),
    )
    return row, position, candidate, (candidate >= 0) & (position < end)


def _tokenize_words(tokenizer, words, is_tag, html_ids) -> tf.RaggedTensor:
    """Tokenizes each word, `<int32>[words, (tokens)]`; a tag is one token."""
    # Pages repeat their words, so each distinct word is tokenized only once.
    distinct, index = tf.unique(words, tf.int64)
    distinct = tokenizers.sanitize(distinct)
    # [distinct words, (tokens)]
    ids = tokenizer.tokenize(distinct).with_row_splits_dtype(tf.int64)
    if html_ids is not None:
        # Two more rows, for opening and closing tags: each is one token,
        # whatever its text.
        closes = tf.strings.regex_full_match(distinct, r"(?s)\s*</.*")
        tag_row = ids.nrows() + tf.cast(tf.gather(closes, index), tf.int64)
        index = tf.where(is_tag, tag_row, index)
        tag_ids = tf.constant([[html_ids[0]], [html_ids[1]]], tf.int32)
        ids = tf.concat(
            [
                ids,
                tf.RaggedTensor.from_tensor(tag_ids, row_splits_dtype=tf.int64),
            ],
            axis=0,
        )
    return tf.gather(ids, index)


def tokenize_pages(
    tokenizer: tokenizers.WordpieceTokenizer
    | tokenizers.SentencepieceTokenizer,
    words: tf.RaggedTensor,
    is_html: tf.Tensor | None,
    candidate_starts: tf.Tensor,
    candidate_ends: tf.Tensor,
    html_ids: tuple[int, int] | None = None,
) -> PageTokens:
    """Tokenizes every word that lies in a candidate.

    `words` are words and HTML tags, `<string>[batch, (words)]`. `is_html` marks
    the tags; it is `<bool>[batch, n]`, with n at least the length of the
    longest page. Each opening tag becomes the first of `html_ids`, and each
    closing tag the second; without `html_ids`, tags are dropped. Candidates are
    sorted spans of words that do not overlap, such as those from `outer_spans`.
    """
    row, position, candidate, keep = _find_candidates(
        words, candidate_starts, candidate_ends
    )
    if is_html is None:
        tag = tf.zeros_like(keep)
    else:
        tag = tf.gather_nd(
            is_html, tf.stack([row, tf.cast(position, tf.int64)], axis=1)
        )
    if html_ids is None:
        keep &= ~tag
    # [kept words]
    kept = tf.where(keep)[:, 0]
    row, position, candidate, tag, word = (
        tf.gather(x, kept)
        for x in (row, position, candidate, tag, words.values)
    )
    # [kept words, (tokens)]
    ids = _tokenize_words(tokenizer, word, tag, html_ids)
    # [tokens]
    owner = ragged_rows.owners_in(ids)
    width = tf.shape(candidate_starts, tf.int64)[1]
    candidate = tf.cast(candidate, tf.int64) + width * row
    # [all candidates]
    sizes = tf.math.unsorted_segment_sum(
        tf.ones_like(owner), tf.gather(candidate, owner), width * words.nrows()
    )

    def by_candidate(values):
        return tf.RaggedTensor.from_row_splits(
            tf.RaggedTensor.from_row_lengths(values, sizes, validate=False),
            width * tf.range(words.nrows() + 1),
            validate=False,
        )

    return PageTokens(
        token_ids=by_candidate(ids.values),
        words=by_candidate(tf.gather(position, owner)),
    )
