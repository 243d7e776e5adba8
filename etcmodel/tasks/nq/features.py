"""Natural Questions: a page in windows to EtcFeatures; the layout.

Long input of a window: a CLS token, the question, a separator, a part of the
page, a separator. Global input: a CLS token, one for each token of the
question, and one for each long-answer candidate (mostly paragraphs) that the
window shows. What lies in no candidate is left out. The answers are given in
words, so a page is cut into words first, and each word into tokens.

Source: ETC paper, Appendix C (NQ).
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import texts
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks.nq import pages

# What stands beside the question and the page: a CLS and two separators.
NUM_SPECIAL_TOKENS = 3


@dataclasses.dataclass(frozen=True)
class NQFeatureConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        long_length: length of the long input, and so of a window.
        global_length: length of the global input.
        stride: how many tokens of the page one window begins after the other.
        question_length: the most tokens of a question.
        include_html_tokens: whether HTML tags are in the input, as one of two
            tokens: one that opens or one that closes.
        fixed_block_size: the paper's ablation "fixed blocks": the global input
            has one token for so many tokens of the long input, and no others;
            0 for the structure of the page.
        include_unknown_rate: share of the windows that show no answer that is
            kept for training, of pages that have one elsewhere.
        include_unknown_rate_for_unanswerable: the same for pages without an
            answer; 4 times `include_unknown_rate` by default.
    """

    long_length: int = 4096
    global_length: int = 230
    stride: int = 2048
    question_length: int = 32
    include_html_tokens: bool = True
    fixed_block_size: int = 0
    include_unknown_rate: float = 1.0
    include_unknown_rate_for_unanswerable: float | None = None

    @property
    def unanswerable_rate(self) -> float:
        """The share that holds for pages without an answer."""
        if self.include_unknown_rate_for_unanswerable is None:
            return 4.0 * self.include_unknown_rate
        return self.include_unknown_rate_for_unanswerable

    def __post_init__(self):
        for name in (
            "question_length",
            "include_unknown_rate",
            "unanswerable_rate",
        ):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, expected 0 or more."
                )
        room = self.long_length - self.question_length - NUM_SPECIAL_TOKENS
        if room < 1:
            raise ValueError(
                f"long_length is {self.long_length}: a question of "
                f"question_length={self.question_length} leaves no room for "
                "the page."
            )
        if not 0 < self.stride <= room:
            raise ValueError(
                f"stride is {self.stride}: parts of a page would be in no "
                f"window. With long_length={self.long_length} and "
                f"question_length={self.question_length} it can be 1 to {room}."
            )
        if self.fixed_block_size < 0:
            raise ValueError(
                f"fixed_block_size is {self.fixed_block_size}, expected 0 or "
                "more."
            )
        if self.fixed_block_size:
            needed = -(-self.long_length // self.fixed_block_size)
        else:
            # The CLS, the question, and at least one candidate.
            needed = self.question_length + 2
        if self.global_length < needed:
            raise ValueError(
                f"global_length is {self.global_length}, but at least {needed} "
                "are needed."
            )


class NQWindows(NamedTuple):
    """Where the tokens of the windows of a batch come from.

    Attributes:
        record: the record of each window, `<int32>[windows]`.
        words: the word of the page that each long token is a part of; -1 for
            the CLS, the question, separators and padding.
            `<int32>[windows, long_length]`.
        piece_words: the word of every token of every page, whatever window it
            is in, `<int32>[batch, (tokens)]`.
        starts: where in them each window starts, `<int64>[windows]`.
        sizes: how many of them each window shows, `<int64>[windows]`.
        question_tokens: tokens of each question that are in the input,
            `<int32>[batch]`.
    """

    record: tf.Tensor
    words: tf.Tensor
    piece_words: tf.RaggedTensor
    starts: tf.Tensor
    sizes: tf.Tensor
    question_tokens: tf.Tensor


def nq_sections(
    special_ids: dict[str, int], fixed_blocks: bool
) -> tuple[layout.Section, ...]:
    """The specification for the layout engine.

    Local attention does not stop at the borders of candidates.

    Args:
        special_ids: ids of the global tokens (see `tokenizers`).
        fixed_blocks: whether all tokens come as blocks of one section.

    Returns:
        The sections "cls", "question", "separator", "page" and "end", or
        "blocks".
    """
    sentence = layout.GlobalToken(special_ids["sentence"], token_types.GLOBAL)
    if fixed_blocks:
        return (
            layout.Section(
                "blocks",
                token_type_id=token_types.SENTENCE,
                segment_global=sentence,
                breaks=False,
                cut="keep",
            ),
        )

    def separator(name):
        return layout.Section(
            name,
            token_type_id=token_types.QUESTION,
            link_sentences=False,
            breaks=False,
            cut="keep",
        )

    return (
        layout.Section(
            "cls",
            token_type_id=token_types.SENTENCE,
            token_global=layout.GlobalToken(
                special_ids["cls"], token_types.CLS_GLOBAL
            ),
            breaks=False,
            cut="keep",
        ),
        layout.Section(
            "question",
            token_type_id=token_types.QUESTION,
            token_global=layout.GlobalToken(
                special_ids["question"], token_types.QUESTION_GLOBAL
            ),
            breaks=False,
            cut="keep",
        ),
        separator("separator"),
        layout.Section(
            "page",
            token_type_id=token_types.SENTENCE,
            segment_global=sentence,
            breaks=False,
            cut="keep",
        ),
        separator("end"),
    )


class NQFeatureBuilder(tf.Module):
    """Turns questions and pages into the EtcFeatures of windows; graph code.

    The same code for preprocessing and for serving. A window's features do not
    depend on the batch its page is in.

    Attributes:
        config: the sizes.
        tokenizer: the tokenizer.
        engine: the layout engine with the specification.
    """

    def __init__(
        self,
        config: NQFeatureConfig,
        tokenizer: tokenizers.WordpieceTokenizer
        | tokenizers.SentencepieceTokenizer,
        name: str | None = None,
    ):
        """Makes the layout engine.

        Args:
            config: the sizes.
            tokenizer: the tokenizer; it is exported along.
            name: name of the module.

        Raises:
            ValueError: the vocabulary has no tokens for HTML tags.
        """
        super().__init__(name=name)
        self.config = config
        self.tokenizer = tokenizer
        if config.include_html_tokens and not {
            "html_open",
            "html_close",
        } <= set(tokenizer.special_ids):
            raise ValueError(
                "the vocabulary has no tokens for HTML tags; leave the tags "
                "out with --noinclude_html_tokens"
            )
        self.engine = layout.LayoutEngine(
            nq_sections(tokenizer.special_ids, bool(config.fixed_block_size)),
            config.long_length,
            config.global_length,
        )

    # There is nothing in it for AutoGraph, which would make tracing slow.
    @tf.autograph.experimental.do_not_convert
    def build(
        self,
        question: tf.Tensor,
        tokens: tf.Tensor,
        is_html: tf.Tensor,
        candidate_starts: tf.Tensor,
        candidate_ends: tf.Tensor,
    ) -> tuple[layout.Layout, NQWindows]:
        """Builds the features of the windows of a batch.

        A page of n tokens has `1 + ceil(max(n - room, 0) / stride)` windows,
        where `room` is what the question leaves of `long_length`.

        Args:
            question: `<string>[batch]`.
            tokens: words and HTML tags of the pages, padded with "" at the
                end, `<string>[batch, words]`.
            is_html: whether each of them is an HTML tag,
                `<bool>[batch, words]`.
            candidate_starts: first word of each long-answer candidate, padded
                with -1, `<int>[batch, candidates]`. Those that lie inside
                others do not count.
            candidate_ends: the word after its last one, likewise.

        Returns:
            The layout, with the EtcFeatures `<int32>[windows, long_length]`
            and `<int32>[windows, global_length]`, those of a page in order;
            and where their tokens come from.

        Raises:
            tf.errors.InvalidArgumentError: when run, if the inputs differ in
                the number of records.
        """
        config = self.config
        for name, value in (
            ("tokens", tokens),
            ("is_html", is_html),
            ("candidate_starts", candidate_starts),
            ("candidate_ends", candidate_ends),
        ):
            tf.debugging.assert_equal(
                tf.shape(value)[0],
                tf.size(question),
                f"Records of {name}, expected as many as of question.",
            )
        # [batch, (tokens)]
        question_ids = self.tokenizer.tokenize(tokenizers.sanitize(question))
        question_ids = question_ids.with_row_splits_dtype(tf.int64)
        question_ids = question_ids[:, : config.question_length]
        question_sizes = question_ids.row_lengths()
        page = self._tokenize_page(
            tokens, is_html, candidate_starts, candidate_ends
        )
        # [batch]
        room = config.long_length - question_sizes - NUM_SPECIAL_TOKENS
        sizes = page.token_ids.row_lengths()
        num_windows = 1 + tf.math.floordiv(
            tf.maximum(sizes - room, 0) + config.stride - 1, config.stride
        )
        # [windows]
        windows = tf.ragged.range(num_windows)
        record = windows.value_rowids()
        starts = windows.values * config.stride
        shown = tf.minimum(
            tf.gather(room, record), tf.gather(sizes, record) - starts
        )
        # Tokens of each window, as indices into those of all pages.
        # [windows, (tokens)]
        first = tf.gather(page.token_ids.row_starts(), record) + starts
        index = tf.ragged.range(first, first + shown)
        window_ids = index.with_values(
            tf.gather(page.token_ids.values, index.values)
        )
        question_ids = tf.gather(question_ids, record)
        if config.fixed_block_size:
            made = self._lay_out_blocks(question_ids, window_ids)
        else:
            candidates = tf.gather(page.candidates.values, index.values)
            made = self._lay_out(question_ids, window_ids, candidates)
        # [windows, long_length]
        position = tf.range(config.long_length, dtype=tf.int64)
        place = (
            position - (tf.gather(question_sizes, record) + 2)[:, tf.newaxis]
        )
        is_page = (place >= 0) & (place < shown[:, tf.newaxis])
        words = tf.gather(
            # One more, for when there are no tokens at all.
            tf.pad(page.words.values, [[0, 1]]),
            tf.where(is_page, first[:, tf.newaxis] + place, 0),
        )
        return made, NQWindows(
            record=tf.cast(record, tf.int32),
            words=tf.where(is_page, words, -1),
            piece_words=page.words,
            starts=starts,
            sizes=shown,
            question_tokens=tf.cast(question_sizes, tf.int32),
        )

    def _tokenize_page(
        self, tokens, is_html, candidate_starts, candidate_ends
    ) -> pages.PageTokens:
        """Tokens of the words that lie in a candidate."""
        ids = self.tokenizer.special_ids
        return pages.tokenize_pages(
            self.tokenizer,
            texts.without_padding(tokens),
            is_html,
            *pages.outer_spans(candidate_starts, candidate_ends),
            html_ids=(
                (ids["html_open"], ids["html_close"])
                if self.config.include_html_tokens
                else None
            ),
        )

    def _constant(self, name, windows):
        """One special token for each window, [windows, (1)]."""
        return layout.constant_tokens(
            [self.tokenizer.special_ids[name]], windows
        )

    def _lay_out(self, question_ids, window_ids, candidates) -> layout.Layout:
        """A global token for each candidate that a window shows."""
        windows = tf.cast(window_ids.nrows(), tf.int32)
        # Where a run of tokens of one candidate begins.
        # [all tokens]
        row = window_ids.value_rowids()
        before = tf.concat([[-1], candidates[:-1]], axis=0)
        row_before = tf.concat([[-1], row[:-1]], axis=0)
        begins = tf.not_equal(candidates, before) | tf.not_equal(
            row, row_before
        )
        run = tf.cumsum(tf.cast(begins, tf.int64)) - 1
        first_run = tf.math.unsorted_segment_min(
            run, row, tf.cast(windows, tf.int64)
        )
        # The last global token is shared by all that would need more.
        # [windows]
        most = self.config.global_length - 1 - question_ids.row_lengths()
        run = tf.minimum(
            run - tf.gather(first_run, row), tf.gather(most, row) - 1
        )
        # [windows]
        num_runs = (
            tf.maximum(
                tf.math.unsorted_segment_max(
                    run, row, tf.cast(windows, tf.int64)
                ),
                -1,
            )
            + 1
        )
        run_splits = tf.pad(tf.cumsum(num_runs), [[1, 0]])
        lengths = tf.math.unsorted_segment_sum(
            tf.ones_like(run),
            run + tf.gather(run_splits, row),
            run_splits[-1],
        )
        # [windows, (runs), (tokens)]
        runs = tf.RaggedTensor.from_row_splits(
            tf.RaggedTensor.from_row_lengths(
                window_ids.values, lengths, validate=False
            ),
            run_splits,
            validate=False,
        )
        separator = layout.one_segment(self._constant("separator", windows))
        return self.engine(
            {
                "cls": layout.one_segment(self._constant("cls", windows)),
                "question": layout.one_segment(question_ids),
                "separator": separator,
                "page": layout.one_group(runs),
                "end": separator,
            }
        )

    def _lay_out_blocks(self, question_ids, window_ids) -> layout.Layout:
        """A global token for every block of tokens, whatever they are."""
        windows = tf.cast(window_ids.nrows(), tf.int32)
        separator = self._constant("separator", windows)
        # [windows, (tokens)]
        everything = tf.concat(
            [
                self._constant("cls", windows),
                question_ids,
                separator,
                window_ids,
                separator,
            ],
            axis=1,
        )
        size = self.config.fixed_block_size
        lengths = everything.row_lengths()
        blocks = tf.math.floordiv(lengths + size - 1, size)
        # [all blocks]
        index = tf.ragged.range(blocks)
        length = tf.minimum(
            tf.gather(lengths, index.value_rowids()) - index.values * size, size
        )
        # [windows, (blocks), (tokens)]
        content = index.with_values(
            tf.RaggedTensor.from_row_lengths(
                everything.values, length, validate=False
            )
        )
        made = self.engine({"blocks": layout.one_group(content)})
        # The token types are those of the structured input.
        # [windows, long_length]
        position = tf.range(self.config.long_length, dtype=tf.int64)
        is_question = (position >= 1) & (
            position < question_ids.row_lengths()[:, tf.newaxis] + 2
        )
        is_end = tf.equal(position, lengths[:, tf.newaxis] - 1)
        types = tf.where(
            is_question | is_end,
            token_types.QUESTION,
            made.features["long_token_type_ids"],
        )
        return made._replace(
            features={**made.features, "long_token_type_ids": types}
        )
