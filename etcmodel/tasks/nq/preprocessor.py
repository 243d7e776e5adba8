"""Natural Questions: turns windows of pages into EtcFeatures.

Long input of a window (ETC paper, Appendix C): a CLS token, the question, a
separator, a part of the page, a separator. Global input: a CLS token, one for
each token of the question, and one for each long-answer candidate (mostly
paragraphs) that the window shows. Words outside of candidates are left out.
Answers are given as word positions, so each word is tokenized separately.
"""

import hashlib

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import pages
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import texts
from etcmodel.feature_utils.text import tokenizers
from etcmodel.pipeline import example_schema
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import EtcPreprocessor
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.pipeline.raw_inputs import RawInput
from etcmodel.tasks.documents import documents
from etcmodel.tasks.nq import labels

_TOKENS = (
    b"<P> Jan Novak lives in Krakow . </P> <P> He is a cook . </P>".split()
)


def _section(name, token_type_id=token_types.QUESTION, **more):
    """Makes a section whose end does not stop local attention."""
    return layout.Section(
        name, token_type_id, **{"breaks": False, "cut": "keep", **more}
    )


# Every window of a page starts with the question.
LAYOUT = layout.LayoutSpec(
    sections=(
        _section(
            "cls",
            token_types.SENTENCE,
            token_global=layout.GlobalToken("cls", token_types.CLS_GLOBAL),
            tokens=("cls",),
        ),
        _section(
            "question",
            token_global=documents.QUESTION_TOKEN,
        ),
        _section("separator", link_sentences=False, tokens=("separator",)),
        _section(
            "page",
            token_types.SENTENCE,
            unit_global=documents.SENTENCE_TOKEN,
            cut="windows",
            share_last_global=True,
        ),
        _section("end", link_sentences=False, tokens=("separator",)),
    ),
    values=(layout.Value("words", "page", pad=-1),),
)


class NQPreprocessor(EtcPreprocessor):
    """Turns questions and pages into the features of windows."""

    INPUTS = {
        "question": RawInput(tf.string, ("records",)),
        "tokens": RawInput(tf.string, ("records", "words")),
        "is_html": RawInput(tf.bool, ("records", "words")),
        "candidate_starts": RawInput(tf.int32, ("records", "candidates")),
        "candidate_ends": RawInput(tf.int32, ("records", "candidates")),
    }
    REQUEST = {
        "question": np.array([b"where does jan novak live"], dtype=object),
        "tokens": np.array([_TOKENS], dtype=object),
        "is_html": np.array([[token.startswith(b"<") for token in _TOKENS]]),
        "candidate_starts": np.array([[0, 8]], np.int32),
        "candidate_ends": np.array([[8, 15]], np.int32),
    }
    TEXT_REQUEST = {
        "query": REQUEST["question"],
        "text": np.array(
            [b"Jan Novak lives in Krakow.\n\nHe is a cook."], dtype=object
        ),
    }
    LAYOUT = LAYOUT
    SCHEMA = example_schema.etc_schema(
        # For each long token, the index of its word in the page; -1 for the
        # CLS, the question, separators and padding.
        words=example_schema.Field("long", example_schema.DECODING, pad=-1),
        # All candidates of the page.
        candidate_starts=example_schema.Field("list", example_schema.TEXT),
        candidate_ends=example_schema.Field("list", example_schema.TEXT),
        # See `labels.WindowLabels`.
        **{
            name: example_schema.Field("one", example_schema.LABEL)
            for name in labels.WindowLabels._fields
        },
    )
    # Long pages have many windows; this limits the memory they need.
    rows_at_once = 4

    @staticmethod
    def of_text(query, text):
        """Makes each paragraph a candidate; titles are outside, as in NQ.

        Answers are positions of words in the output `tokens`.
        """
        _, paragraphs = plain_documents.split_paragraphs(text)
        # [all paragraphs, (words)]
        words = plain_documents.split_words(paragraphs.values)
        has_words = words.row_lengths() > 0
        paragraphs = plain_documents.bounded(
            ragged_rows.keep(paragraphs, has_words)
        )
        words = tf.ragged.boolean_mask(words, has_words)
        one = tf.ones([words.nrows(), 1], tf.bool)

        def page(values, first, last):
            """Adds tags around paragraphs: `[records, words]`."""
            tagged = tf.concat([first, values, last], axis=1)
            merged = ragged_rows.merge(paragraphs.with_values(tagged))
            return plain_documents.bounded(merged).to_tensor()

        tokens = page(
            words, tf.where(one, "<P>", ""), tf.where(one, "</P>", "")
        )
        is_tag = words.with_values(tf.zeros_like(words.values, tf.bool))
        # [all paragraphs]
        sizes = tf.cast(words.row_lengths(), tf.int32) + 2
        ends = tf.cumsum(sizes)
        before = tf.gather(tf.pad(ends, [[1, 0]]), paragraphs.row_starts())
        ends -= tf.gather(before, ragged_rows.owners_in(paragraphs))

        def places(values):
            return paragraphs.with_values(values).to_tensor(-1)

        return {
            "question": query,
            "tokens": tokens,
            "is_html": page(is_tag, one, one),
            "candidate_starts": places(ends - sizes),
            "candidate_ends": places(ends),
        }, {"tokens": tokens}

    def layout_spec(self):
        """Returns the layout.

        Raises:
            ValueError: `include_html_tokens` is set, but the vocabulary has no
                tag tokens.
        """
        if self.config.include_html_tokens and not {
            "html_open",
            "html_close",
        } <= set(self.tokenizer.special_ids):
            raise ValueError(
                "the vocabulary has no tokens for HTML tags; leave the tags "
                "out with `include_html_tokens=false`"
            )
        spec = LAYOUT.with_section(
            "page", stride=self.config.stride
        ).with_section("question", max_tokens=self.config.question_length)
        if self.config.fixed_block_size:
            spec = spec.with_blocks(
                self.config.fixed_block_size, documents.SENTENCE_TOKEN
            )
        return spec

    def build(
        self,
        question: tf.Tensor,
        tokens: tf.Tensor,
        is_html: tf.Tensor,
        candidate_starts: tf.Tensor,
        candidate_ends: tf.Tensor,
    ) -> Encoded:
        """Builds the features of the windows of a batch.

        A page of n tokens has `1 + ceil(max(n - room, 0) / stride)` windows,
        where `room` is the number of page tokens that fit into one window.

        Args:
            question: `<string>[batch]`.
            tokens: words and HTML tags, `<string>[batch, words]`.
            is_html: whether each word is an HTML tag, `<bool>[batch, words]`.
            candidate_starts: first word of each long-answer candidate,
                `<int>[batch, candidates]`. Candidates inside others are
                ignored.
            candidate_ends: the word after each candidate's last one, in the
                same shape.

        Returns:
            The features of all windows; the windows of a page are in order. For
            labels, `piece_words` has the word of every token of the page.
        """
        # [batch, (tokens)]
        question_ids = self.tokenizer.tokenize(tokenizers.sanitize(question))
        page = self._tokenize_page(
            tokens, is_html, candidate_starts, candidate_ends
        )
        made = self.engine(
            {
                "question": layout.one_unit(question_ids),
                "page": layout.one_group(page.token_ids),
            },
            values={"words": layout.one_group(page.words)},
        )

        def without_padding(values):
            return ragged_rows.keep(
                tf.RaggedTensor.from_tensor(values),
                tf.reshape(candidate_starts >= 0, [-1]),
            )

        return Encoded(
            layout=made,
            context=made.values,
            text={
                "candidate_starts": without_padding(candidate_starts),
                "candidate_ends": without_padding(candidate_ends),
            },
            host={"piece_words": ragged_rows.merge(page.words)},
        )

    def _tokenize_page(
        self, tokens, is_html, candidate_starts, candidate_ends
    ) -> pages.PageTokens:
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

    @staticmethod
    def raw(record):
        """Returns the question, words and candidates of a record."""
        return {
            "question": record.question,
            "tokens": record.tokens,
            "is_html": record.is_html,
            "candidate_starts": [x.start for x in record.candidates],
            "candidate_ends": [x.end for x in record.candidates],
        }

    def labels(self, record, view, split):
        """Returns labels; training samples windows without an answer."""
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
            return Labelled([{}] * view.number, values, counts)
        annotation = labels.choose_annotation(record.annotations)
        made = labels.make_window_labels(
            annotation,
            view.host["piece_words"],
            view.windows["starts"],
            view.windows["sizes"],
            # The page follows the CLS, the question and a separator.
            view.counts["question"].kept_tokens + 2,
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
        return Labelled(
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
        """Lists the names and values that `inspect` shows."""
        answers = [
            f"({x.long_start}, {x.long_end}), short {[*x.short_answers]}, "
            f"yes/no {x.yes_no}"
            for x in record.annotations or ()
        ]
        return [
            ("question", record.question),
            ("answers", "; ".join(answers) or "unknown"),
        ]


def _is_kept(record, window: int, rate: float) -> bool:
    """Samples windows at a rate, reproducibly: hashes the record's id."""
    digest = hashlib.blake2b(f"{record.id} {window}".encode(), digest_size=4)
    return int.from_bytes(digest.digest(), "big") < rate * 2**32
