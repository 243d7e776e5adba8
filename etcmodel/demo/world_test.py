"""Tests that the demo's words make a fair and readable world."""

import collections
import re

import tensorflow as tf

from etcmodel.demo import world
from testing.trades import TELLTALES


def _words(text):
    return re.findall(r"[a-z]+", text.lower())


def _texts():
    """Returns every text of the world, with placeholders removed."""
    templates = [*world.OPENINGS, *world.RESIDENCES, *world.FRAMES]
    templates += [*world.REMARKS_ON_ONE, *world.REMARKS_ON_TWO]
    for trade in world.TRADES:
        templates += [*trade.phrases, *trade.sayings]
    return [re.sub(r"\{\w+\}", "", template) for template in templates]


class WorldTest(tf.test.TestCase):
    def test_trades(self):
        names = [trade.name for trade in world.TRADES]
        self.assertLen(names, 8)
        self.assertLen(set(names), 8)
        for trade in world.TRADES:
            keywords = TELLTALES[trade.name]
            # Documents also use the word that the question uses.
            self.assertIn(trade.name, keywords)
            told = [set(_words(t)) for t in (*trade.phrases, *trade.sayings)]
            for words in told:
                self.assertLen(words & keywords, 1, trade)
                # No keyword is in all sentences, so words vary.
            self.assertEqual(keywords, set.union(*told) & keywords)
        self.assertLen(set.union(*TELLTALES.values()), 3 * 8)

    def test_names_are_unique_words(self):
        names = collections.Counter(
            word.lower()
            for words in (
                world.ISLAND_WORDS,
                world.ISLAND_KINDS,
                world.FIRST_NAMES,
                world.LAST_NAMES,
            )
            for word in words
        )
        self.assertEqual([1], sorted(set(names.values())))
        self.assertEmpty(set(names) & set(_words(" ".join(_texts()))))
        for word in (*world.ISLAND_WORDS, *world.ISLAND_KINDS):
            self.assertRegex(word, "^[A-Z][a-z]+$")

    def test_sentences_differ(self):
        texts = _texts()
        self.assertLen(set(texts), len(texts))


if __name__ == "__main__":
    tf.test.main()
