"""Tests that the built-in question can be answered, but only by reading."""

import collections
import json
import os
import re

import tensorflow as tf

from etcmodel.datasets import wikihop as records_lib
from etcmodel.demo import corpus
from etcmodel.demo import world
from etcmodel.demo.question import QUESTION
from testing.trades import TELLTALES


def _told():
    """Returns island -> {trade: documents}, from sentences about trades."""
    told = collections.defaultdict(lambda: collections.defaultdict(set))
    for number, document in enumerate(QUESTION["supports"]):
        for sentence in document.lower().split("."):
            words = set(re.findall("[a-z]+", sentence))
            islands = [c for c in QUESTION["candidates"] if c in sentence]
            for trade in world.TRADES:
                if words & TELLTALES[trade.name]:
                    (island,) = islands
                    told[island][trade.name].add(number)
    return told


class QuestionTest(tf.test.TestCase):
    def test_only_the_answer_has_both_trades(self):
        asked = {"lighthouse", "beehives"}
        self.assertEqual(
            corpus.make_query(*world.TRADES[:2]), QUESTION["query"]
        )
        told = _told()
        self.assertEqual(
            [QUESTION["answer"]],
            [island for island in told if asked <= set(told[island])],
        )
        # One trade alone leaves several islands.
        for trade in asked:
            self.assertGreater(sum(trade in told[i] for i in told), 1)
        # No single document has all facts.
        right = told[QUESTION["answer"]]
        self.assertEmpty(right["lighthouse"] & right["beehives"])
        self.assertEqual(
            dict.fromkeys(QUESTION["candidates"], 2),
            {island: len(told[island]) for island in told},
        )

    def test_candidates_are_islands_of_the_world(self):
        names = {
            name.lower()
            for split in corpus.SPLITS
            for name in corpus.island_names(split)
        }
        self.assertLen(set(QUESTION["candidates"]), corpus.NUM_CANDIDATES)
        self.assertContainsSubset(QUESTION["candidates"], names)

    def test_is_an_official_record(self):
        path = os.path.join(self.get_temp_dir(), "question.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump([QUESTION], file)
        (record,) = records_lib.FORMAT.read(path, "train")
        self.assertEqual("typed_by_hand", record.id)
        self.assertEqual("jorvel strand", record.candidates[1])
        self.assertEqual(1, record.answer_index)
        self.assertLen(record.supports, 4)


if __name__ == "__main__":
    tf.test.main()
