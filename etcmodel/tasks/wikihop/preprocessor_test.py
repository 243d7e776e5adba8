"""Tests of WikiHop's preprocessor."""

import collections
import json
import os
import pathlib
import re
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import wikihop
from etcmodel.datasets.wikihop import WikiHopRecord
from etcmodel.errors import RecordError
from etcmodel.feature_utils import token_types
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import tokenizers
from etcmodel.pipeline import example_maker
from etcmodel.readers.records import Source
from etcmodel.tasks.wikihop import preprocessor
from etcmodel.tasks.wikihop.task import TASK
from testing.helpers import real_data_path
from testing.records import RecordsTestCase
from testing.records import stored_values
from testing.tasks import encode_records
from testing.tasks import write_test_vocab

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "multiple_choice.md"


def ids(text):
    vocab = [
        *tokenizers.WORDPIECE_RESERVED_TOKENS,
        *FeaturesTest.WORDS.split(),
    ]
    return [vocab.index(token) for token in text.split()]


class FeaturesTest(RecordsTestCase):
    TASK = TASK
    WORDS = "new york rome city big is a place of x . _ ##s"

    def _preprocessor(self, long_length=10, global_length=10):
        return self.writer(
            long_length=long_length, global_length=global_length
        ).preprocessor

    def test_small_example(self):
        """Reproduces the worked example of the original code."""
        processor = self._preprocessor(20, 14)
        made = processor(
            ["place_of x"],
            [[" Rome ", "New York", "", ""]],
            [["Big Rome. City.", "New York's.", ""]],
        ).layout.features
        got = {name: x[0].numpy().tolist() for name, x in made.items()}
        pad = [0] * 3
        text = "rome new york place _ of x big rome . city . new york"
        expected = {
            # The text ends with "'", "s" and "."; only "." is in the
            # vocabulary.
            "long_token_ids": ids(text + " [UNK] [UNK] .") + pad,
            "long_token_type_ids": [4] * 3 + [3] * 4 + [1] * 10 + pad,
            "long_sentence_ids": (
                [0, 1, 1, 2, 3, 4, 5] + [7] * 3 + [8] * 2 + [10] * 5 + [-1] * 3
            ),
            "long_paragraph_ids": [-1] * 7 + [6] * 5 + [9] * 5 + [-1] * 3,
            "long_paragraph_breakpoints": [
                *[1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
                *pad,
            ],
            "l2g_linked_ids": (
                [0, 1, 1, -1, -1, -1, -1, -1, 0, -1, -1, -1, 1, 1] + [-1] * 6
            ),
            "l2g_linked_ids_2": [-1] * 20,
            "l2g_linked_ids_3": [-1] * 20,
            "global_token_ids": (
                ids("[unused3] [unused3]")
                + ids("[unused2]") * 4
                + ids("[unused4] [unused0] [unused0] [unused4] [unused0]")
                + pad
            ),
            "global_token_type_ids": [6] * 2 + [5] * 4 + [7, 0, 0, 7, 0] + pad,
            "global_paragraph_breakpoints": [
                *[1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1],
                *pad,
            ],
        }
        self.assertEqual(got, expected)

    def test_normalize_candidates(self):
        self.assertEqual(
            preprocessor.normalize_candidates(
                tf.constant([[" New York ", "ÉCOLE", "", b"\xffX", ""]])
            ).to_list(),
            [[b"new york", "école".encode(), b"", "\ufffdx".encode()]],
        )

    def _features(self, *inputs):
        return self._preprocessor().build(*inputs).layout.features

    def test_empty_candidates_keep_their_place(self):
        made = self._features(["x"], [["", " ", "rome"]], [["Rome"]])
        self.assertAllEqual(
            made["global_token_type_ids"][0][:5], [6] * 3 + [5, 7]
        )
        self.assertAllEqual(made["l2g_linked_ids"][0], [2, -1, 2] + [-1] * 7)

    def test_mentions_link_to_the_first_of_equal_candidates(self):
        """Every candidate keeps its own global token."""
        made = self._features(
            ["of", "of"],
            [["big", "Rome", "rome "], ["rome", "x", ""]],
            [["Rome"], ["Rome"]],
        )
        self.assertAllEqual(
            made["l2g_linked_ids"][:, :5],
            [[0, 1, 2, -1, 1], [0, 1, -1, 0, -1]],
        )


_RECORD = WikiHopRecord(
    id="a",
    query="country jan",
    supports=("Jan lives in Brno. He is a cook.", "Brno is in Poland."),
    candidates=("Austria", " poland"),
    answer="Poland",
    source=Source("d.json", 7),
)


class TextTest(tf.test.TestCase):
    def test_text_whose_padding_fills_the_memory(self):
        with (
            mock.patch.object(plain_documents, "_MAX_CELLS", 7),
            self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "at most 7. Send fewer"
            ),
        ):
            preprocessor.WikiHopPreprocessor.of_text(
                tf.constant(["q", "r"]),
                tf.constant(["a\nb\nc\nd", "e"]),
                tf.constant(["t", "u"]),
            )


class RecordsTest(RecordsTestCase):
    TASK = TASK
    WORDS = "austria poland country jan lives in brno . he is a cook"

    def test_stored_labels_and_counts(self):
        stored, counts = self.store(_RECORD)
        # The answer is compared without case and outer spaces.
        self.assertEqual([1.0], stored["label_id"])
        for name, texts in (
            ("example_id", [b"a"]),
            ("query", [b"country jan"]),
            ("candidates", [b"Austria", b" poland"]),
        ):
            self.assertEqual(texts, stored[name])
        self.assertEqual([b'"Poland"'], stored["gold"])
        self.assertEqual(
            counts,
            {
                # 2 tokens of the candidates, 2 of the query and 5 of each
                # sentence.
                "tokens": 19,
                "tokens_cut": 0,
                "tokens_stored": 19,
                "tokens_unknown": 0,
                "candidates": 2,
                "candidates_cut": 0,
                "documents": 2,
                "documents_cut": 0,
                "sentences": 3,
                "sentences_cut": 0,
                "records_cut": 0,
                # The documents mention "Poland" once.
                "links": 1,
                "candidates_without_mention": 1,
                "answers_without_mention": 0,
                "records_without_text_left": 0,
            },
        )

    def test_documented_multiple_choice_record(self):
        page = PAGE.read_text("utf-8")
        (text,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
        path = os.path.join(self.get_temp_dir(), "choice.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        (record,) = wikihop.FORMAT.read(path, "train")
        self.assertEqual((0, 4), (record.answer_index, len(record.candidates)))
        words = re.findall(r"\w+|[.?]", text.lower())
        writer = example_maker.of_task(
            TASK,
            TASK.preprocessing_config_class(128, 64),
            write_test_vocab(self.get_temp_dir(), " ".join(words)),
        )
        (written,) = encode_records(writer, [record], "train")
        (example,) = written.examples
        stored = stored_values(example)
        self.assertEqual([0.0], stored["label_id"])
        self.assertLen(stored["global_token_ids"], 16)
        types = stored["global_token_type_ids"]
        # Global tokens: four options, six of the question, and those of two
        # paragraphs, whose sentences have the type 0.
        self.assertEqual(
            {
                token_types.CANDIDATE_GLOBAL: 4,
                token_types.QUESTION_GLOBAL: 6,
                token_types.PARAGRAPH_GLOBAL: 2,
            },
            dict(collections.Counter(x for x in types if x)),
        )

    def test_counts_what_is_cut(self):
        """Checks counts; `layout/engine_test` checks the order of cuts."""
        for sizes, expected in (
            # Cuts the last sentence of the longer document.
            ({"long_length": 14}, {"tokens": 5, "sentences": 1}),
            # Cuts all sentences, but not the global tokens of documents.
            ({"long_length": 4}, {"tokens": 15, "sentences": 3}),
            # Keeps one document and one of its sentences.
            (
                {"global_length": 6},
                {"tokens": 10, "sentences": 2, "documents": 1},
            ),
        ):
            _, counts = self.store(_RECORD, "train", **sizes)
            cut = {
                name.removesuffix("_cut"): number
                for name, number in counts.items()
                if name.endswith("_cut") and number
            }
            self.assertEqual({**expected, "records": 1}, cut)
            self.assertEqual((19, 3), (counts["tokens"], counts["sentences"]))
            self.assertEqual(
                int(expected["sentences"] == 3),
                counts["records_without_text_left"],
            )

    def test_nested_candidates(self):
        """A token in more than three candidates is linked to three of them."""
        record = WikiHopRecord(
            "c",
            "country",
            ("new york city is a city .",),
            ("york", "new york city", "new york", "york city"),
            "york",
        )
        stored, counts = self.store(record, "train")
        links = [stored[f"l2g_linked_ids{x}"] for x in ("", "_2", "_3")]
        own = [0, 1, 1, 1, 2, 2, 3, 3, -1]
        self.assertEqual(
            links,
            [
                [*own, 2, 3, 3],
                [*[-1] * 9, 1, 2, 1],
                # "york" is in four candidates, of which three are kept.
                [*[-1] * 10, 1],
            ],
        )
        self.assertEqual(1, counts["candidates_without_mention"])

    def test_query_or_candidates_that_do_not_fit(self):
        source = Source("d.json", 3)
        many = WikiHopRecord(
            *("b", "country", ("jan",), ("austria",) * 50, "austria"),
            source=source,
        )
        long = WikiHopRecord(
            *("b", "jan " * 99, ("jan",), ("brno",), "brno"), source=source
        )
        writer = self.writer(long_length=50, global_length=40)
        for record, message in (
            # The query takes one of the 40 tokens.
            (
                many,
                r"only 39 of 50 candidates .* 50 \(long\) and 40 \(global\)",
            ),
            (long, r"'query': only \d+ of 99 tokens fit"),
        ):
            # The error names the second record of the batch.
            with self.assertRaisesRegex(
                RecordError,
                rf"d.json, record 3 \(id 'b'\).*{message}.*`global_length`",
            ):
                encode_records(writer, [_RECORD, record], "train")


class RealRecordsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        with open(real_data_path("wikihop/train_22.json")) as file:
            self.records = json.load(file)[:8]

    def _inputs(self, records):
        return (
            tf.constant([r["query"] for r in records]),
            tf.ragged.constant(
                [r["candidates"] for r in records], tf.string, ragged_rank=1
            ),
            tf.ragged.constant(
                [r["supports"] for r in records], tf.string, ragged_rank=1
            ),
        )

    def _preprocessor(self, vocab="bert_uncased_vocab.txt"):
        return preprocessor.WikiHopPreprocessor(
            TASK.preprocessing_config_class(),
            tokenizers.make_tokenizer(real_data_path(f"vocab/{vocab}")),
        )

    @parameterized.parameters("gpt2.model", "bert_uncased_vocab.txt")
    def test_a_record_does_not_depend_on_its_batch(self, vocab):
        """A record's features do not depend on padding either."""
        processor = self._preprocessor(vocab)
        together = processor(*self._inputs(self.records)).layout.features
        self.assertCountEqual(
            together, preprocessor.WikiHopPreprocessor.SCHEMA.input_specs()
        )
        for i in (0, 4, 7):
            query, candidates, supports = self._inputs([self.records[i]])
            padded = processor(
                query,
                tf.pad(candidates.to_tensor(), [[0, 0], [0, 3]]),
                tf.pad(supports.to_tensor(), [[0, 0], [0, 2]]),
            ).layout.features
            for name, values in together.items():
                self.assertAllEqual(padded[name][0], values[i], name)

    def test_sentencepiece_special_ids_and_links(self):
        processor = self._preprocessor("gpt2.model")
        made = processor(*self._inputs(self.records[:3])).layout.features
        types = made["global_token_type_ids"].numpy()
        tokens = made["global_token_ids"].numpy()
        for kind, token in ((6, 42), (5, 41), (7, 43)):
            self.assertAllEqual(np.unique(tokens[types == kind]), [token])
        # Record 0 mentions candidates in upper and lower case.
        linked = made["l2g_linked_ids"].numpy()
        ids_ = made["long_token_ids"].numpy()[0, linked[0] == 1]
        pieces = processor.tokenizer.id_to_token(ids_).numpy().tolist()
        self.assertIn("▁Olympic".encode(), pieces)
        self.assertIn("▁ol".encode(), pieces)
        # Links include tokens of documents, not only the candidates' own.
        in_documents = made["long_token_type_ids"] == 1
        self.assertAllGreater(np.sum((linked >= 0) & in_documents, axis=1), 5)


if __name__ == "__main__":
    tf.test.main()
