"""Tests of labels, on hand-made and on real records."""

import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph
from etcmodel.pipeline.preprocessor import RecordView
from etcmodel.pipeline.preprocessor import on_host
from etcmodel.tasks.hotpotqa import labels
from etcmodel.tasks.hotpotqa.task import TASK
from testing.helpers import real_data_path

_CONTEXT = (
    Paragraph("Jan", ("Jan was born in Brno.", " He paints.")),
    Paragraph("Brno", ("Brno is a city.", "", " Brno is in \u00d6tscher.")),
)


def _record(answer, facts, context=_CONTEXT):
    return HotpotQARecord(
        id="a",
        question="q",
        context=context,
        answer=answer,
        supporting_facts=tuple(facts),
    )


def _lay_out(context, cut=(), padding=2):
    """Lays out a CLS, a question of two tokens, and the context.

    Each word or punctuation mark is a token; units in `cut`, pairs of paragraph
    and unit (0 is the title), are left out. Returns the last three arguments of
    `make_labels`.
    """
    question = [(0, 0, 0, -1), (1, 0, 0, 0), (1, 0, 0, 1)]
    long_sources, global_sources = [(0, 0, 0, 0), *question[1:]], question
    starts, ends = [-1] * 3, [-1] * 3
    for group, paragraph in enumerate(context):
        global_sources.append((2, group, -1, -1))
        for unit, text in enumerate((paragraph.title, *paragraph.sentences)):
            if (group, unit) in cut:
                continue
            global_sources.append((2, group, unit, -1))
            for index, word in enumerate(re.finditer(r"\w+|[^\w\s]", text)):
                long_sources.append((2, group, unit, index))
                starts.append(len(text[: word.start()].encode()))
                ends.append(len(text[: word.end()].encode()))
    pad = [(-1, -1, -1, -1)] * padding
    return (
        np.array(long_sources + pad),
        np.array(global_sources + pad),
        {
            "long_starts": np.array(starts + [-1] * padding),
            "long_ends": np.array(ends + [-1] * padding),
            "long_word_cuts": np.zeros([len(ends) + padding], np.int32),
        },
    )


def _labels(answer, facts, context=_CONTEXT, cut=()):
    return labels.make_labels(
        _record(answer, facts, context), 2, *_lay_out(context, cut)
    )


class MakeLabelsTest(tf.test.TestCase, parameterized.TestCase):
    """Uses the following long tokens and two padding tokens.

    0 CLS, 1 2 question,
    3 Jan | 4 Jan 5 was 6 born 7 in 8 Brno 9 . | 10 He 11 paints 12 .
    13 Brno | 14 Brno 15 is 16 a 17 city 18 . | | 19 Brno 20 is 21 in
    22 Ötscher 23 .
    """

    def test_labels_of_global_tokens(self):
        got = _labels("paints", [("Jan", 1), ("Brno", 0)])
        self.assertEqual(
            got.supporting_facts,
            # CLS and question; a paragraph, its title and its sentences, ...;
            # padding.
            [-1, -1, -1, 1, 1, 0, 1, 1, 1, 1, 0, 0, -1, -1],
        )
        self.assertEqual(got.kept_facts, 2)
        self.assertEqual(got.answer_type, 0)
        self.assertEqual((got.begins, got.ends), ([11], [11]))
        self.assertEqual(got.found, 1)
        self.assertTrue(got.can_be_learned)

    @parameterized.parameters(
        # Labels occurrences only in facts, and in the titles of their
        # paragraphs.
        ("Brno", [("Brno", 0)], [13, 14], [13, 14]),
        ("Brno", [("Brno", 2), ("Jan", 0)], [8, 13, 19], [8, 13, 19]),
        ("born in Brno", [("Jan", 0)], [6], [8]),
        ("in \u00d6tscher.", [("Brno", 2)], [21], [23]),
        # For a part of a word, labels all tokens that overlap it.
        ("paint", [("Jan", 1)], [11], [11]),
        (".", [("Jan", 1)], [12], [12]),
        ("e pain", [("Jan", 1)], [10], [11]),
        # The record lists the same fact twice.
        ("paints", [("Jan", 1), ("Jan", 1)], [11], [11]),
    )
    def test_answers(self, answer, facts, begins, ends):
        got = _labels(answer, facts)
        self.assertEqual((got.begins, got.ends), (begins, ends))
        self.assertEqual(got.found, len(begins))
        self.assertEqual(got.kept_facts, len(set(facts)))

    def test_answer_inside_a_word(self):
        """Tokens 7 to 9 are one word."""
        laid_out = _lay_out(_CONTEXT)
        laid_out[-1]["long_word_cuts"][7:10] = [2, 3, 1]
        for answer, expected in (("in", 7), ("in Brno", 7), ("born", 6)):
            got = labels.make_labels(
                _record(answer, [("Jan", 0)]), 2, *laid_out
            )
            last = 6 if answer == "born" else 9
            self.assertEqual((got.begins, got.ends), ([expected], [last]))
            self.assertEqual(int(answer != "born"), got.num_inexact)

    def test_spans_with_more_text_than_the_answer(self):
        context = (Paragraph("A", ("South Koreans.", "South Korea")),)
        both = [("A", 0), ("A", 1)]
        made = _labels("South Korea", both, context)
        # The second sentence has exactly the answer.
        self.assertEqual((1, 0), (len(made.begins), made.num_inexact))
        made = _labels("South Korea", both[:1], context)
        self.assertEqual((1, 1), (len(made.begins), made.num_inexact))

    def test_answer_across_sentences_is_not_found(self):
        got = _labels("Brno. He", [("Jan", 0), ("Jan", 1)])
        self.assertEqual(got.found, 0)
        self.assertFalse(got.can_be_learned)

    @parameterized.parameters(
        ("yes", 1), ("no", 2), ("Yes", 1), (" no\n", 2), ("none", 0)
    )
    def test_answer_types(self, answer, expected):
        # "yes" and "no" in the text are not labelled.
        context = (Paragraph("yes no", ("yes no none Yes",)),)
        got = _labels(answer, [("yes no", 0)], context)
        self.assertEqual(got.answer_type, expected)
        self.assertEqual(got.found, int(expected == 0))
        self.assertEqual(got.begins, [] if expected else [7])
        self.assertEqual(got.ends, got.begins)
        self.assertTrue(got.can_be_learned)

    def test_facts_that_are_not_in_the_context(self):
        got = _labels("paints", [("Jan", 1), ("Jan", 2), ("Vienna", 0)])
        self.assertEqual(
            got.supporting_facts,
            [-1, -1, -1, 1, 1, 0, 1, 0, 0, 0, 0, 0, -1, -1],
        )
        self.assertEqual(got.kept_facts, 1)
        # The title of the missing fact's paragraph is not searched either.
        got = _labels("Brno", [("Brno", 3)])
        self.assertEqual(got.supporting_facts, [-1] * 3 + [0] * 9 + [-1] * 2)
        self.assertEqual((got.kept_facts, got.found), (0, 0))
        self.assertFalse(got.can_be_learned)
        # The answers yes and no cannot be learned without facts either.
        self.assertFalse(_labels("yes", [("Brno", 3)]).can_be_learned)
        self.assertFalse(_labels("yes", []).can_be_learned)

    def test_paragraphs_of_the_same_title(self):
        context = (
            Paragraph("Jan", ("He paints.",)),
            Paragraph("Jan", ("He paints.", "He sings.")),
        )
        # 3 Jan | 4 He 5 paints 6 . | 7 Jan | 8 He 9 paints 10 . | 11 He ...
        got = _labels("paints", [("Jan", 0)], context)
        self.assertEqual(got.begins, [5])
        self.assertEqual(
            got.supporting_facts, [-1] * 3 + [1, 1, 1, 0, 0, 0, 0, -1, -1]
        )
        # Only the second paragraph has two sentences.
        got = _labels("sings", [("Jan", 1)], context)
        self.assertEqual(got.begins, [12])
        self.assertEqual(
            got.supporting_facts, [-1] * 3 + [0, 0, 0, 1, 1, 0, 1, -1, -1]
        )

    def test_cut_units(self):
        facts = [("Jan", 0), ("Brno", 2)]
        # Cuts the sentence "Jan was born in Brno.".
        got = _labels("Brno", facts, cut=[(0, 1)])
        self.assertEqual(
            got.supporting_facts, [-1] * 3 + [1, 1, 0, 1, 1, 0, 0, 1, -1, -1]
        )
        self.assertEqual((got.found, got.kept_facts), (3, 1))
        # The cut sentence has six tokens.
        self.assertEqual((got.begins, got.ends), ([7, 13], [7, 13]))
        self.assertTrue(got.can_be_learned)
        # All answers are cut.
        got = _labels("born", facts, cut=[(0, 1)])
        self.assertEqual((got.found, got.begins, got.ends), (1, [], []))
        self.assertFalse(got.can_be_learned)
        # All supporting sentences are cut; the titles of their paragraphs are
        # not.
        got = _labels("Brno", facts, cut=[(0, 1), (1, 3)])
        self.assertEqual((got.found, got.kept_facts), (3, 0))
        self.assertEqual(got.begins, [7])
        self.assertTrue(got.can_be_learned)


class RealRecordsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("bert_uncased_vocab.txt", set()),
        # Adjacent punctuation marks are one piece.
        (
            "gpt2.model",
            {("International Watch Co.,", "International Watch Co.")},
        ),
    )
    def test_labelled_tokens_spell_the_answer(self, vocab, expected):
        path = real_data_path("hotpotqa/dev_95.json")
        records = list(TASK.dataset.FORMAT.read(path, "train"))
        preprocessor = TASK.make_preprocessor(
            TASK.make_preprocessing_config({}), real_data_path(f"vocab/{vocab}")
        )
        made = on_host(preprocessor(**preprocessor.raw_batch(records)))
        spans, unlike = 0, set()
        for i, record in enumerate(records):
            view = RecordView(made, i)
            places = {
                name: view.features[name][0]
                for name in ("long_starts", "long_ends", "long_word_cuts")
            }
            sources = view.long_sources[0]
            got = labels.make_labels(
                record, 2, sources, view.global_sources[0], places
            )
            self.assertEqual(
                got.answer_type, {"yes": 1, "no": 2}.get(record.answer, 0)
            )
            # The paper's lengths cut none of these records.
            self.assertEqual(got.kept_facts, len(record.fact_positions))
            self.assertLen(got.begins, got.found)
            self.assertTrue(got.can_be_learned)
            for begin, end in zip(got.begins, got.ends, strict=True):
                spans += 1
                _, group, unit, _ = sources[begin]
                self.assertAllEqual(sources[begin, :3], sources[end, :3])
                paragraph = record.context[group]
                text = (paragraph.title, *paragraph.sentences)[unit]
                if unit:
                    self.assertIn((group, unit - 1), record.fact_positions)
                start = places["long_starts"][begin]
                text = text.encode()[start : places["long_ends"][end]]
                # SentencePiece's tokens include the space before them.
                text = text.decode().removeprefix(" ")
                if text.lower() != record.answer.lower():
                    unlike.add((text, record.answer))
        self.assertEqual((137, expected), (spans, unlike))


if __name__ == "__main__":
    tf.test.main()
