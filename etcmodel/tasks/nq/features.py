"""Natural Questions: a page in windows to EtcFeatures; the layout.

Long input of a window: a CLS token, the question, a separator, a part of the
page, a separator. Global input: a CLS token, one for each token of the
question, and one for each long-answer candidate (mostly paragraphs) that the
window shows. What lies in no candidate is left out. The answers are given in
words, so a page is cut into words first, and each word into tokens.

Source: ETC paper, Appendix C (NQ).
"""

import hashlib

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import texts
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks.frame import features
from etcmodel.tasks.frame import schema
from etcmodel.tasks.nq import labels
from etcmodel.tasks.nq import pages
from etcmodel.tasks.nq.task import NUM_SPECIAL_TOKENS

_TOKENS = (
    b"<P> Jan Novak lives in Krakow . </P> <P> He is a cook . </P>".split()
)


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


class NQFeatureBuilder(features.FeatureBuilder):
    """Turns questions and pages into the features of windows."""

    INPUTS = {
        "question": tf.TensorSpec([None], tf.string),
        "tokens": tf.TensorSpec([None, None], tf.string),
        "is_html": tf.TensorSpec([None, None], tf.bool),
        "candidate_starts": tf.TensorSpec([None, None], tf.int32),
        "candidate_ends": tf.TensorSpec([None, None], tf.int32),
    }
    REQUEST = {
        "question": np.array([b"where does jan novak live"], dtype=object),
        "tokens": np.array([_TOKENS], dtype=object),
        "is_html": np.array([[token.startswith(b"<") for token in _TOKENS]]),
        "candidate_starts": np.array([[0, 8]], np.int32),
        "candidate_ends": np.array([[8, 15]], np.int32),
    }
    SCHEMA = schema.Schema(
        # The word of the page that each long token is a part of; -1 for the
        # CLS, the question, separators and padding.
        words=schema.Field("long", schema.CONTEXT, pad=-1),
        # All candidates of the page.
        candidate_starts=schema.Field("list", schema.TEXT),
        candidate_ends=schema.Field("list", schema.TEXT),
        # See `labels.WindowLabels`.
        **{
            name: schema.Field("one", schema.LABEL)
            for name in labels.WindowLabels._fields
        },
    )
    # Memory does not grow with the length of a page.
    ROWS_AT_ONCE = 4

    def sections(self):
        """See `nq_sections`.

        Raises:
            ValueError: the vocabulary has no tokens for HTML tags.
        """
        special_ids = self.tokenizer.special_ids
        if self.config.include_html_tokens and not {
            "html_open",
            "html_close",
        } <= set(special_ids):
            raise ValueError(
                "the vocabulary has no tokens for HTML tags; leave the tags "
                "out with --noinclude_html_tokens"
            )
        return nq_sections(special_ids, bool(self.config.fixed_block_size))

    # There is nothing in it for AutoGraph, which would make tracing slow.
    @tf.autograph.experimental.do_not_convert
    def build(
        self,
        question: tf.Tensor,
        tokens: tf.Tensor,
        is_html: tf.Tensor,
        candidate_starts: tf.Tensor,
        candidate_ends: tf.Tensor,
    ) -> features.Encoded:
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
            The EtcFeatures `<int32>[windows, long_length]` and
            `<int32>[windows, global_length]`, those of a page in order, and
            where their tokens come from. For labels: `piece_words`, the word
            of every token of the page, whatever window it is in; where in them
            each window `starts`; how many of them it shows (`sizes`); and
            `question_tokens`, how many of the question are in the input.

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

        def candidates_of(values):
            """Without padding."""
            return tf.ragged.boolean_mask(values, candidate_starts >= 0)

        def by_page(values):
            return windows.with_values(values)

        return features.Encoded(
            layout=made,
            owner=tf.cast(record, tf.int32),
            context={"words": tf.where(is_page, words, -1)},
            text={
                "candidate_starts": candidates_of(candidate_starts),
                "candidate_ends": candidates_of(candidate_ends),
            },
            host={
                "piece_words": page.words,
                "starts": by_page(starts),
                "sizes": by_page(shown),
                "question_tokens": tf.cast(question_sizes, tf.int32),
            },
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

    @staticmethod
    def raw(record):
        """Question, words and candidates."""
        return {
            "question": record.question,
            "tokens": record.tokens,
            "is_html": record.is_html,
            "candidate_starts": [x.start for x in record.candidates],
            "candidate_ends": [x.end for x in record.candidates],
        }

    def label(self, record, view, split):
        """What the windows learn; see `FeatureBuilder.label`.

        Of windows without an answer, training keeps a share.
        """
        counts = {
            "tokens": len(view.host["piece_words"]),
            "words": len(record.tokens),
            "words_in_no_candidate": len(record.tokens)
            - len(np.unique(view.host["piece_words"])),
            "windows": view.number,
            "candidates": len(record.candidates),
        }
        values = {"question": record.question}
        if split == "predict" or not record.annotations:
            return features.Labelled([{}] * view.number, values, counts)
        annotation = labels.choose_annotation(record.annotations)
        made = labels.make_window_labels(
            annotation,
            view.host["piece_words"],
            view.host["starts"],
            view.host["sizes"],
            # Behind the CLS and the separator.
            int(view.host["question_tokens"]) + 2,
        )
        is_null = np.array([x.answer_type == labels.NULL for x in made])
        has_answer = labels.answer_type(annotation) != labels.NULL
        kept = np.ones(len(made), bool)
        if split == "train":
            rate = (
                self.config.include_unknown_rate
                if has_answer
                else self.config.unanswerable_rate
            )
            kept = ~is_null | [
                _is_kept(record, i, rate) for i in range(len(made))
            ]
        return features.Labelled(
            [
                x._asdict() if keep else None
                for x, keep in zip(made, kept, strict=True)
            ],
            values,
            {
                **counts,
                "answers": int(has_answer),
                "answers_in_no_window": int(has_answer and is_null.all()),
                "windows_without_answer": int(is_null.sum()),
                "windows_without_answer_left_out": int((~kept).sum()),
            },
        )

    def describe(self, record):
        """See `FeatureBuilder.describe`."""
        answers = [
            f"({x.long_start}, {x.long_end}), short {[*x.short_answers]}, "
            f"yes/no {x.yes_no}"
            for x in record.annotations or ()
        ]
        return [
            ("question", record.question),
            ("answers", "; ".join(answers) or "not told"),
        ]


def _is_kept(record, window: int, rate: float) -> bool:
    """Chooses a share of windows by chance, but the same ones every time."""
    digest = hashlib.blake2b(f"{record.id} {window}".encode(), digest_size=4)
    return int.from_bytes(digest.digest(), "big") < rate * 2**32
