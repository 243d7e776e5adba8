import random
import types

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import classification
from etcmodel.errors import UserError
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import tokenizers
from etcmodel.pipeline.preprocessor import Encoded
from etcmodel.pipeline.preprocessor import Labelled
from etcmodel.readers.sectioned import Section
from etcmodel.tasks.documents import documents
from etcmodel.tasks.documents.document_options import (
    DocumentPreprocessingConfig,
)
from testing.tasks import write_test_vocab

_TITLES = [["Oslo", ""], ["", ""]]
_TEXTS = [
    [["It rains. It snows.", "Why?"], ["", "Bye bye."]],
    [["A. B c.", ""], ["", ""]],
]


def _record(*sections, query=(), has_units=False):
    return types.SimpleNamespace(
        sections=[Section(*x) for x in sections],
        query=query,
        has_units=has_units,
    )


class PlainTextTest(tf.test.TestCase):
    def test_python_splits_texts_as_served_models_do(self):
        """Python finds the same titles in strings as the signature `text`."""
        generator = random.Random(1)
        parts = "# ,## ,#,a,b.,\n,\n,\n\n, ,\t,\r\n,\r,\u3000,\x85".split(",")
        texts = [
            "".join(generator.choices(parts, k=generator.randint(1, 12)))
            for _ in range(2000)
        ]
        texts = [f"{x}\n\nz" for x in texts]
        records = classification.FORMAT.read_rows(texts, "predict")
        made = [documents.DocumentPreprocessor.raw(x) for x in records]
        served, _ = documents.DocumentPreprocessor.of_text(
            tf.fill([len(texts)], ""), tf.constant(texts)
        )
        self.assertEqual(
            [
                [(t.decode(), x.decode()) for t, (x,) in zip(*row, strict=True)]
                for row in zip(
                    served["titles"].to_list(),
                    served["texts"].to_list(),
                    strict=True,
                )
            ],
            [
                [(t, *x) for t, x in zip(y["titles"], y["texts"], strict=True)]
                for y in made
            ],
        )


class FindUnitsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        (
            "sentences",
            [["Oslo", "It rains.", "It snows.", "Why?"], ["Bye bye."]],
            [[-1, 0, 1, 2], [0]],
        ),
        (
            "texts",
            [["Oslo", "It rains. It snows.", "Why?"], ["Bye bye."]],
            [[-1, 0, 1], [1]],
        ),
        (
            "paragraphs",
            [["Oslo", "It rains. It snows. Why?"], ["Bye bye."]],
            [[-1, 0], [0]],
        ),
        (
            "blocks",
            [["Oslo", "It rains. It snows. Why?"], ["Bye bye."]],
            [[-1, 0], [0]],
        ),
    )
    def test_by_hand(self, first, indices):
        """Keeps titles whole; does not split a text after an initial."""
        kind = self.id().rsplit("_", 1)[-1]
        for ragged in (False, True):
            titles, texts = tf.constant(_TITLES), tf.constant(_TEXTS)
            if ragged:
                titles = tf.RaggedTensor.from_tensor(titles)
                texts = tf.RaggedTensor.from_tensor(texts, ragged_rank=2)
            units = documents.find_units(titles, texts, kind)
            self.assertEqual(
                [
                    [[x.encode() for x in row] for row in first],
                    [[b"A. B c."]],
                ],
                units.texts.to_list(),
            )
            self.assertEqual([indices, [[0]]], units.numbers.to_list())

    def test_empty_documents(self):
        for kind in ("sentences", "paragraphs"):
            units = documents.find_units(
                tf.zeros([2, 0], tf.string),
                tf.zeros([2, 0, 0], tf.string),
                kind,
            )
            self.assertEqual([[], []], units.texts.to_list())


class BlocksTest(tf.test.TestCase):
    def test_examples(self):
        whole = [[[7, 8]], [[9]]]
        for function in (documents.to_blocks, tf.function(documents.to_blocks)):
            made = function(
                tf.ragged.constant(
                    [[[[7, 8]], [[9]]], [[[7], [8, 9]]], [], [[[1, 2, 3, 4]]]],
                    tf.int32,
                    ragged_rank=3,
                ),
                2,
            )
            self.assertEqual(
                [whole, whole, [], [[[1, 2]], [[3, 4]]]], made.to_list()
            )


class UnitsFinderTest(tf.test.TestCase, parameterized.TestCase):
    SENTENCES = (("", (("It rains. It snows.",),)),)
    ONE_TEXT = (("", (("no mark that ends anything",),)),)

    @parameterized.parameters(
        ("sentences", [SENTENCES, ONE_TEXT, SENTENCES], False),
        ("blocks", [ONE_TEXT, ONE_TEXT, SENTENCES], False),
        # Two paragraphs count as structure.
        ("sentences", [(("", (("a",), ("b",))),)], False),
        ("texts", [SENTENCES], True),
    )
    def test_auto(self, expected, records, has_units):
        config = documents.complete_units(
            DocumentPreprocessingConfig(),
            [_record(*x, has_units=has_units) for x in records],
        )
        self.assertEqual(expected, config.units)

    def test_tasks_without_blocks_have_sentences(self):
        class WithoutBlocks(DocumentPreprocessingConfig):
            HAS_BLOCKS = False

        config = documents.complete_units(
            WithoutBlocks(), [_record(*self.ONE_TEXT)]
        )
        self.assertEqual("sentences", config.units)

    @parameterized.parameters(
        ("a", False),
        ("a.b", False),
        ("a-", False),
        ("a.", True),
        ("a?\n", True),
        ('a ("b!")', True),
        ('"a.", b', True),
        ("a।b", True),
        # A pattern that took quadratic time would be slow here.
        ("." * 300_000 + "a", False),
    )
    def test_sentence_ends(self, text, expected):
        self.assertEqual(expected, documents._has_sentence_end(text))

    def test_given_units(self):
        config = DocumentPreprocessingConfig(units="paragraphs")
        record = _record(*self.SENTENCES)
        self.assertEqual(config, documents.complete_units(config, [record]))
        with self.assertRaisesRegex(ValueError, "'words', expected one of"):
            DocumentPreprocessingConfig(units="words")

    def test_records_that_differ(self):
        records = [
            _record(*self.SENTENCES),
            _record(*self.SENTENCES, has_units=True),
        ]
        with self.assertRaisesRegex(
            UserError, r"1 of 2 records, (.|\n)*`units=texts`"
        ):
            documents.complete_units(DocumentPreprocessingConfig(), records)


class RawTest(tf.test.TestCase):
    def test_titles_of_sections(self):
        record = _record(
            ["A", [("a.", "b."), ("c.",)]],
            # The sections "B" and "D" have no text: "B" precedes another title,
            # "D" is at the end.
            ["B", []],
            ["", []],
            ["C", [("d.",)]],
            ["", [("e.",)]],
            ["D", []],
        )
        raw = documents.DocumentPreprocessor.raw(record)
        self.assertEqual(["A", "", "B C", "", "D"], raw["titles"])
        self.assertEqual(
            [["a.", "b."], ["c."], ["d."], ["e."], []], raw["texts"]
        )


class _Preprocessor(documents.DocumentPreprocessor):
    def encode(self, query, units):
        ids = self.tokenizer.tokenize(units.texts)
        if self.kind == "blocks":
            ids = documents.to_blocks(ids, self.config.block_size)
        return Encoded(self.lay_out(query, ids), {}, {})

    def labels(self, record, view, split):
        return Labelled([{}], {}, {})


class LayoutTest(tf.test.TestCase):
    def _features(self, **config):
        vocab = write_test_vocab(self.get_temp_dir(), "a b ba c q r .")
        preprocessor = _Preprocessor(
            DocumentPreprocessingConfig(20, 12, **config),
            tokenizers.make_tokenizer(vocab),
        )
        record = _record(
            ("a", (("b ba. C",), ("a b",))), query=("q r", "r"), has_units=False
        )
        made = preprocessor(**preprocessor.raw_batch([record]))
        return {name: x[0].numpy() for name, x in made.layout.features.items()}

    def test_sentences(self):
        """Lays out a query, which has two texts, and two paragraphs."""
        features = self._features()
        types_ = token_types
        self.assertAllEqual(
            [
                *[types_.CLS_GLOBAL] + [types_.QUESTION_GLOBAL] * 2,
                *[types_.PARAGRAPH_GLOBAL] + [types_.GLOBAL] * 3,
                *[types_.PARAGRAPH_GLOBAL, types_.GLOBAL] + [0] * 3,
            ],
            features["global_token_type_ids"],
        )
        # The sentences of the query belong to no paragraph.
        self.assertAllEqual(
            [-1, 1, 1, 2, 4, 5, 5, 5, 6, 8, 8] + [-1] * 9,
            features["long_sentence_ids"],
        )
        self.assertAllEqual(
            [-1] * 4 + [3] * 5 + [7] * 2 + [-1] * 9,
            features["long_paragraph_ids"],
        )
        self.assertAllEqual(
            [1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1] + [0] * 9,
            features["long_paragraph_breakpoints"],
        )

    def test_blocks(self):
        features = self._features(units="blocks", block_size=4)
        self.assertAllEqual(
            [-1, 1, 1, 2, 3, 3, 3, 3, 4, 4, 4] + [-1] * 9,
            features["long_sentence_ids"],
        )
        # Local attention does not cross blocks.
        self.assertAllEqual(
            [1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1] + [0] * 9,
            features["long_paragraph_breakpoints"],
        )


if __name__ == "__main__":
    tf.test.main()
