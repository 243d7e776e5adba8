"""Tests of the preprocessor: features, stored values, labels and counts."""

import json
import tempfile
from unittest import mock

import msgspec
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.feature_utils.text import plain_documents
from etcmodel.feature_utils.text import tokenizers
from etcmodel.tasks.hotpotqa.preprocessor import HotpotQAPreprocessor
from etcmodel.tasks.hotpotqa.task import TASK
from etcmodel.tasks.hotpotqa.task import HotpotQAPreprocessingConfig
from testing.helpers import write_vocab
from testing.records import RecordsTestCase

# A vocabulary whose words name their ids: "w51" has the id 51.
_VOCAB = [f"w{i}" for i in range(110)]
_VOCAB[:6] = ["[PAD]", *(f"[unused{i}]" for i in range(5))]
_VOCAB[100:104] = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_VOCAB[104:107] = ["e", "##t", "##e"]
_X = -1


def ragged_inputs(records):
    """Returns ragged inputs of (question, [(title, sentences)]) pairs."""
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
    """Returns dense inputs, with additional padding of the given sizes."""
    question, titles, texts = ragged_inputs(records)
    titles, texts = titles.to_tensor(), texts.to_tensor()
    return (
        question,
        tf.pad(titles, [[0, 0], [0, paragraphs]]),
        tf.pad(texts, [[0, 0], [0, paragraphs], [0, sentences]]),
    )


def plain(encoded, index=0):
    """Returns all values of one record of a batch, as lists."""
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
            cls.tokenizer = tokenizers.WordpieceTokenizer(
                write_vocab(folder, _VOCAB)
            )

    def _preprocessor(self, *sizes):
        return HotpotQAPreprocessor(
            HotpotQAPreprocessingConfig(*sizes), self.tokenizer
        )

    def _check(self, record, sizes, **expected):
        """Compares values of one record; `context__tokens` means a count."""
        got = plain(self._preprocessor(*sizes)(*ragged_inputs([record])))
        for name, value in expected.items():
            self.assertEqual(value, got[name.replace("__", ".")], name)

    def test_worked_example(self):
        """Reproduces the original code's example, except global token types."""
        pad = [0] * 4
        self._check(
            _EXAMPLE,
            (14, 13),
            long_token_ids=[101, 51, 52, 61, 71, 72, 73, 81, 82, 91] + pad,
            long_sentence_ids=[_X, 1, 2, 4, 5, 5, 6, 8, 8, 9] + [_X] * 4,
            long_paragraph_ids=[_X, _X, _X, 3, 3, 3, 3, 7, 7, 7] + [_X] * 4,
            long_paragraph_breakpoints=[1, 0, 1, 0, 0, 0, 1, 0, 0, 1] + pad,
            long_token_type_ids=[1, 3, 3, 2, 1, 1, 1, 2, 2, 1] + pad,
            l2g_linked_ids=[_X] * 14,
            global_token_ids=[101, 3, 3, 5, 1, 1, 1, 5, 1, 1, 0, 0, 0],
            global_paragraph_breakpoints=(
                [1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0]
            ),
            global_token_type_ids=[8, 5, 5, 7, 0, 0, 0, 7, 0, 0, 0, 0, 0],
            global_units=[_X] * 4 + [0, 1, 2, _X, 3, 4] + [_X] * 3,
            long_starts=[_X, _X, _X, 0, 0, 4, 1, 0, 4, 0] + [_X] * 4,
            long_ends=[_X, _X, _X, 3, 3, 7, 4, 3, 7, 3] + [_X] * 4,
            units=[b"w61", b"w71 w72", b" w73", b"w81 w82", b"w91"],
            paragraph_sizes=[3, 2],
            cls__tokens=1,
            question__kept_tokens=2,
            context__tokens=7,
            context__kept_tokens=7,
            context__kept_units=5,
            context__kept_groups=2,
        )

    def test_skipped_sentence_keeps_the_places_of_others(self):
        self._check(
            (
                "w51 w52",
                [
                    ("w61", ["w71 w72 w71 w72 w71", "w73"]),
                    ("w81 w82", ["w91"]),
                ],
            ),
            (8, 13),
            long_token_ids=[101, 51, 52, 61, 73, 81, 82, 91],
            long_sentence_ids=[_X, 1, 2, 4, 5, 7, 7, 8],
            long_paragraph_ids=[_X, _X, _X, 3, 3, 6, 6, 6],
            global_token_ids=[101, 3, 3, 5, 1, 1, 5, 1, 1, 0, 0, 0, 0],
            global_units=[_X] * 4 + [0, 2, _X, 3, 4] + [_X] * 4,
            long_starts=[_X, _X, _X, 0, 0, 0, 4, 0],
            units=[b"w61", b"w71 w72 w71 w72 w71", b"w73", b"w81 w82", b"w91"],
            paragraph_sizes=[3, 2],
            context__tokens=10,
            context__kept_tokens=5,
            context__kept_units=4,
            context__kept_groups=2,
        )

    def test_sentences_of_a_title_that_does_not_fit(self):
        self._check(
            ("w51", [("w61 " * 9, ["w71", "w72 " * 9, "w73"])]),
            (5, 9),
            long_token_ids=[101, 51, 71, 73, 0],
            # Only titles have the token type of titles.
            long_token_type_ids=[1, 3, 1, 1, 0],
            global_units=[_X] * 3 + [1, 3] + [_X] * 4,
        )

    def test_short_global_input(self):
        self._check(
            _EXAMPLE,
            (14, 8),
            long_token_ids=[101, 51, 52, 61, 71, 72, 73] + [0] * 7,
            global_token_ids=[101, 3, 3, 5, 1, 1, 1, 5],
            global_units=[_X] * 4 + [0, 1, 2, _X],
            context__kept_groups=2,
            context__kept_units=3,
        )

    def test_offsets_are_bytes_of_the_text(self):
        """ "é" has two bytes, and is "e" in the vocabulary."""
        self._check(
            ("w51", [("é", ["été w71\u3000w72", "xyz é"])]),
            (12, 9),
            long_token_ids=(
                [101, 51, 104, 104, 105, 106, 71, 72, 100, 104, 0, 0]
            ),
            long_starts=[_X, _X, 0, 0, 2, 3, 6, 12, 0, 4, _X, _X],
            long_ends=[_X, _X, 2, 2, 3, 5, 9, 15, 3, 6, _X, _X],
            # "é ##t ##é" is one word.
            long_word_cuts=[0, 0, 0, 2, 3, 1, 0, 0, 0, 0, 0, 0],
        )

    _ODD = (
        # Empty titles and sentences keep their positions.
        ("w51", [("", ["w71"]), ("", []), ("w62", ["", "w72", ""])]),
        _EXAMPLE,
        ("", []),
        ("w53", [("w63", []), ("w64", ["w74 " * 9, "w75", "w76", "w77"])]),
    )

    def test_empty_texts_keep_their_places(self):
        self._check(
            self._ODD[0],
            (9, 13),
            paragraph_sizes=[2, 0, 3],
            units=[b"", b"w71", b"w62", b"", b"w72"],
            long_token_ids=[101, 51, 71, 62, 72, 0, 0, 0, 0],
            long_paragraph_ids=[_X, _X, 2, 6, 6] + [_X] * 4,
            long_sentence_ids=[_X, 1, 4, 7, 9] + [_X] * 4,
            global_units=[_X] * 3 + [0, 1, _X, _X, 2, 3, 4] + [_X] * 3,
        )

    @parameterized.parameters((9, 10), (None, None))
    def test_padded_ragged_and_single_inputs_give_the_same(self, *sizes):
        preprocessor = self._preprocessor(*sizes)
        expected = preprocessor(*ragged_inputs(self._ODD))
        self.assertAllEqual([3, 4], expected.request["shape"])
        for padding in ((0, 0), (3, 2)):
            got = preprocessor(*dense_inputs(self._ODD, *padding))
            self.assertAllEqual(np.add([3, 4], padding), got.request["shape"])
            for i in range(len(self._ODD)):
                self.assertEqual(plain(got, i), plain(expected, i))


_RECORD = HotpotQARecord(
    id="a",
    question="In which region was Jan born?",
    context=(
        Paragraph("Jan", ("Jan was born in Brno.", " He paints.")),
        Paragraph("Brno", ("Brno is in Moravia.", " It is big.")),
    ),
    answer="Moravia",
    supporting_facts=(("Jan", 0), ("Brno", 0)),
)
# Tokens of the CLS, the question, and two paragraphs of a title and two
# sentences.
_TOKENS = 1 + 7 + (1 + 6 + 3) + (1 + 5 + 4)


def _change(**changes):
    return msgspec.structs.replace(_RECORD, **changes)


class RecordsTest(RecordsTestCase):
    TASK = TASK
    WORDS = "in which region was jan born ? brno . he paints is moravia it big"
    SIZES = {"long_length": 40, "global_length": 20}

    def _check(self, values, **expected):
        """Compares some of the values or counts."""
        self.assertEqual({**values, **expected}, values)

    def test_stored_values_and_counts(self):
        stored, counts = self.store(_RECORD)
        self._check(
            stored,
            example_id=[b"a"],
            question=[_RECORD.question.encode()],
            units=[
                *[b"Jan", b"Jan was born in Brno.", b" He paints."],
                *[b"Brno", b"Brno is in Moravia.", b" It is big."],
            ],
            titles=[b"Jan", b"Brno"],
            paragraph_sizes=[3, 3],
            # Global tokens: the CLS and 7 of the question; a paragraph, its
            # title, ...
            global_units=[_X] * 8 + [_X, 0, 1, 2, _X, 3, 4, 5],
            supporting_facts=[_X] * 8 + [1, 1, 1, 0, 1, 1, 1, 0],
            answer_type=[0],
            # 8 title, 9-14, 15-17; 18 title, 19 brno 20 is 21 in 22 moravia.
            answer_begins=[22],
            answer_ends=[22],
        )
        self.assertEqual(
            ["Moravia", [["Jan", 0], ["Brno", 0]]],
            json.loads(stored["gold"][0]),
        )
        self.assertEqual(stored["long_starts"][22], len("Brno is in "))
        self.assertEqual(stored["long_ends"][22], len("Brno is in Moravia"))
        self.assertLen(stored["global_token_ids"], 16)
        expected = {
            "tokens": _TOKENS,
            "tokens_stored": _TOKENS,
            "paragraphs": 2,
            "titles_and_sentences": 6,
            "supporting_facts": 2,
        }
        self.assertEqual({**dict.fromkeys(counts, 0), **expected}, counts)

    def test_training_stores_nothing_for_decoding(self):
        train, train_counts = self.store(_RECORD, "train")
        dev, dev_counts = self.store(_RECORD)
        self.assertEqual([1], train.pop("for_training"))
        for_answers = {
            *("gold", "question", "units", "paragraph_sizes", "titles"),
            *("global_units", "long_starts", "long_ends", "long_word_cuts"),
        }
        self.assertEqual(for_answers, {*dev} - {*train})
        self.assertEqual({**dev, **train}, dev)
        self.assertEqual(dev_counts, train_counts)

    @parameterized.parameters(
        {"answer": "Bohemia"},
        # The answer occurs, but not in a supporting fact.
        {"answer": "big"},
        {"supporting_facts": (("Jan", 0),)},
        {"answer": "\ud83d"},
    )
    def test_answer_that_is_not_in_the_text(self, **changes):
        record = _change(**changes)
        stored, counts = self.store(record, "train")
        self.assertIsNone(stored)
        self._check(counts, answers_not_in_text=1, answers_cut=0)
        stored, _ = self.store(record)
        self._check(stored, answer_begins=[], answer_type=[0])

    def test_facts_that_are_not_in_the_context(self):
        facts = (("Brno", 0), ("Brno", 2), ("Vienna", 0))
        stored, counts = self.store(_change(supporting_facts=facts))
        self._check(
            counts, supporting_facts=1, supporting_facts_not_in_context=2
        )
        # The stored gold facts are complete, so that the score counts them as
        # missed.
        self.assertEqual([*map(list, facts)], json.loads(stored["gold"][0])[1])
        record = _change(supporting_facts=(("Brno", 2),), answer="yes")
        stored, counts = self.store(record, "train")
        self.assertIsNone(stored)
        self._check(counts, answers_yes_or_no=1, answers_not_in_text=0)

    def test_counts_what_is_cut(self):
        # The second paragraph has room for 5 tokens: its title and its last
        # sentence.
        stored, counts = self.store(_RECORD, long_length=23)
        self._check(
            counts,
            tokens=_TOKENS,
            tokens_cut=5,
            titles_and_sentences_cut=1,
            paragraphs_cut=0,
            question_tokens_cut=0,
            records_cut=1,
            supporting_facts=2,
            supporting_facts_cut=1,
            answers_not_in_text=0,
            answers_cut=1,
        )
        self._check(
            stored,
            global_units=[_X] * 8 + [_X, 0, 1, 2, _X, 3, 5],
            answer_begins=[],
        )
        self.assertIsNone(self.store(_RECORD, "train", long_length=23)[0])
        # Not all occurrences of the answer are cut.
        stored, counts = self.store(
            _change(answer="Brno"), "train", long_length=23
        )
        self.assertEqual(counts["answers_cut"], 0)
        self.assertEqual(stored["answer_begins"], [13, 18])
        # The global input has room for the second paragraph's own token, or is
        # one token too short for it.
        for global_length, paragraphs_cut in ((13, 0), (12, 1)):
            _, counts = self.store(_RECORD, global_length=global_length)
            self._check(
                counts,
                paragraphs_cut=paragraphs_cut,
                titles_and_sentences_cut=3,
                tokens_cut=10,
            )
        # This length also cuts the question.
        stored, counts = self.store(_RECORD, long_length=5)
        self._check(counts, question_tokens_cut=3, tokens_cut=23)
        self._check(stored, long_starts=[], long_ends=[])

    def test_unusual_characters(self):
        title = "x\x01" * 150
        odd = _change(
            id="\u00e9\ud83d",
            question="\ud800 which \x00\u200e\ufeff?",
            context=(
                Paragraph("\udfff", ("\ud83d Moravia", " \r\n", "\U0001f600")),
                Paragraph("", ("", "\u0301", "e\u0301", "\u00bd")),
                Paragraph(title, ("\x07Moravia\x07",)),
            ),
            supporting_facts=(("\udfff", 0), (title, 0)),
        )
        stored, _ = self.store(odd)
        self.assertEqual(stored["example_id"], ["\u00e9?".encode()])
        units = stored["units"]
        self.assertEqual(
            units,
            [
                *[b"?", b"? Moravia", b" \r\n", "\U0001f600".encode()],
                *[b"", b"", "\u0301".encode(), "e\u0301".encode()],
                *["\u00bd".encode(), b"x " * 150, b" Moravia "],
            ],
        )
        self.assertLen(stored["answer_begins"], 2)
        for begin in stored["answer_begins"]:
            start, end = (
                stored[name][begin] for name in ("long_starts", "long_ends")
            )
            self.assertIn(b"Moravia", [text[start:end] for text in units])
        # Gold facts have the titles as written in the file.
        _, facts = json.loads(stored["gold"][0])
        self.assertEqual([["?", 0], [title, 0]], facts)
        self.assertEqual([b"?", b"", title.encode()], stored["titles"])

    def test_text_whose_padding_fills_the_memory(self):
        with (
            mock.patch.object(plain_documents, "_MAX_CELLS", 7),
            self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "at most 7. Send fewer"
            ),
        ):
            HotpotQAPreprocessor.of_text(
                tf.constant(["q"]),
                tf.constant(["He sits. He runs. He eats.\n\nD.\n\nE."]),
            )


if __name__ == "__main__":
    tf.test.main()
