"""Tests of Natural Questions' preprocessor."""

import itertools
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import tokenizers
from etcmodel.tasks.nq import preprocessor
from testing.helpers import write_vocab
from testing.nq_pages import VOCAB
from testing.nq_pages import make_config
from testing.nq_pages import plain_windows
from testing.tasks import without_tracing

_SPECIAL = {"cls": 101, "separator": 102, "sentence": 1, "question": 3}
_X = -1
_PAD = (-1, -1)


def inputs_of(pages):
    """Returns dense arguments of `NQPreprocessor.build`.

    Each page is a question, words (tags begin with "<") and candidate spans.
    """
    width = max(len(words) for _, words, _ in pages)
    most = max(len(spans) for _, _, spans in pages)
    tokens = [[*words] + [""] * (width - len(words)) for _, words, _ in pages]
    spans = np.full([len(pages), most, 2], -1, np.int32)
    for row, (_, _, given) in zip(spans, pages, strict=True):
        row[: len(given)] = np.reshape(given, [-1, 2])
    return (
        tf.constant([question for question, _, _ in pages], tf.string),
        tf.constant(tokens, tf.string, [len(pages), width]),
        tf.constant(
            [[word[:1] in ("<", b"<") for word in row] for row in tokens],
            tf.bool,
            [len(pages), width],
        ),
        tf.constant(spans[:, :, 0]),
        tf.constant(spans[:, :, 1]),
    )


def plain(made):
    """Returns the features of each window of a batch, as lists."""
    values = {**made.layout.features, "words": made.context["words"]}
    arrays = {name: x.numpy() for name, x in values.items()}
    return [
        {name: x[i].tolist() for name, x in arrays.items()}
        for i in range(len(made.owner))
    ]


def _random_page(rng, size, html):
    """Makes a page of `size` words.

    Returns the page for `inputs_of`, and its question and pieces for
    `plain_windows`.
    """
    words, tokens = [], []
    for number in rng.integers(200, 240, size).tolist():
        kinds = {
            f"t{number}": [number],
            f"t{number}x": [number, 250],
            "": [],
            "<P>": [107] * html,
            "</P>": [108] * html,
        }
        words.append(str(rng.choice(list(kinds), p=[0.5, 0.2, 0.1, 0.1, 0.1])))
        tokens.append(kinds[words[-1]])
    cuts = rng.choice(size + 1, min(size + 1, 7), replace=False)
    cuts = np.sort(cuts).tolist()
    outer = [x for x in itertools.pairwise(cuts) if rng.random() < 0.7]
    nested = [(start, end - 1) for start, end in outer if end > start + 1]
    pieces = [
        (token, word, number)
        for number, span in enumerate(outer)
        for word in range(*span)
        for token in tokens[word]
    ]
    question = list(range(11, 11 + size % 6))
    text = " ".join(f"t{i}" for i in question) or rng.choice(["", " ", "\0"])
    spans = rng.permutation([*outer, *nested, _PAD]).tolist()
    return (text, words, spans), question, pieces


# The worked example of the original code: six tokens in the candidates 0 and 2,
# and a word outside of candidates.
EXAMPLE = (
    "t11 t12",
    ["t201", "t202", "t203", "t99", "t204", "t205", "t206"],
    [(0, 3), (3, 3), (4, 7)],
)


class NQFeaturesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Runs eagerly: tracing would take longer.
        cls.enterClassContext(without_tracing())
        with tempfile.TemporaryDirectory() as folder:
            cls.tokenizer = tokenizers.WordpieceTokenizer(
                write_vocab(folder, VOCAB)
            )

    def _preprocessor(self, config):
        return preprocessor.NQPreprocessor(config, self.tokenizer)

    def _build(self, pages, config):
        return self._preprocessor(config)(*inputs_of(pages))

    def test_worked_example(self):
        """Reproduces the original example; separators have no global token."""
        made = self._build([EXAMPLE], make_config(12, 4, 2))
        (got,) = plain(made)
        expected = {
            "long_token_ids": (
                [101, 11, 12, 102, 201, 202, 203, 204, 205, 206, 102, 0]
            ),
            "long_token_type_ids": [1, 3, 3, 3, 1, 1, 1, 1, 1, 1, 3, 0],
            "long_sentence_ids": [0, 1, 2, _X, 3, 3, 3, 4, 4, 4, _X, _X],
            "long_paragraph_ids": [_X] * 12,
            "long_paragraph_breakpoints": [0] * 10 + [1, 0],
            "l2g_linked_ids": [_X] * 12,
            "global_token_ids": [101, 3, 3, 1, 1, 0, 0, 0],
            "global_token_type_ids": [8, 5, 5, 0, 0, 0, 0, 0],
            "global_paragraph_breakpoints": [0, 0, 0, 0, 1, 0, 0, 0],
            "words": [_X] * 4 + [0, 1, 2, 4, 5, 6] + [_X] * 2,
        }
        self.assertEqual(got, expected)
        for name, value in made.layout.features.items():
            self.assertEqual(value.dtype, tf.int32, name)
        self.assertEqual(made.context["words"].dtype, tf.int32)
        self.assertAllEqual(made.owner, [0])
        self.assertEqual(
            made.host["piece_words"].to_list(), [[0, 1, 2, 4, 5, 6]]
        )
        for name, value in {"starts": [0], "sizes": [6]}.items():
            self.assertEqual(made.layout.windows[name].to_list(), [value])
        self.assertAllEqual(made.layout.counts["question"].kept_tokens, [2])
        # All candidates are stored, even empty ones.
        text = {x: y.to_list() for x, y in made.text.items()}
        self.assertEqual(
            text,
            {"candidate_starts": [[0, 3, 4]], "candidate_ends": [[3, 3, 7]]},
        )
        # Checks the reference that other tests use.
        pieces = [(201 + i, i + i // 3, 2 * (i // 3)) for i in range(6)]
        self.assertEqual(
            plain_windows([11, 12], pieces, _SPECIAL, make_config(12, 4, 2)),
            [expected],
        )

    def test_vocabulary_without_tags(self):
        tokens = [x for x in VOCAB if x not in ("[unused102]", "[unused103]")]
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = tokenizers.WordpieceTokenizer(
                write_vocab(folder, tokens)
            )
        with self.assertRaisesRegex(ValueError, "`include_html_tokens=false`"):
            preprocessor.NQPreprocessor(make_config(8, 3, 1), tokenizer)
        processor = preprocessor.NQPreprocessor(
            make_config(8, 3, 1, include_html_tokens=False), tokenizer
        )
        self.assertLen(processor(*inputs_of([EXAMPLE])).owner, 2)

    @parameterized.parameters(
        ((16, 5, 3), {"global_length": 7}),
        # Smallest sizes: one global token for the page, windows of one token.
        ((16, 5, 3), {"global_length": 5}),
        ((9, 1, 5), {}),
        # The windows of this case do not overlap.
        ((12, 7, 2), {"include_html_tokens": False}),
        # This case has no question.
        ((8, 3, 0), {}),
        # These cases have fixed blocks. The original code is off by one at
        # their padding.
        *(
            ((12, 4, 2), {"global_length": 13, "fixed_block_size": size})
            for size in (1, 4, 5, 40)
        ),
        ((12, 4, 2), {"global_length": 3, "fixed_block_size": 4}),
    )
    def test_random_pages(self, sizes, more):
        """Compares a batch of pages of all sizes with the reference."""
        config = make_config(*sizes, **more)
        rng = np.random.default_rng(1)
        pages, expected, record, question_tokens = [], [], [], []
        piece_words = []
        for size in range(30):
            page, question, pieces = _random_page(
                rng, size, config.include_html_tokens
            )
            pages.append(page)
            windows = plain_windows(question, pieces, _SPECIAL, config)
            expected += windows
            record += [size] * len(windows)
            question_tokens.append(min(len(question), config.question_length))
            piece_words.append([word for _, word, _ in pieces])
        made = self._build(pages, config)
        self.assertAllEqual(made.owner, record)
        for got, want in zip(plain(made), expected, strict=True):
            self.assertEqual(got, want)
        counts = made.layout.counts
        self.assertAllEqual(counts["question"].kept_tokens, question_tokens)
        # The windows contain every token of a page.
        self.assertAllEqual(
            counts["page"].kept_tokens, [len(x) for x in piece_words]
        )
        self.assertEqual(made.host["piece_words"].to_list(), piece_words)
        # Checks the words that each window shows.
        starts, sizes = (
            made.layout.windows[x].values for x in ("starts", "sizes")
        )
        for i, words in enumerate(made.context["words"].numpy()):
            self.assertAllEqual(
                words[words >= 0],
                piece_words[record[i]][starts[i] :][: sizes[i]],
            )
        for name, i in (("candidate_starts", 0), ("candidate_ends", 1)):
            self.assertEqual(
                made.text[name].to_list(),
                [[x[i] for x in spans if x != [*_PAD]] for *_, spans in pages],
            )

    def test_empty_pages(self):
        config = make_config(8, 3, 1)
        nothing = plain_windows([], [], _SPECIAL, config)
        for words, spans in (([], []), (["", "t201"], []), (["", ""], [_PAD])):
            page = ("", words, spans)
            self.assertEqual(
                plain(self._build([page, page], config)), 2 * nothing
            )

    def test_of_text(self):
        """Paragraphs are candidates; titles are not in any candidate."""
        made, parts = preprocessor.NQPreprocessor.of_text(
            tf.constant(["q", "r", "s"]),
            tf.constant(["# T\nHe sits.\n\n# Only\n\n(b)", "", "a"]),
        )
        tokens = [
            b"<P> He sits . </P> <P> ( b ) </P>".split(),
            10 * [b""],
            [b"<P>", b"a", b"</P>", *7 * [b""]],
        ]
        self.assertAllEqual(["q", "r", "s"], made["question"])
        self.assertAllEqual(tokens, made["tokens"])
        self.assertAllEqual(tokens, parts["tokens"])
        self.assertAllEqual(
            [[x in (b"<P>", b"</P>") for x in row] for row in tokens],
            made["is_html"],
        )
        self.assertAllEqual(
            [[0, 5], [-1, -1], [0, -1]], made["candidate_starts"]
        )
        self.assertAllEqual(
            [[5, 10], [-1, -1], [3, -1]], made["candidate_ends"]
        )

    def test_text_whose_padding_fills_the_memory(self):
        with (
            mock.patch.object(plain_documents, "_MAX_CELLS", 7),
            self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "at most 7. Send fewer"
            ),
        ):
            preprocessor.NQPreprocessor.of_text(
                tf.constant(["q", "r"]), tf.constant(["a b", "c"])
            )


if __name__ == "__main__":
    tf.test.main()
