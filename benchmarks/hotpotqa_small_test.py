"""Tests of `hotpotqa_small`: its baselines."""

import unittest

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


if __name__ == "__main__":
    unittest.main()
