import tensorflow as tf

from etcmodel.tasks.read_twice import mention_finder
from testing.helpers import real_data_path

FIND = tf.function(
    mention_finder.find_mentions,
    input_signature=[tf.TensorSpec([None], tf.string)],
)


def found(mentions, texts):
    """Returns the words of all mentions, for each text."""
    rows = []
    for text, begins, ends in zip(
        texts,
        mentions.begins.to_list(),
        mentions.ends.to_list(),
        strict=True,
    ):
        data = text.encode()
        rows.append(
            [data[b:e].decode() for b, e in zip(begins, ends, strict=True)]
        )
    return rows


class MentionFinderTest(tf.test.TestCase):
    def test_spans(self):
        table = {
            "": [],
            "nothing here": [],
            "Jan lives in Brno.": ["Jan", "Brno"],
            "The Hague is in Holland.": ["Hague", "Holland"],
            "He said: IN the USA, I am.": ["USA"],
            "In The Hague": ["Hague"],
            "the Bank of England and Jan de Vries": [
                *("Bank of England", "Jan de Vries")
            ],
            "Queen of the": ["Queen"],
            "Éva Ölgi d’Arc, O'Neil-Smith III": [
                *("Éva Ölgi", "Arc", "O'Neil-Smith III")
            ],
            "Jan's and ENGLAND’S": ["Jan", "ENGLAND"],
            "E\u0301va Novak": ["E\u0301va Novak"],
            "Jan\nBrno": ["Jan", "Brno"],
            "Jan  \t Novak": ["Jan  \t Novak"],
            "Homarus H. americanus": ["Homarus H"],
            "Theresa Andover Insbruck": ["Theresa Andover Insbruck"],
            "iPhone and 3D": ["Phone", "D"],
        }
        texts = list(table)
        mentions = FIND(tf.constant(texts))
        self.assertEqual(
            dict(zip(texts, found(mentions, texts), strict=True)), table
        )

    def test_equal_words_are_one_entity(self):
        texts = ["Jan Novak met JAN  NOVAK and Jan.", "The Jan Novak's. Brno"]
        mentions = FIND(tf.constant(texts))
        (first, second, jan), (third, brno) = mentions.labels.to_list()
        self.assertEqual(first, second)
        self.assertEqual(first, third)
        self.assertLen({first, jan, brno}, 3)
        self.assertAllGreaterEqual([first, jan, brno], 2)

    def test_invalid_utf8_and_empty_batch(self):
        mentions = FIND(tf.constant([b"Jan\x00Brno \xff\xfe Oslo"]))
        self.assertAllEqual([2], mentions.begins.row_lengths())
        self.assertEqual(0, FIND(tf.zeros([0], tf.string)).begins.nrows())

    def test_real_articles(self):
        with open(
            real_data_path("wikitext/wiki.valid.raw"), encoding="utf-8"
        ) as file:
            texts = [line for line in file if len(line) > 200]
        mentions = FIND(tf.constant(texts))
        words = [x for row in found(mentions, texts) for x in row]
        # Most names occur several times.
        self.assertGreater(len(words), 5 * len(texts))
        self.assertLess(len(set(words)), 0.6 * len(words))
        for word in ("Mediterranean Sea", "British Isles"):
            self.assertIn(word, words)
        for word in words:
            self.assertNotIn(word, ("The", "It", "In", "He", "This"))
            self.assertTrue(word[0].isupper(), word)


if __name__ == "__main__":
    tf.test.main()
