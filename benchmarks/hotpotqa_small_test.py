"""Tests of `hotpotqa_small`: its baselines."""

import collections
import unittest

import msgspec

from benchmarks import hotpotqa_small
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph

_RECORD = HotpotQARecord(
    id="a",
    question="Where does the cook Jan Novak live?",
    context=(
        Paragraph("Krakow", ("Krakow is a city.", " It has many cooks.")),
        Paragraph("Jan Novak", ("He is a cook.", " He lives in Krakow.")),
    ),
    answer="Krakow",
    supporting_facts=(("Jan Novak", 0), ("Jan Novak", 1)),
)
_YES = HotpotQARecord(
    id="b",
    question="Is Krakow a city?",
    context=(Paragraph("Krakow", ("Krakow is a city.",)),),
    answer="yes",
    supporting_facts=(("Krakow", 0),),
)


class HotpotQASmallTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(
            {"jan", "novák", "1st"},
            hotpotqa_small.words_of("The 1st Jan-Novák is it."),
        )

    def test_sentences_are_ranked_by_shared_words(self):
        # cook, jan, novak; jan and novak; nothing; nothing ("cooks").
        self.assertEqual(
            [("Jan Novak", 0), ("Jan Novak", 1), ("Krakow", 0), ("Krakow", 1)],
            hotpotqa_small.rank_sentences(_RECORD),
        )

    def test_baselines(self):
        rows = hotpotqa_small.measure_baselines([_RECORD, _RECORD], [_RECORD])
        overlap, constant = rows.values()
        self.assertIn("word overlap, 2 sentences", rows)
        self.assertEqual(1.0, overlap["sp_f1"])
        self.assertEqual(1.0, overlap["sp_em"])
        # "Jan Novak", which is wrong.
        self.assertEqual(0.0, overlap["f1"])
        self.assertEqual(1.0, constant["answer_type_accuracy"])
        self.assertEqual(0.0, constant["em"])
        # The most frequent word is a right answer here.
        rows = hotpotqa_small.measure_baselines([_YES], [_RECORD, _YES])
        _, constant = rows.values()
        self.assertEqual(0.5, constant["answer_type_accuracy"])
        self.assertEqual(0.5, constant["em"])
        self.assertEqual(0.0, constant["sp_f1"])

    def test_augments(self):
        # As many as wanted, with ids of their own; facts of real questions
        # stay, pseudo-questions ask for other sentences.
        sentences = ("Jan Novak was born in 1901 in the town of Brno.",)
        other = ("Brno is a city in the region of South Moravia.",)
        record = msgspec.structs.replace(
            _RECORD,
            context=(
                *_RECORD.context,
                Paragraph("Jan", sentences),
                Paragraph("Brno", other),
            ),
        )
        made = hotpotqa_small.augment([record, _YES], 2, 3, 10**6, 1)
        self.assertEqual(7, len(made))
        self.assertEqual(7, len({x.id for x in made}))
        facts = collections.Counter(x.supporting_facts for x in made)
        self.assertEqual(2, facts.pop(_RECORD.supporting_facts))
        self.assertEqual(2, facts.pop(_YES.supporting_facts))
        for pair in facts:
            self.assertCountEqual([("Jan", 0), ("Brno", 0)], pair)
        self.assertEqual(
            made, hotpotqa_small.augment([record, _YES], 2, 3, 10**6, 1)
        )
        self.assertCountEqual(
            [_RECORD.question, _YES.question],
            [
                x.question
                for x in hotpotqa_small.augment([_RECORD, _YES], 0, 0, 9, 1)
            ],
        )
        with self.assertRaisesRegex(ValueError, "No record has"):
            hotpotqa_small.augment([_YES], 1, 1, 10**6, 1)


if __name__ == "__main__":
    unittest.main()
