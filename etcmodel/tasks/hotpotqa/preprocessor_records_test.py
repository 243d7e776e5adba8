"""Tests of the preprocessor: records, what is learned and counted of them."""

import json
import tempfile

import msgspec
import numpy as np
import tensorflow as tf

from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.inspection.pictures import inspect
from etcmodel.models import EtcConfig
from etcmodel.pipeline import example_maker
from etcmodel.readers.records import Source
from etcmodel.tasks.hotpotqa.preprocessor import HotpotQAPreprocessor
from etcmodel.tasks.hotpotqa.task import TASK
from testing.tasks import encode_records
from testing.tasks import without_tracing
from testing.tasks import write_test_vocab

_RECORD = HotpotQARecord(
    id="a",
    question="In which region was Jan born?",
    context=(
        Paragraph("Jan", ("Jan was born in Brno.", " He paints.")),
        Paragraph("Brno", ("Brno is in Moravia.", " It is big.")),
    ),
    answer="Moravia",
    supporting_facts=(("Jan", 0), ("Brno", 0)),
    type="bridge",
    level="hard",
    source=Source("d.json", 7),
)
# 1 CLS, 7 of the question; titles of 1 token, sentences of 6, 3, 5 and 4.
_TOKENS = 1 + 7 + (1 + 6 + 3) + (1 + 5 + 4)


def _change(**changes):
    return msgspec.structs.replace(_RECORD, **changes)


def _values(serialized):
    """What a stored example holds."""
    example = tf.train.Example.FromString(serialized)
    return {
        name: list(getattr(x, x.WhichOneof("kind")).value)
        if x.WhichOneof("kind")
        else []
        for name, x in example.features.feature.items()
    }


class RecordsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vocab_file = write_test_vocab(
            cls.enterClassContext(tempfile.TemporaryDirectory()),
            "in which region was jan born ? brno . he paints is moravia it big",
        )
        cls.writers = {}
        # Many sizes and few records: tracing would take most of the time.
        cls.enterClassContext(without_tracing())

    def _writer(self, long_length=40, global_length=20):
        """A writer; one of each size is enough."""
        key = long_length, global_length
        if key not in self.writers:
            self.writers[key] = example_maker.of_task(
                TASK, TASK.preprocessing_config_class(*key), self.vocab_file
            )
        return self.writers[key]

    def _write(self, record, split="train", **sizes):
        """Stored values (None if nothing is stored) and counts of a record."""
        ((stored, counts),) = encode_records(
            self._writer(**sizes), [record], split
        )
        self.assertLessEqual(len(stored), 1)
        return (_values(stored[0]) if stored else None), counts

    def _check(self, some, **expected):
        """Compares some of the values or counts."""
        self.assertEqual({**some, **expected}, some)

    def test_raw_text(self):
        """Padded; empty sentences and records without any keep their shape."""
        other = _change(
            question="q\u00e9",
            context=(
                Paragraph("t", ()),
                Paragraph("", ("x", "", "y")),
                Paragraph("u", ("z",)),
            ),
        )
        inputs = HotpotQAPreprocessor.raw_batch([_RECORD, other])
        expected = {
            "question": [_RECORD.question.encode(), "q\u00e9".encode()],
            "titles": [[b"Jan", b"Brno", b""], [b"t", b"", b"u"]],
            "sentences": [
                [
                    [b"Jan was born in Brno.", b" He paints.", b""],
                    [b"Brno is in Moravia.", b" It is big.", b""],
                    [b"", b"", b""],
                ],
                [[b"", b"", b""], [b"x", b"", b"y"], [b"z", b"", b""]],
            ],
        }
        self.assertEqual(
            expected, {name: x.tolist() for name, x in inputs.items()}
        )
        bare = _change(context=(Paragraph("t", ()), Paragraph("u", ())))
        inputs = HotpotQAPreprocessor.raw_batch([bare])
        self.assertEqual([[b"t", b"u"]], inputs["titles"].tolist())
        self.assertEqual((1, 2, 0), inputs["sentences"].shape)

    def test_what_is_stored(self):
        stored, counts = self._write(_RECORD, "dev")
        self._check(
            stored,
            example_id=[b"a"],
            question=[_RECORD.question.encode()],
            units=[
                *[b"Jan", b"Jan was born in Brno.", b" He paints."],
                *[b"Brno", b"Brno is in Moravia.", b" It is big."],
            ],
            paragraph_sizes=[3, 3],
            # The CLS and 7 tokens of the question; a paragraph, its title, ...
            global_units=[-1] * 8 + [-1, 0, 1, 2, -1, 3, 4, 5],
            supporting_facts=[-1] * 8 + [1, 1, 1, 0, 1, 1, 1, 0],
            answer_type=[0],
            # 8 title, 9-14, 15-17; 18 title, 19 brno 20 is 21 in 22 moravia.
            answer_begins=[22],
            answer_ends=[22],
        )
        # The answer and its facts, and the titles that facts are named by.
        self.assertEqual(
            ["Moravia", [["Jan", 0], ["Brno", 0]]],
            json.loads(stored["gold"][0]),
        )
        self.assertEqual([b"Jan", b"Brno"], stored["titles"])
        self.assertEqual(stored["long_starts"][22], len("Brno is in "))
        self.assertEqual(stored["long_ends"][22], len("Brno is in Moravia"))
        self.assertLen(stored["long_token_ids"], _TOKENS)
        self.assertLen(stored["global_token_ids"], 16)
        self.assertEqual(
            counts,
            {
                "tokens": _TOKENS,
                "tokens_cut": 0,
                "tokens_stored": _TOKENS,
                "tokens_unknown": 0,
                "question_tokens_cut": 0,
                "paragraphs": 2,
                "paragraphs_cut": 0,
                "titles_and_sentences": 6,
                "titles_and_sentences_cut": 0,
                "records_cut": 0,
                "supporting_facts": 2,
                "supporting_facts_cut": 0,
                "supporting_facts_not_in_context": 0,
                "answers_not_in_text": 0,
                "answers_with_more_text": 0,
                "answers_cut": 0,
                "answers_yes_or_no": 0,
            },
        )

    def test_yes_or_no(self):
        for answer, number in (("yes", 1), ("no", 2)):
            stored, counts = self._write(_change(answer=answer))
            self._check(stored, answer_type=[number], answer_begins=[])
            self._check(counts, answers_yes_or_no=1, answers_not_in_text=0)

    def test_splits(self):
        """The same input; for prediction nothing is told of the answer."""
        train, train_counts = self._write(_RECORD, "train")
        dev, dev_counts = self._write(_RECORD, "dev")
        # What only answers need, training does not read.
        self.assertEqual([1], train.pop("for_training"))
        for_answers = {
            *("gold", "question", "units", "paragraph_sizes", "titles"),
            *("global_units", "long_starts", "long_ends", "long_word_cuts"),
        }
        self.assertEqual(for_answers, {*dev} - {*train})
        self.assertEqual({**dev, **train}, dev)
        self.assertEqual(dev_counts, train_counts)
        told, counts = self._write(_RECORD, "predict")
        self.assertEqual(
            set(dev) - set(told),
            {
                "gold",
                "supporting_facts",
                "answer_type",
                "answer_begins",
                "answer_ends",
            },
        )
        self.assertEqual({**dev, **told}, dev)
        self.assertNotIn("supporting_facts", counts)
        self.assertEqual(counts["tokens"], _TOKENS)
        unknown, _ = self._write(
            _change(answer=None, supporting_facts=None), "predict"
        )
        self.assertEqual(unknown, told)

    def test_answer_that_is_not_in_the_text(self):
        # It is in no supporting fact: one counts as little as the other.
        for record in (
            _change(answer="Bohemia"),
            _change(answer="big"),
            _change(supporting_facts=(("Jan", 0),)),
        ):
            stored, counts = self._write(record, "train")
            self.assertIsNone(stored)
            self._check(counts, answers_not_in_text=1, answers_cut=0)
            # It is evaluated all the same.
            stored, dev_counts = self._write(record, "dev")
            self._check(stored, answer_begins=[], answer_type=[0])
            self.assertEqual(
                dev_counts, {**counts, "tokens_stored": dev_counts["tokens"]}
            )

    def test_facts_that_are_not_in_the_context(self):
        facts = (("Brno", 0), ("Brno", 2), ("Vienna", 0))
        stored, counts = self._write(_change(supporting_facts=facts), "dev")
        self._check(
            counts,
            supporting_facts=1,
            supporting_facts_not_in_context=2,
            supporting_facts_cut=0,
        )
        # What the file tells is what predictions are compared with.
        _, told = json.loads(stored["gold"][0])
        self.assertEqual([["Brno", 0], ["Brno", 2], ["Vienna", 0]], told)
        # None is left.
        record = _change(supporting_facts=(("Brno", 2),), answer="yes")
        stored, counts = self._write(record)
        self.assertIsNone(stored)
        self._check(
            counts, supporting_facts=0, supporting_facts_not_in_context=1
        )
        stored, _ = self._write(record, "dev")
        self.assertNotIn(1, stored["supporting_facts"])

    def test_counts_what_is_cut(self):
        # Of the second paragraph there is room for 5 tokens: for the title and
        # for the last sentence, but not for the one before.
        stored, counts = self._write(_RECORD, "train", long_length=23)
        self.assertIsNone(stored)
        self._check(
            counts,
            tokens=_TOKENS,
            tokens_cut=5,
            titles_and_sentences=6,
            titles_and_sentences_cut=1,
            paragraphs=2,
            paragraphs_cut=0,
            question_tokens_cut=0,
            records_cut=1,
            supporting_facts=2,
            supporting_facts_cut=1,
            answers_not_in_text=0,
            answers_cut=1,
        )
        stored, _ = self._write(_RECORD, "dev", long_length=23)
        self._check(
            stored,
            global_units=[-1] * 8 + [-1, 0, 1, 2, -1, 3, 5],
            answer_begins=[],
        )
        # The answer is cut in one place only.
        stored, counts = self._write(
            _change(answer="Brno"), "train", long_length=23
        )
        self.assertEqual(counts["answers_cut"], 0)
        self.assertEqual(stored["answer_begins"], [13, 18])
        # With room for the other paragraph's token alone, and without.
        for global_length, paragraphs_cut in ((13, 0), (12, 1)):
            _, counts = self._write(_RECORD, "dev", global_length=global_length)
            self._check(
                counts,
                paragraphs_cut=paragraphs_cut,
                titles_and_sentences_cut=3,
                tokens_cut=10,
            )
        # Not even for the question.
        stored, counts = self._write(_RECORD, "dev", long_length=5)
        self._check(
            counts,
            question_tokens_cut=3,
            tokens_cut=23,
            records_cut=1,
            supporting_facts_cut=2,
        )
        self.assertLen(stored["long_token_ids"], 5)
        self._check(stored, long_starts=[], long_ends=[])
        stored, _ = self._write(_RECORD, "train", long_length=5)
        self.assertIsNone(stored)

    def test_odd_text(self):
        odd = _change(
            id="\u00e9\ud83d",
            question="\ud800 which \x00\u200e\ufeff?",
            context=(
                Paragraph("\udfff", ("\ud83d Moravia", " \r\n", "\U0001f600")),
                Paragraph("", ("", "\u0301", "e\u0301", "\u00bd")),
                Paragraph("x\x01" * 150, ("\x07Moravia\x07",)),
            ),
            supporting_facts=(("\udfff", 0), ("x\x01" * 150, 0)),
            answer="Moravia",
        )
        for split in ("dev", "predict"):
            stored, _ = self._write(odd, split)
            self.assertEqual(stored["example_id"], ["\u00e9?".encode()])
            self.assertEqual(
                stored["units"],
                [
                    *[b"?", b"? Moravia", b" \r\n", "\U0001f600".encode()],
                    *[b"", b"", "\u0301".encode(), "e\u0301".encode()],
                    *["\u00bd".encode(), b"x " * 150, b" Moravia "],
                ],
            )
        stored, _ = self._write(odd, "dev")
        self.assertLen(stored["answer_begins"], 2)
        units = stored["units"]
        for begin in stored["answer_begins"]:
            start, end = (
                stored[name][begin] for name in ("long_starts", "long_ends")
            )
            self.assertIn(b"Moravia", [text[start:end] for text in units])
        # A fact can be named, whatever becomes of its title in the text.
        _, facts = json.loads(stored["gold"][0])
        titles = [x.decode() for x in stored["titles"]]
        self.assertEqual([[titles[0], 0], [titles[2], 0]], facts)
        self.assertEqual(["?", "", "x\x01" * 150], titles)
        stored, counts = self._write(_change(answer="\ud83d"))
        self.assertIsNone(stored)
        self.assertEqual(counts["answers_not_in_text"], 1)

    def _inspect(self, record=_RECORD, **sizes):
        return inspect(
            self._writer(**sizes),
            record,
            EtcConfig.from_preset("tiny", use_hard_g2l_mask=True),
        )

    def test_inspects_a_record(self):
        inspection = self._inspect(long_length=23)
        question = "[CLS] in which region was jan born ?".split()
        self.assertEqual(
            inspection.long_labels,
            question
            + "jan jan was born in brno . he paints .".split()
            + "brno it is big .".split(),
        )
        self.assertEqual(
            inspection.global_labels,
            [
                *question,
                *["par 0", "title 0", "sent 0.0", "sent 0.1"],
                *["par 1", "title 1", "sent 1.1"],
            ],
        )
        self.assertEqual(
            {
                "record": "7 (id a)",
                "question": "In which region was Jan born?",
                "answer": "Moravia",
                "supporting facts": "Jan 0, Brno 0",
                "tokens": "28, of which 5 cut",
                "paragraphs": "2, of which 0 cut",
                "titles and sentences": "6, of which 1 cut",
                "long length": 23,
            },
            dict(inspection.summary),
        )
        inputs = inspection.side_inputs
        self.assertEqual([1, 23, 20], inputs.l2g_att_mask.shape)
        for index, expected in (
            # The CLS reads everything, "jan" only what is linked: itself.
            (0, range(23)),
            (5, [5]),
            # A paragraph's token reads it all; a sentence's the sentence.
            (8, range(8, 18)),
            (11, range(15, 18)),
        ):
            self.assertAllEqual(
                np.flatnonzero(inputs.g2l_att_mask[0, index].numpy()), expected
            )

    def test_inspects_a_record_without_answer(self):
        record = _change(answer=None, supporting_facts=None)
        summary = dict(self._inspect(record).summary)
        self.assertEqual("not told", summary["answer"])
        self.assertEqual("not told", summary["supporting facts"])


if __name__ == "__main__":
    tf.test.main()
