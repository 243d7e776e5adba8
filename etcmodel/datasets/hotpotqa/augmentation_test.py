"""Tests of `augmentation`, which makes more training records for HotpotQA."""

import random
import re
import unittest

from etcmodel.datasets.hotpotqa import augmentation
from etcmodel.datasets.hotpotqa.records import HotpotQARecord
from etcmodel.datasets.hotpotqa.records import Paragraph

_PAINTER = "The painter was born in 1901 in a small town."
_RIVER = "A river which flows through the region of South Bohemia."


def _record(*context, facts=None):
    return HotpotQARecord(
        id="a",
        question="?",
        context=tuple(Paragraph(*paragraph) for paragraph in context),
        supporting_facts=facts,
    )


class ChooseParagraphsTest(unittest.TestCase):
    def _choose(self, room, facts):
        record = _record(
            ("A", ("long enough",)),
            ("B", ("long enough",)),
            ("C", ("long enough",)),
            facts=facts,
        )
        return {
            "".join(
                paragraph.title
                for paragraph in augmentation.choose_paragraphs(
                    record, room, random.Random(seed)
                ).context
            )
            for seed in range(100)
        }

    def test_example(self):
        # A title and a sentence have 12 characters together.
        facts = (("B", 0),)
        self.assertEqual({"AB", "BA", "BC", "CB"}, self._choose(24, facts))
        self.assertEqual({"B"}, self._choose(23, facts))

    def test_facts_stay_without_room(self):
        self.assertEqual(
            {"BC", "CB"}, self._choose(5, (("B", 0), ("C", 0), ("B", 1)))
        )

    def test_without_facts_all_may_go(self):
        self.assertEqual({"A", "B", "C"}, self._choose(12, None))


class MakePseudoQuestionTest(unittest.TestCase):
    def _make(self, record):
        return [
            augmentation.make_pseudo_question(record, random.Random(seed))
            for seed in range(300)
        ]

    def test_words_of_two_sentences(self):
        facts = {("Jan (painter)", 1): _PAINTER, ("Vltava", 0): _RIVER}
        answers = {_PAINTER: "1901", _RIVER: "South Bohemia"}
        joints = {"and", "of", "in", "that", "whose"}
        made = self._make(
            _record(
                ("Jan (painter)", ("Short.", _PAINTER)), ("Vltava", (_RIVER,))
            )
        )
        for record in made:
            first, second = record.supporting_facts
            self.assertEqual(set(facts), {first, second})
            self.assertEqual(answers[facts[second]], record.answer)
            start, *words = re.findall(r"\w+", record.question)
            self.assertIn(start, ("what", "who", "which", "when", "where"))
            self.assertTrue(set(record.answer.split()).isdisjoint(words))
            for text, other in ((_PAINTER, _RIVER), (_RIVER, _PAINTER)):
                own = {*text.split()} - {*other.split()} - joints
                rest = iter(re.findall(r"\w+", text))
                # All words of the text in the question have the text's order.
                self.assertTrue(all(x in rest for x in words if x in own))
            known = re.findall(r"\w+", _PAINTER + _RIVER)
            self.assertLessEqual({*words}, {"Jan", "Vltava", *joints, *known})
        self.assertGreater(len({record.question for record in made}), 200)

    def test_two_hops(self):
        # Half of the questions leave out the name that links two paragraphs. By
        # chance, a fifth of the questions with an answer in the second
        # paragraph would.
        painter = _PAINTER.replace("a small town", "a town on the Vltava")
        made = self._make(_record(("Jan", (painter,)), ("Vltava", (_RIVER,))))
        hidden = [
            record
            for record in made
            if record.answer == "South Bohemia"
            and "Vltava" not in record.question
        ]
        self.assertGreater(len(hidden), 0.4 * len(made))
        self.assertLess(len(hidden), 0.7 * len(made))

    def test_no_question_possible(self):
        for context in (
            # Contexts with one paragraph, without a name, and with short
            # sentences.
            [("Jan", (_PAINTER, _RIVER))],
            [
                ("Jan", ("The painter was born there in a small town.",)),
                ("Vltava", ("The river flows through all of the region.",)),
            ],
            [("Jan", (_PAINTER,)), ("Vltava", ("It flows in Prague.",))],
        ):
            self.assertEqual({None}, set(self._make(_record(*context))))


if __name__ == "__main__":
    unittest.main()
