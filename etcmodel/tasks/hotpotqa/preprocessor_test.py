"""Tests of HotpotQA's preprocessor."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import tokenizers
from etcmodel.tasks.hotpotqa.preprocessor import HotpotQAPreprocessor
from etcmodel.tasks.hotpotqa.task import HotpotQAPreprocessingConfig

# A vocabulary whose ids can be told from the words: "w51" has the id 51.
_VOCAB = [f"w{i}" for i in range(110)]
_VOCAB[:6] = ["[PAD]", *(f"[unused{i}]" for i in range(5))]
_VOCAB[100:104] = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_VOCAB[104:107] = ["e", "##t", "##e"]


def ragged_inputs(records):
    """Questions, titles and sentences of (question, context) pairs."""
    sentences = tf.ragged.constant(
        [texts for _, context in records for _, texts in context],
        tf.string,
        ragged_rank=1,
    )
    return (
        tf.constant([question for question, _ in records], tf.string),
        tf.ragged.constant(
            [[t for t, _ in context] for _, context in records],
            tf.string,
            ragged_rank=1,
        ),
        tf.RaggedTensor.from_row_lengths(
            sentences,
            tf.constant([len(context) for _, context in records], tf.int64),
        ),
    )


def dense_inputs(records, paragraphs=0, sentences=0):
    """The same with padding, more of it than is needed if so told."""
    question, titles, texts = ragged_inputs(records)
    titles, texts = titles.to_tensor(), texts.to_tensor()
    return (
        question,
        tf.pad(titles, [[0, 0], [0, paragraphs]]),
        tf.pad(texts, [[0, 0], [0, paragraphs], [0, sentences]]),
    )


def plain(encoded, index=0):
    """Everything about one record of a batch, as lists."""
    made = encoded.layout
    dense = {
        **made.features,
        "long_sources": made.long_sources,
        "global_sources": made.global_sources,
        **encoded.context,
    }
    for section, counts in made.counts.items():
        for name, values in counts._asdict().items():
            dense[f"{section}.{name}"] = values
    return {
        name: x[index].numpy().tolist()
        for name, x in {**dense, **encoded.text}.items()
    }


_EXAMPLE = ("w51 w52", [("w61", ["w71 w72", " w73"]), ("w81 w82", ["w91"])])


class FeaturesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vocab.txt")
            with open(path, "w") as file:
                file.write("\n".join(_VOCAB))
            cls.tokenizer = tokenizers.WordpieceTokenizer(path)

    def _preprocessor(self, *sizes):
        return HotpotQAPreprocessor(
            HotpotQAPreprocessingConfig(*sizes), self.tokenizer
        )

    def _build(self, record, *sizes):
        return plain(self._preprocessor(*sizes)(*ragged_inputs([record])))

    def test_paper_sizes(self):
        made = self._preprocessor()(*ragged_inputs([_EXAMPLE]))
        for name, value in {**made.layout.features, **made.context}.items():
            length = 256 if name.startswith("global") else 4096
            self.assertEqual(value.shape, [1, length], name)
            self.assertEqual(value.dtype, tf.int32, name)

    def test_worked_example(self):
        """As in the description of the original code, but for token types.

        There all global tokens have the type 0.
        """
        got = self._build(_EXAMPLE, 14, 13)
        pad = [0] * 4
        x = -1
        expected = {
            "long_token_ids": [101, 51, 52, 61, 71, 72, 73, 81, 82, 91] + pad,
            "long_sentence_ids": [x, 1, 2, 4, 5, 5, 6, 8, 8, 9] + [x] * 4,
            "long_paragraph_ids": [x, x, x, 3, 3, 3, 3, 7, 7, 7] + [x] * 4,
            "long_paragraph_breakpoints": [1, 0, 1, 0, 0, 0, 1, 0, 0, 1] + pad,
            "long_token_type_ids": [1, 3, 3, 2, 1, 1, 1, 2, 2, 1] + pad,
            "l2g_linked_ids": [x] * 14,
            "global_token_ids": [101, 3, 3, 5, 1, 1, 1, 5, 1, 1, 0, 0, 0],
            "global_paragraph_breakpoints": (
                [1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0]
            ),
            "global_token_type_ids": [8, 5, 5, 7, 0, 0, 0, 7, 0, 0, 0, 0, 0],
            # Where they come from: paragraphs and sentences of the record.
            "global_units": [x, x, x, x, 0, 1, 2, x, 3, 4, x, x, x],
            "long_starts": [x, x, x, 0, 0, 4, 1, 0, 4, 0] + [x] * 4,
            "long_ends": [x, x, x, 3, 3, 7, 4, 3, 7, 3] + [x] * 4,
            "units": [b"w61", b"w71 w72", b" w73", b"w81 w82", b"w91"],
            "paragraph_sizes": [3, 2],
        }
        for name, values in expected.items():
            self.assertEqual(got[name], values, name)
        for name, count in {
            "cls.tokens": 1,
            "question.tokens": 2,
            "context.tokens": 7,
            "context.units": 5,
            "context.groups": 2,
        }.items():
            section, kind = name.split(".")
            self.assertEqual(got[name], count, name)
            self.assertEqual(got[f"{section}.kept_{kind}"], count, name)

    def test_long_sentence_is_skipped_and_shifts_nothing(self):
        record = (
            "w51 w52",
            [("w61", ["w71 w72 w71 w72 w71", "w73"]), ("w81 w82", ["w91"])],
        )
        got = self._build(record, 8, 13)
        x = -1
        self.assertEqual(
            got["long_token_ids"], [101, 51, 52, 61, 73, 81, 82, 91]
        )
        self.assertEqual(got["long_sentence_ids"], [x, 1, 2, 4, 5, 7, 7, 8])
        self.assertEqual(got["long_paragraph_ids"], [x, x, x, 3, 3, 6, 6, 6])
        self.assertEqual(
            got["global_token_ids"], [101, 3, 3, 5, 1, 1, 5, 1, 1, 0, 0, 0, 0]
        )
        # "w73" is the segment after the one that was skipped.
        self.assertEqual(
            got["global_units"], [x, x, x, x, 0, 2, x, 3, 4, x, x, x, x]
        )
        self.assertEqual(got["global_sources"][5][1:], [0, 1 + 1, x])
        self.assertEqual(got["long_sources"][4][1:], [0, 1 + 1, 0])
        self.assertEqual(got["long_starts"], [x, x, x, 0, 0, 0, 4, 0])
        # It is in the record's text all the same.
        self.assertEqual(got["units"][1], b"w71 w72 w71 w72 w71")
        self.assertEqual(got["paragraph_sizes"], [3, 2])
        self.assertEqual(got["context.tokens"], 10)
        self.assertEqual(got["context.kept_tokens"], 5)
        self.assertEqual(got["context.kept_units"], 4)
        self.assertEqual(got["context.kept_groups"], 2)

    def test_title_that_does_not_fit(self):
        """Its paragraph's sentences can still find some room."""
        record = ("w51", [("w61 " * 9, ["w71", "w72 " * 9, "w73"])])
        got = self._build(record, 5, 9)
        self.assertEqual(got["long_token_ids"], [101, 51, 71, 73, 0])
        # No first one that is taken for a title.
        self.assertEqual(got["long_token_type_ids"], [1, 3, 1, 1, 0])
        self.assertEqual(got["global_units"], [-1] * 3 + [1, 3] + [-1] * 4)

    def test_short_global_input(self):
        """A paragraph has its token as long as there is room for that."""
        got = self._build(_EXAMPLE, 14, 8)
        self.assertEqual(
            got["long_token_ids"], [101, 51, 52, 61, 71, 72, 73] + [0] * 7
        )
        self.assertEqual(got["global_token_ids"], [101, 3, 3, 5, 1, 1, 1, 5])
        self.assertEqual(got["global_units"], [-1] * 4 + [0, 1, 2, -1])
        self.assertEqual(got["context.kept_groups"], 2)
        self.assertEqual(got["context.kept_units"], 3)

    def test_without_given_lengths_nothing_is_cut(self):
        inputs = ragged_inputs([_EXAMPLE, ("w51", [("w61", ["w71"])])])
        got = self._preprocessor(None, None)(*inputs)
        fixed = self._preprocessor(10, 10)(*inputs)
        for i in range(2):
            self.assertEqual(plain(got, i), plain(fixed, i))

    def test_offsets_are_bytes_of_the_text(self):
        # "é" has two bytes, and is "e" in the vocabulary.
        record = ("w51", [("é", ["été w71\u3000w72", "xyz é"])])
        got = self._build(record, 12, 9)
        e, t_, e_ = 104, 105, 106
        self.assertEqual(
            got["long_token_ids"], [101, 51, e, e, t_, e_, 71, 72, 100, e, 0, 0]
        )
        self.assertEqual(
            got["long_starts"], [-1, -1, 0, 0, 2, 3, 6, 12, 0, 4, -1, -1]
        )
        self.assertEqual(
            got["long_ends"], [-1, -1, 2, 2, 3, 5, 9, 15, 3, 6, -1, -1]
        )
        # "é ##t ##é" is one word.
        self.assertEqual(
            got["long_word_cuts"], [0, 0, 0, 2, 3, 1, 0, 0, 0, 0, 0, 0]
        )

    @parameterized.named_parameters(
        ("no_paragraphs", ("w51", [])),
        ("no_sentences", ("w51", [("w61", []), ("w62", [])])),
        ("nothing", ("", [("", [""])])),
        ("blanks", (" ", [(" ", [" ", "\n"]), ("\t", ["\u00a0"])])),
        ("only_padding", ("w51", [("", ["", ""]), ("", [])])),
        ("invalid_utf8", (b"w51\xff", [(b"\xc3\x28", [b"\xe4\xb8 w71\0w72"])])),
        ("long_question", ("w51 " * 5000, [("w61", ["w71"])])),
        ("long_title", ("w51", [("w61 " * 5000, ["w71"])])),
        ("long_sentence", ("w51", [("w61", ["w71 " * 5000, "w72"])])),
        ("many_sentences", ("w51", [("w61", ["w71 w72."] * 3000)])),
        ("many_paragraphs", ("w51", [("w61", ["w71", "w72"])] * 1000)),
    )
    def test_any_size_fits(self, record):
        got = self._build(record, 20, 15)
        used = np.count_nonzero(got["long_token_ids"])
        self.assertLen(got["long_token_ids"], 20)
        self.assertLen(got["global_token_ids"], 15)
        self.assertEqual(
            used,
            sum(
                got[f"{x}.kept_tokens"] for x in ("cls", "question", "context")
            ),
        )
        # Every index is that of a used global token.
        used = np.count_nonzero(got["global_token_ids"])
        for name in ("sentence", "paragraph"):
            self.assertLess(max(got[f"long_{name}_ids"]), used)
        for start, end, source in zip(
            got["long_starts"],
            got["long_ends"],
            got["long_sources"],
            strict=True,
        ):
            if source[0] == 2:
                self.assertLess(start, end)
            else:
                self.assertEqual((start, end), (-1, -1))
        self.assertEqual(sum(got["paragraph_sizes"]), len(got["units"]))
        self.assertLess(max(got["global_units"]), len(got["units"]))

    def test_what_is_not_utf8_is_replaced(self):
        record = (b"w51\x00w52\xff", [(b"\xff", [b"\xffw71\x00w72"])])
        got = self._build(record, 8, 8)
        self.assertEqual(
            got["units"], ["\ufffd".encode(), "\ufffdw71 w72".encode()]
        )
        self.assertEqual(got["long_token_ids"], [101, 51, 52, 71, 72, 0, 0, 0])
        # In bytes of what replaces it.
        self.assertEqual(got["long_starts"][3:5], [3, 7])
        self.assertEqual(got["long_ends"][3:5], [6, 10])

    _ODD = (
        # Empty ones in the middle keep their places.
        ("w51", [("", ["w71"]), ("", []), ("w62", ["", "w72", ""])]),
        _EXAMPLE,
        ("", []),
        ("w53", [("w63", []), ("w64", ["w74 " * 9, "w75", "w76", "w77"])]),
    )

    def test_empty_texts_keep_their_places(self):
        got = self._build(self._ODD[0], 9, 13)
        self.assertEqual(got["paragraph_sizes"], [2, 0, 3])
        self.assertEqual(got["units"], [b"", b"w71", b"w62", b"", b"w72"])
        self.assertEqual(
            got["long_token_ids"], [101, 51, 71, 62, 72, 0, 0, 0, 0]
        )
        x = -1
        self.assertEqual(
            got["global_units"], [x, x, x, 0, 1, x, x, 2, 3, 4, x, x, x]
        )
        self.assertEqual(got["long_paragraph_ids"][2:5], [2, 6, 6])
        self.assertEqual(got["long_sentence_ids"][2:5], [4, 7, 9])

    @parameterized.named_parameters(
        ("given_lengths", (9, 10)), ("any_lengths", (None, None))
    )
    def test_padded_and_ragged_inputs_give_the_same(self, sizes):
        preprocessor = self._preprocessor(*sizes)
        expected = preprocessor(*ragged_inputs(self._ODD))
        self.assertAllEqual([3, 4], expected.request["shape"])
        for padding in ((0, 0), (3, 2)):
            got = preprocessor(*dense_inputs(self._ODD, *padding))
            self.assertAllEqual(np.add([3, 4], padding), got.request["shape"])
            for i in range(len(self._ODD)):
                self.assertEqual(plain(got, i), plain(expected, i))

    def test_a_record_does_not_depend_on_its_batch(self):
        """Not even beside one of no text at all."""
        preprocessor = self._preprocessor(9, 10)
        together = preprocessor(*ragged_inputs(self._ODD))
        for i, record in enumerate(self._ODD):
            alone = preprocessor(*ragged_inputs([record]))
            self.assertEqual(plain(alone), plain(together, i))

    def test_inputs_that_differ_in_size(self):
        preprocessor = self._preprocessor(9, 10)
        traced = tf.function(
            preprocessor.build,
            input_signature=[
                tf.TensorSpec([None] * rank, tf.string) for rank in (1, 2, 3)
            ],
        )
        for sizes in (
            ([2], [1, 1], [1, 1, 1]),
            ([1], [2, 1], [2, 1, 1]),
            ([1], [2, 1], [1, 1, 1]),
            ([1], [1, 1], [2, 1, 1]),
            ([1], [1, 2], [1, 1, 1]),
            ([1], [1, 1], [1, 2, 1]),
        ):
            with self.assertRaises(tf.errors.InvalidArgumentError):
                traced(*(tf.fill(size, "w51") for size in sizes))

    def test_ragged_inputs_that_differ_in_size(self):
        preprocessor = self._preprocessor(9, 10)
        for question, titles, sentences in (
            (["w51"], [["w61"], ["w62"]], [[["w71"]]]),
            (["w51"], [["w61", "w62"]], [[["w71"]]]),
            (["w51"], [["w61"]], [[["w71"], ["w72"]]]),
            # As many paragraphs in all, but of other records.
            (
                ["w51", "w52"],
                [["w61", "w62"], ["w63"]],
                [[["w71"]], [["w72"], ["w73"]]],
            ),
        ):
            with self.assertRaises(tf.errors.InvalidArgumentError):
                preprocessor(
                    tf.constant(question),
                    tf.ragged.constant(titles),
                    tf.ragged.constant(sentences),
                )


if __name__ == "__main__":
    tf.test.main()
