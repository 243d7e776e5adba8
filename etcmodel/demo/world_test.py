"""Tests of the demo's words: whether they make a fair, readable world."""

import collections
import re
import string

import tensorflow as tf

from etcmodel.demo import world

_SENTENCES_ON_ISLANDS = (
    *world.RESIDENCES,
    *world.REMARKS_ON_ONE,
    *world.REMARKS_ON_TWO,
)


def _fields(template):
    """The names in braces, in alphabetical order."""
    return sorted(
        name for _, name, _, _ in string.Formatter().parse(template) if name
    )


def _words(text):
    return re.findall(r"[a-z]+", text.lower())


def _texts():
    """Every text of the world, without what is filled in."""
    templates = [*world.OPENINGS, *_SENTENCES_ON_ISLANDS, *world.FRAMES]
    for trade in world.TRADES:
        templates += [*trade.phrases, *trade.sayings]
    return [re.sub(r"\{\w+\}", "", template) for template in templates]


class WorldTest(tf.test.TestCase):
    def test_templates_have_the_fields_that_are_filled_in(self):
        for templates, fields in (
            (world.FRAMES, ["phrase", "who"]),
            (world.RESIDENCES, ["island", "person"]),
            (world.REMARKS_ON_ONE, ["first"]),
            (world.REMARKS_ON_TWO, ["first", "second"]),
            (world.OPENINGS, []),
        ):
            for template in templates:
                self.assertEqual(fields, _fields(template), template)
        for trade in world.TRADES:
            for phrase in trade.phrases:
                self.assertEmpty(_fields(phrase), phrase)
            for saying in trade.sayings:
                self.assertEqual(["who"], _fields(saying), saying)

    def test_everything_is_one_sentence(self):
        sentences = [
            *world.OPENINGS,
            *_SENTENCES_ON_ISLANDS,
            *world.FRAMES,
            *(saying for t in world.TRADES for saying in t.sayings),
        ]
        for sentence in sentences:
            self.assertRegex(sentence, r"^[A-Z{][^.!?]*\.$")
        for trade in world.TRADES:
            for phrase in trade.phrases:
                self.assertRegex(phrase, r"^[a-z][a-z ]*[a-z]$")

    def test_trades(self):
        names = [trade.name for trade in world.TRADES]
        self.assertLen(names, 8)
        self.assertLen(set(names), 8)
        for trade in world.TRADES:
            # The questions' word is one that the documents know.
            self.assertIn(trade.name, trade.keywords)
            told = [set(_words(t)) for t in (*trade.phrases, *trade.sayings)]
            for words in told:
                self.assertLen(words & set(trade.keywords), 1, trade)
            # In varying words: none of them is in all sentences.
            self.assertEqual(
                set(trade.keywords), set.union(*told) & set(trade.keywords)
            )
        keywords = [word for t in world.TRADES for word in t.keywords]
        self.assertLen(set(keywords), len(keywords))

    def test_names_are_words_that_nothing_else_is_called(self):
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

    def test_there_are_enough_of_everything(self):
        # Six candidates of 24 * 16 names, of which a quarter is held out, six
        # people with first and last names of their own, four openings.
        self.assertLen(world.ISLAND_WORDS, 24)
        self.assertLen(world.ISLAND_KINDS, 16)
        self.assertGreaterEqual(len(world.FIRST_NAMES), 6)
        self.assertGreaterEqual(len(world.LAST_NAMES), 6)
        self.assertGreaterEqual(len(world.OPENINGS), 4)

    def test_no_sentence_twice(self):
        texts = _texts()
        self.assertLen(set(texts), len(texts))


if __name__ == "__main__":
    tf.test.main()
