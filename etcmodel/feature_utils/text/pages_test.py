"""Tests of `pages`, with small examples and pages of Natural Questions."""

import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.nq.records import FORMAT
from etcmodel.feature_utils.text import pages
from etcmodel.feature_utils.text import tokenizers
from testing.helpers import real_data_path
from testing.tasks import write_test_vocab

_M = 2**31 - 1
_PAD = (-1, -1)
_WORDS = "[unused102] [unused103] brno is a city big ##ger . <"


def columns(rows):
    """Returns starts and ends of rows that have equal numbers of spans."""
    spans = np.reshape(np.array(rows, np.int32), [len(rows), -1, 2])
    return tf.constant(spans[..., 0]), tf.constant(spans[..., 1])


class OuterSpansTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("docstring", [(3, 5), (0, 9), (9, 12), _PAD], [(0, 9), (9, 12)]),
        ("equal", [(4, 6), (4, 6), (3, 5), (4, 6)], [(3, 5), (4, 6)]),
        ("only_padding", [_PAD, _PAD], []),
        ("padding_in_front", [_PAD, (2, 3), _PAD, (0, 1)], [(0, 1), (2, 3)]),
        ("padding_with_any_end", [(-1, 99), (2, 3)], [(2, 3)]),
        ("empty_or_backwards", [(5, 5), (7, 3), (1, 2)], [(1, 2)]),
        ("none", [], []),
        ("great_numbers", [(0, _M), (_M - 2, _M - 1)], [(0, _M)]),
    )
    def test_small(self, spans, expected):
        expected = expected + [(_M, _M)] * (len(spans) - len(expected))
        starts, ends = pages.outer_spans(*columns([spans]))
        self.assertEqual((starts.dtype, ends.dtype), (tf.int32, tf.int32))
        got = zip(starts[0].numpy(), ends[0].numpy(), strict=True)
        self.assertEqual(list(got), expected)

    def test_rows_are_apart(self):
        starts, ends = pages.outer_spans(
            tf.constant([[3, 0], [3, 9]], tf.int64),
            tf.constant([[5, 9], [5, 12]], tf.int64),
        )
        self.assertAllEqual(starts, [[0, _M], [3, 9]])
        self.assertAllEqual(ends, [[9, _M], [5, 12]])

    def test_no_rows(self):
        empty = tf.zeros([0, 0], tf.int32)
        starts, ends = pages.outer_spans(empty, empty)
        self.assertEqual((starts.shape, ends.shape), ([0, 0], [0, 0]))

    def test_random_nesting(self):
        """Compares with a check of every pair of spans."""
        rng = np.random.default_rng(0)
        starts = rng.integers(-1, 30, [50, 17])
        ends = starts + rng.integers(0, 12, [50, 17])
        got = pages.outer_spans(tf.constant(starts), tf.constant(ends))
        for row in range(50):
            spans = {
                (s, e)
                for s, e in zip(starts[row], ends[row], strict=True)
                if 0 <= s < e
            }
            outer = sorted(
                span
                for span in spans
                if not any(
                    x[0] <= span[0] and x[1] >= span[1] for x in spans - {span}
                )
            )
            outer += [(_M, _M)] * (17 - len(outer))
            self.assertAllEqual(np.stack([x[row] for x in got], 1), outer)

    def test_real_pages(self):
        """Compares spans with the files' flags for top-level candidates."""
        for name in ("00", "01"):
            path = real_data_path(f"nq/nq-train-{name}.jsonl.gz")
            for record in FORMAT.read(path):
                spans = [(x.start, x.end) for x in record.candidates]
                top = [(x.start, x.end) for x in record.top_level_candidates]
                starts, ends = pages.outer_spans(*columns([spans]))
                got = np.stack([starts[0], ends[0]], axis=1)
                self.assertAllEqual(got[: len(top)], top)
                self.assertAllEqual(got[len(top) :], got[len(top) :] * 0 + _M)


class TokenizePagesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as folder:
            path = write_test_vocab(folder, _WORDS)
            with open(path, encoding="utf-8") as stream:
                cls.vocab = stream.read().split()
            cls.tokenizer = tokenizers.WordpieceTokenizer(path)

    def _run(self, rows, is_html, spans, html=True):
        """Returns the tokens of each page, as `token:word:candidate`."""
        special = self.tokenizer.special_ids
        made = pages.tokenize_pages(
            self.tokenizer,
            tf.ragged.constant(rows, tf.string, ragged_rank=1),
            tf.constant(is_html, tf.bool),
            *columns(spans),
            html_ids=(
                (special["html_open"], special["html_close"]) if html else None
            ),
        )
        self.assertEqual([x.dtype for x in made], [tf.int32, tf.int32])
        lists = [x.to_list() for x in made]
        self.assertEqual({len(x) for x in lists}, {len(rows)})
        return [
            " ".join(
                f"{self.vocab[token]}:{word}:{i}"
                for i, candidate in enumerate(zip(*row, strict=True))
                for token, word in zip(*candidate, strict=True)
            )
            for row in zip(*lists, strict=True)
        ]

    def test_words_in_candidates(self):
        words = "Is <P> Bigger is </P> a . <Table> Brno </Table> city".split()
        is_html = [[word[0] == "<" for word in words]]
        spans = [[(1, 5), (7, 10)]]
        self.assertEqual(
            self._run([words], is_html, spans),
            [
                "[unused102]:1:0 big:2:0 ##ger:2:0 is:3:0 [unused103]:4:0 "
                "[unused102]:7:1 brno:8:1 [unused103]:9:1"
            ],
        )
        self.assertEqual(
            self._run([words], is_html, spans, html=False),
            ["big:2:0 ##ger:2:0 is:3:0 brno:8:1"],
        )

    @parameterized.named_parameters(
        (
            *("touching", "brno is a city .", [(0, 2), (2, 3), (3, 5)]),
            "brno:0:0 is:1:0 a:2:1 city:3:2 .:4:2",
        ),
        # A word in two candidates belongs to the later one.
        (
            *("overlapping", "brno is a city .", [(0, 3), (2, 4)]),
            "brno:0:0 is:1:0 a:2:1 city:3:1",
        ),
        # Words, separated by "|" here, may have any number of tokens.
        (
            *("words", "|big| |brno is.a|\x00|city|\u200b|.", [(0, 4), (4, 8)]),
            "big:1:0 brno:3:0 is:3:0 .:3:0 a:3:0 city:5:1 .:7:1",
        ),
        (
            *("without_tokens", "brno|| |city", [(0, 1), (1, 3), (3, 4)]),
            "brno:0:0 city:3:2",
        ),
    )
    def test_candidates(self, text, spans, expected):
        words = text.split("|" if "|" in text else " ")
        is_html = [[False] * len(words)]
        self.assertEqual(self._run([words], is_html, [spans]), [expected])

    def test_tags(self):
        """A tag is one token; `is_html`, not the text, marks it."""
        tags = ["<P>", "</P>", '<Td colspan="7">', " </A>", "</A\n>", "<\n/>"]
        words = [*tags, "", "<", "brno"]
        is_html = [[True] * 7 + [False, True]]
        (got,) = self._run([words], is_html, [[(0, 9)]])
        o, c = "[unused102]", "[unused103]"
        tokens = [o, c, o, c, c, o, o, "<", o]
        self.assertEqual(
            got, " ".join(f"{x}:{i}:0" for i, x in enumerate(tokens))
        )

    def test_several_pages(self):
        rows = [["brno", "is"], [], ["x", "a", "city", "."], ["is"], ["", ""]]
        nothing = (_M, _M)
        got = self._run(
            rows,
            # `is_html` may be wider than the longest page.
            [[False] * 6] * 5,
            [
                [(1, 2), nothing],
                [nothing, nothing],
                [(1, 2), (3, 4)],
                [nothing, nothing],
                [(0, 2), nothing],
            ],
        )
        self.assertEqual(got, ["is:1:0", "", "a:1:0 .:3:1", "", ""])

    @parameterized.parameters(True, False)
    def test_no_candidates(self, html):
        words = ["<P>", "brno", "</P>"]
        for spans in ([], [(_M, _M)]):
            self.assertEqual(
                self._run([words], [[True, False, True]], [spans], html), [""]
            )

    def test_no_pages(self):
        made = pages.tokenize_pages(
            self.tokenizer,
            tf.RaggedTensor.from_row_splits(tf.constant([], tf.string), [0]),
            tf.zeros([0, 0], tf.bool),
            tf.zeros([0, 0], tf.int32),
            tf.zeros([0, 0], tf.int32),
            html_ids=(7, 8),
        )
        self.assertEqual([x.to_list() for x in made], [[], []])

    def test_invalid_utf8(self):
        """Invalid bytes are not text; words around them are kept."""
        words = [b"\xff\xfe", b"brno\xe9", b"</\xff>", b"<\xff>", b"city"]
        made = pages.tokenize_pages(
            self.tokenizer,
            tf.RaggedTensor.from_row_splits(words, [0, 5]),
            tf.constant([[False, False, True, True, False]]),
            tf.constant([[0]]),
            tf.constant([[5]]),
            html_ids=(7, 8),
        )
        self.assertEqual(
            made.token_ids.to_list(),
            [[[self.vocab.index("brno"), 8, 7, self.vocab.index("city")]]],
        )
        self.assertEqual(made.words.to_list(), [[[1, 2, 3, 4]]])


if __name__ == "__main__":
    tf.test.main()
