"""Tests of Natural Questions' `features`."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import etc_features
from etcmodel.feature_utils import tokenizers
from etcmodel.tasks.nq import features

# A vocabulary whose ids can be told from the words: "t201" has the id 201.
VOCAB = [f"t{i}" for i in range(300)]
VOCAB[:6] = ["[PAD]", *(f"[unused{i}]" for i in range(5))]
VOCAB[100:104] = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB[107:109] = ["[unused102]", "[unused103]"]
VOCAB[250] = "##x"
_SPECIAL = {"cls": 101, "separator": 102, "sentence": 1, "question": 3}
_X = -1
_PAD = (-1, -1)


def write_vocab(folder, tokens=None):
    """Path of a file with the vocabulary."""
    path = os.path.join(folder, "vocab.txt")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(f"{token}\n" for token in tokens or VOCAB)
    return path


def make_config(long_length, stride, question_length, **more):
    """A config of small sizes."""
    return features.NQFeatureConfig(
        long_length=long_length,
        stride=stride,
        question_length=question_length,
        **{"global_length": 8, **more},
    )


def inputs_of(pages):
    """Pages as dense inputs.

    Args:
        pages: tuples of a question, words (tags begin with "<"), and spans.

    Returns:
        The arguments of `NQFeatureBuilder.build`.
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


def plain(made, windows):
    """All windows of a batch: for each one its features as lists."""
    arrays = {name: x.numpy() for name, x in made.features.items()}
    arrays["words"] = windows.words.numpy()
    return [
        {name: x[i].tolist() for name, x in arrays.items()}
        for i in range(len(windows.record))
    ]


def plain_windows(question, pieces, special, config):
    """The windows of a page, in plain Python, as the paper describes them.

    Args:
        question: token ids.
        pieces: (token, word, candidate) of every token of the page.
        special: ids of special tokens.
        config: the sizes.

    Returns:
        For each window its features and `words`, as lists.
    """
    question = question[: config.question_length]
    room = config.long_length - len(question) - 3
    made = []
    # The loop of the original code.
    for start in range(
        0, max(len(pieces) - room, 0) + config.stride, config.stride
    ):
        shown = pieces[start : start + room]
        cls, separator = special["cls"], special["separator"]
        ids = [cls, *question, separator, *(x[0] for x in shown), separator]
        types = [1] + [3] * (len(question) + 1) + [1] * len(shown) + [3]
        words = [-1] * (len(question) + 2) + [x[1] for x in shown]
        if config.fixed_block_size:
            links = [i // config.fixed_block_size for i in range(len(ids))]
            global_ids = [special["sentence"]] * (links[-1] + 1)
            global_types = [0] * len(global_ids)
        else:
            global_ids = [cls] + [special["question"]] * len(question)
            global_types = [8] + [5] * len(question)
            links = [*range(len(global_ids)), -1]
            last = None
            for _, _, candidate in shown:
                if candidate != last and len(global_ids) < config.global_length:
                    global_ids.append(special["sentence"])
                    global_types.append(0)
                last = candidate
                links.append(len(global_ids) - 1)
        values = {
            "words": words,
            "long_token_ids": ids,
            "long_token_type_ids": types,
            "long_sentence_ids": links,
            "long_paragraph_breakpoints": [0] * (len(ids) - 1) + [1],
            "global_token_ids": global_ids,
            "global_token_type_ids": global_types,
            "global_paragraph_breakpoints": [0] * (len(global_ids) - 1) + [1],
        }
        window = {}
        for name, pad in {"words": -1, **etc_features.FEATURES}.items():
            length = config.long_length
            if name in etc_features.GLOBAL_FEATURES:
                length = config.global_length
            value = values.get(name, [])
            window[name] = value + [pad] * (length - len(value))
        made.append(window)
    return made


# The worked example of the original code's description: six tokens in the
# candidates 0 and 2; what lies between them is in none.
EXAMPLE = (
    "t11 t12",
    ["t201", "t202", "t203", "t99", "t204", "t205", "t206"],
    [(0, 3), (3, 3), (4, 7)],
)


class NQFeaturesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as folder:
            cls.tokenizer = tokenizers.WordpieceTokenizer(write_vocab(folder))

    def _builder(self, config):
        return features.NQFeatureBuilder(config, self.tokenizer)

    def _build(self, pages, config):
        return self._builder(config).build(*inputs_of(pages))

    def test_paper_sizes(self):
        config = features.NQFeatureConfig()
        self.assertEqual(
            (config.long_length, config.global_length, config.stride),
            (4096, 230, 2048),
        )
        self.assertEqual(config.question_length, 32)
        made, windows = self._build([EXAMPLE], config)
        self.assertCountEqual(made.features, etc_features.FEATURES)
        for name, value in made.features.items():
            is_long = name in etc_features.LONG_FEATURES
            self.assertEqual(value.shape, [1, 4096 if is_long else 230], name)
            self.assertEqual(value.dtype, tf.int32, name)
        self.assertEqual(windows.words.shape, [1, 4096])
        self.assertEqual(windows.words.dtype, tf.int32)

    def test_unanswerable_rate(self):
        rate = features.NQFeatureConfig().unanswerable_rate
        self.assertEqual(rate, 4.0)
        config = features.NQFeatureConfig(include_unknown_rate=0.02)
        self.assertAlmostEqual(config.unanswerable_rate, 0.08)
        config = features.NQFeatureConfig(
            include_unknown_rate=0.02,
            include_unknown_rate_for_unanswerable=0.0,
        )
        self.assertEqual(config.unanswerable_rate, 0.0)

    def test_worked_example(self):
        """Separators have no global token, and the last one adds none."""
        made, windows = self._build([EXAMPLE], make_config(12, 4, 2))
        (got,) = plain(made, windows)
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
        self.assertAllEqual(windows.record, [0])
        self.assertAllEqual(windows.starts, [0])
        self.assertAllEqual(windows.sizes, [6])
        self.assertAllEqual(windows.question_tokens, [2])
        self.assertEqual(windows.piece_words.to_list(), [[0, 1, 2, 4, 5, 6]])
        # The plain Python of other tests agrees.
        pieces = [(201 + i, i + i // 3, 2 * (i // 3)) for i in range(6)]
        self.assertEqual(
            plain_windows([11, 12], pieces, _SPECIAL, make_config(12, 4, 2)),
            [expected],
        )

    def test_worked_example_in_windows(self):
        """A word of two tokens, tags, and nested candidates; 4 tokens fit."""
        page = (
            "t11",
            ["t9", "<P>", "t201", "t202x", "</P>", "t9", "<A>", "t203"],
            [(2, 4), (6, 8), (1, 5), _PAD],
        )
        made, windows = self._build([page], make_config(8, 3, 1))
        first, second = plain(made, windows)
        # Pieces: 107 201 202 250 108 | 107 203, and 3 of them are new.
        self.assertEqual(
            first["long_token_ids"], [101, 11, 102, 107, 201, 202, 250, 102]
        )
        self.assertEqual(first["words"], [_X] * 3 + [1, 2, 3, 3] + [_X])
        self.assertEqual(first["long_sentence_ids"], [0, 1, _X, 2, 2, 2, 2, _X])
        self.assertEqual(first["global_token_ids"], [101, 3, 1] + [0] * 5)
        self.assertEqual(
            second["long_token_ids"], [101, 11, 102, 250, 108, 107, 203, 102]
        )
        self.assertEqual(second["words"], [_X] * 3 + [3, 4, 6, 7] + [_X])
        self.assertEqual(
            second["long_sentence_ids"], [0, 1, _X, 2, 2, 3, 3, _X]
        )
        self.assertEqual(second["global_token_ids"], [101, 3, 1, 1] + [0] * 4)
        self.assertEqual(second["long_paragraph_breakpoints"], [0] * 7 + [1])
        self.assertAllEqual(windows.starts, [0, 3])
        self.assertAllEqual(windows.sizes, [4, 4])
        self.assertEqual(windows.piece_words.to_list(), [[1, 2, 3, 3, 4, 6, 7]])

    def test_tags_left_out(self):
        page = ("t11", ["<P>", "t201", "</P>", "t202"], [(0, 4)])
        made, windows = self._build(
            [page], make_config(8, 3, 1, include_html_tokens=False)
        )
        (got,) = plain(made, windows)
        self.assertEqual(
            got["long_token_ids"], [101, 11, 102, 201, 202, 102, 0, 0]
        )
        self.assertEqual(got["words"], [_X] * 3 + [1, 3] + [_X] * 3)

    def test_vocabulary_without_tags(self):
        tokens = [x for x in VOCAB if x not in ("[unused102]", "[unused103]")]
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = tokenizers.WordpieceTokenizer(
                write_vocab(folder, tokens)
            )
        with self.assertRaisesRegex(ValueError, "--noinclude_html_tokens"):
            features.NQFeatureBuilder(make_config(8, 3, 1), tokenizer)
        builder = features.NQFeatureBuilder(
            make_config(8, 3, 1, include_html_tokens=False), tokenizer
        )
        _, windows = builder.build(*inputs_of([EXAMPLE]))
        self.assertLen(windows.record, 2)

    def test_numbers_of_windows_of_the_original_code(self):
        """With 4061 tokens of a page in a window, and a stride of 2048."""
        sizes = [0, 4061, 4062, 6109, 6110]
        question = " ".join(["t11"] * 32)
        pages = [(question, ["t201"] * n, [(0, n)]) for n in sizes]
        _, windows = self._build(pages, features.NQFeatureConfig())
        self.assertAllEqual(
            windows.record, [0, 1, 2, 2, 3, 3, 4, 4, 4], "1, 1, 2, 2, 3"
        )
        self.assertAllEqual(
            windows.starts, [0, 0, 0, 2048, 0, 2048, 0, 2048, 4096]
        )
        self.assertAllEqual(
            windows.sizes,
            [0, 4061, 4061, 2014, 4061, 4061, 4061, 4061, 2014],
        )
        self.assertAllEqual(windows.piece_words.row_lengths(), sizes)

    @parameterized.parameters((7, 3), (7, 7), (7, 1), (1, 1))
    def test_windows_of_pages_of_every_size(self, room, stride):
        """Their number, that they overlap, and that they show everything."""
        # 4 is what the CLS, the question and the separators take.
        config = make_config(room + 4, stride, 1)
        pages = [
            ("t11", [f"t{200 + i}" for i in range(n)], [(0, n)])
            for n in range(30)
        ]
        made, windows = self._build(pages, config)
        ids = made.features["long_token_ids"].numpy()
        starts = windows.starts.numpy()
        for n in range(30):
            (rows,) = np.nonzero(windows.record.numpy() == n)
            expected = range(0, max(n - room, 0) + stride, stride)
            self.assertSequenceEqual(list(starts[rows]), list(expected))
            seen = set()
            for row in rows:
                shown = ids[row][ids[row] >= 200].tolist()
                first = 200 + starts[row]
                last = min(first + room, 200 + n)
                self.assertEqual(shown, list(range(first, last)))
                # Only a page without text has a window without text.
                self.assertTrue(shown or not n)
                seen.update(shown)
            self.assertLen(seen, n)

    def test_question_is_cut(self):
        long = ("t11 t12 t13 t14", ["t201"] * 9, [(0, 9)])
        short = ("t11", ["t201"] * 9, [(0, 9)])
        made, windows = self._build([long, short], make_config(10, 4, 2))
        self.assertAllEqual(windows.question_tokens, [2, 1])
        # A short question leaves more room for the page.
        self.assertAllEqual(windows.record, [0, 0, 1, 1])
        self.assertAllEqual(windows.sizes, [5, 5, 6, 5])
        self.assertAllEqual(
            made.features["long_token_ids"][0, :5], [101, 11, 12, 102, 201]
        )
        self.assertAllEqual(
            made.features["global_token_ids"][0], [101, 3, 3, 1] + [0] * 4
        )

    def test_no_question(self):
        for question in ("", " ", "\x00"):
            page = (question, ["t201"], [(0, 1)])
            made, windows = self._build([page], make_config(8, 3, 1))
            (got,) = plain(made, windows)
            self.assertEqual(
                got["long_token_ids"], [101, 102, 201, 102] + [0] * 4
            )
            self.assertEqual(got["long_sentence_ids"], [0, _X, 1] + [_X] * 5)
            self.assertEqual(got["global_token_ids"], [101, 1] + [0] * 6)

    def test_full_global_input(self):
        """The last global token is shared by the candidates that are left."""
        page = (
            "t11 t12",
            ["t201", "t202", "t203", "t204", "t205", "t206"],
            [(i, i + 1) for i in range(6)],
        )
        made, windows = self._build(
            [page], make_config(11, 3, 2, global_length=5)
        )
        (got,) = plain(made, windows)
        self.assertEqual(got["global_token_ids"], [101, 3, 3, 1, 1])
        self.assertEqual(got["global_paragraph_breakpoints"], [0, 0, 0, 0, 1])
        self.assertEqual(
            got["long_sentence_ids"], [0, 1, 2, _X, 3, 4, 4, 4, 4, 4, _X]
        )
        self.assertEqual(
            got["long_token_ids"],
            [101, 11, 12, 102, 201, 202, 203, 204, 205, 206, 102],
        )
        # One global token for all of the page is the least.
        made, windows = self._build(
            [page], make_config(11, 3, 2, global_length=4)
        )
        (got,) = plain(made, windows)
        self.assertEqual(got["global_token_ids"], [101, 3, 3, 1])
        self.assertEqual(
            got["long_sentence_ids"], [0, 1, 2, _X] + [3] * 6 + [_X]
        )

    def test_fixed_blocks(self):
        """The original code is off by one at the padding; this is not."""
        config = make_config(12, 4, 2, global_length=4, fixed_block_size=4)
        made, windows = self._build([EXAMPLE], config)
        (got,) = plain(made, windows)
        (structured,) = plain(*self._build([EXAMPLE], make_config(12, 4, 2)))
        self.assertEqual(got["global_token_ids"], [1, 1, 1, 0])
        self.assertEqual(got["global_token_type_ids"], [0, 0, 0, 0])
        self.assertEqual(got["global_paragraph_breakpoints"], [0, 0, 1, 0])
        self.assertEqual(
            got["long_sentence_ids"], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, _X]
        )
        # All else is as with the page's structure.
        for name, value in structured.items():
            if name in etc_features.LONG_FEATURES or name == "words":
                if name != "long_sentence_ids":
                    self.assertEqual(got[name], value, name)

    @parameterized.parameters(1, 2, 3, 5, 11, 12, 40)
    def test_fixed_blocks_of_any_size(self, size):
        config = make_config(12, 4, 2, global_length=13, fixed_block_size=size)
        pages = [
            ("t11 t12", ["t201"] * n, [(0, n)]) for n in (0, 1, 4, 8, 9, 20)
        ]
        made, windows = self._build(pages, config)
        ids = made.features["long_token_ids"].numpy()
        links = made.features["long_sentence_ids"].numpy()
        for row in range(len(ids)):
            n = np.count_nonzero(ids[row])
            blocks = -(-n // size)
            self.assertAllEqual(
                made.features["global_token_ids"][row],
                [1] * blocks + [0] * (13 - blocks),
            )
            self.assertAllEqual(links[row, :n], np.arange(n) // size)
            self.assertAllEqual(links[row, n:], [_X] * (12 - n))
        self.assertAllEqual(
            windows.record, [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5]
        )

    @parameterized.named_parameters(
        ("no_room", (35, 1, 32), {}, "leaves no room"),
        ("no_stride", (64, 0, 8), {}, "it can be 1 to 53"),
        ("negative_stride", (64, -3, 8), {}, "stride is -3"),
        ("long_stride", (64, 54, 8), {}, "it can be 1 to 53"),
        ("no_global", (64, 8, 8), {"global_length": 9}, "at least 10"),
        (
            "few_blocks",
            (65, 8, 8),
            {"global_length": 4, "fixed_block_size": 16},
            "at least 5",
        ),
        ("blocks", (64, 8, 8), {"fixed_block_size": -1}, "fixed_block_size"),
        ("question", (64, 8, -1), {}, "question_length is -1"),
        ("rate", (64, 8, 6), {"include_unknown_rate": -0.1}, "-0.1"),
        (
            "other_rate",
            (64, 8, 6),
            {"include_unknown_rate_for_unanswerable": -1.0},
            "-1.0",
        ),
    )
    def test_sizes_that_do_not_fit(self, sizes, more, message):
        with self.assertRaisesRegex(ValueError, message):
            make_config(*sizes, **more)

    def test_sizes_that_just_fit(self):
        make_config(36, 1, 32, global_length=34)
        make_config(64, 53, 8, global_length=10)
        make_config(64, 8, 8, global_length=4, fixed_block_size=16)
        make_config(4, 1, 0)

    def test_a_page_does_not_depend_on_its_batch(self):
        rng = np.random.default_rng(1)
        config = make_config(16, 5, 3, global_length=7)
        pages = []
        for n in (13, 0, 40, 1, 25):
            words = [f"t{i}" for i in rng.integers(200, 240, n)]
            for i in rng.integers(0, n, n // 4) if n else ():
                words[i] = rng.choice(["<P>", "</P>", "t201x", "", "t201.t202"])
            starts = rng.integers(0, n, n // 5) if n else []
            spans = [(s, min(s + rng.integers(1, 9), n)) for s in starts]
            pages.append((" t11" * (n % 6), words, spans))
        together = plain(*self._build(pages, config))
        alone = [
            window
            for page in pages
            for window in plain(*self._build([page], config))
        ]
        self.assertGreater(len(alone), len(pages))
        self.assertEqual(together, alone)

    def test_long_page(self):
        """150,000 tokens in 500 candidates."""
        n = 150_000
        page = (
            "t11 t12",
            [f"t{200 + i % 40}" for i in range(n)],
            [(start, start + 300) for start in range(0, n, 300)],
        )
        config = features.NQFeatureConfig()
        made, windows = self._build([page], config)
        # 4091 tokens of the page are in a window.
        self.assertLen(windows.record, 1 + -(-(n - 4091) // 2048))
        pieces = [(200 + i % 40, i, i // 300) for i in range(n)]
        expected = plain_windows([11, 12], pieces, _SPECIAL, config)
        got = plain(made, windows)
        self.assertLen(got, len(expected))
        for i in (0, 1, 40, len(expected) - 1):
            self.assertEqual(got[i], expected[i])

    def test_page_without_candidates(self):
        config = make_config(8, 3, 1)
        for spans in ([], [_PAD], [(1, 1)]):
            page = ("t11", ["<P>", "t201", "t202"], spans)
            made, windows = self._build([page], config)
            self.assertEqual(
                plain(made, windows),
                plain_windows([11], [], _SPECIAL, config),
            )
            self.assertAllEqual(windows.sizes, [0])

    def test_invalid_utf8(self):
        page = (b"\xfft11", [b"\xff", b"t201\xe9", b"t202"], [(0, 3)])
        config = make_config(10, 3, 2)
        self.assertEqual(
            plain(*self._build([page], config)),
            plain_windows([11], [(201, 1, 0), (202, 2, 0)], _SPECIAL, config),
        )

    def test_empty_rows_and_batches(self):
        config = make_config(8, 3, 1)
        nothing = plain_windows([], [], _SPECIAL, config)
        for spans in ([], [_PAD]):
            for words in ([], ["", ""]):
                page = ("", words, spans)
                self.assertEqual(
                    plain(*self._build([page, page], config)), 2 * nothing
                )
        inputs = [x[:0] for x in inputs_of([EXAMPLE])]
        made, windows = self._builder(config).build(*inputs)
        self.assertEqual(made.features["long_token_ids"].shape, [0, 8])
        self.assertEqual(made.features["global_token_ids"].shape, [0, 8])
        self.assertEqual(windows.words.shape, [0, 8])

    def test_inputs_of_different_batch_sizes(self):
        builder = self._builder(make_config(8, 3, 1))
        one, two = inputs_of([EXAMPLE]), inputs_of([EXAMPLE, EXAMPLE])
        names = ["tokens", "is_html", "candidate_starts", "candidate_ends"]
        for some, others in ((one, two), (two, one)):
            for i, name in enumerate(names, 1):
                inputs = list(some)
                inputs[i] = others[i]
                with self.assertRaisesRegex(
                    tf.errors.InvalidArgumentError, f"Records of {name}"
                ):
                    builder.build(*inputs)


if __name__ == "__main__":
    tf.test.main()
