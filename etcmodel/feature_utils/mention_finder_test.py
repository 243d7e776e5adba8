import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import mention_finder
from etcmodel.testing import real_data_path


def found(mentions, texts):
    """The words of all mentions of each text."""
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


class MentionFinderTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("", []),
        ("nothing here", []),
        ("Jan lives in Brno.", ["Jan", "Brno"]),
        ("The Hague is in Holland.", ["Hague", "Holland"]),
        ("He said: IN the USA, I am.", ["USA"]),
        ("In The Hague", ["Hague"]),
        (
            "the Bank of England and Jan de Vries",
            ["Bank of England", "Jan de Vries"],
        ),
        ("Queen of the", ["Queen"]),
        (
            "Éva Ölgi d’Arc, O'Neil-Smith III",
            ["Éva Ölgi", "Arc", "O'Neil-Smith III"],
        ),
        ("Jan's and ENGLAND’S", ["Jan", "ENGLAND"]),
        ("E\u0301va Novak", ["E\u0301va Novak"]),
        ("Jan\nBrno", ["Jan", "Brno"]),
        ("Jan  \t Novak", ["Jan  \t Novak"]),
        ("Homarus H. americanus", ["Homarus H"]),
        ("Theresa Andover Insbruck", ["Theresa Andover Insbruck"]),
        ("iPhone and 3D", ["Phone", "D"]),
    )
    def test_spans(self, text, expected):
        mentions = mention_finder.find_mentions(tf.constant([text]))
        self.assertEqual([expected], found(mentions, [text]))

    def test_the_same_words_are_the_same_entity(self):
        texts = ["Jan Novak met JAN  NOVAK and Jan.", "The Jan Novak's. Brno"]
        mentions = mention_finder.find_mentions(tf.constant(texts))
        (first, second, jan), (third, brno) = mentions.labels.to_list()
        self.assertEqual(first, second)
        self.assertEqual(first, third)
        self.assertLen({first, jan, brno}, 3)
        self.assertAllGreaterEqual([first, jan, brno], 2)

    def test_of_a_batch_in_a_graph(self):
        function = tf.function(
            mention_finder.find_mentions,
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        texts = ["Jan", "", "to Brno"]
        self.assertEqual(
            [["Jan"], [], ["Brno"]], found(function(tf.constant(texts)), texts)
        )
        self.assertEqual(0, function(tf.zeros([0], tf.string)).begins.nrows())

    def test_bytes_that_are_no_text(self):
        mentions = mention_finder.find_mentions(
            tf.constant([b"Jan\x00Brno \xff\xfe Oslo"])
        )
        self.assertAllEqual([2], mentions.begins.row_lengths())

    def test_real_articles(self):
        with open(
            real_data_path("wikitext/wiki.valid.raw"), encoding="utf-8"
        ) as file:
            texts = [line for line in file if len(line) > 200]
        mentions = mention_finder.find_mentions(tf.constant(texts))
        words = [x for row in found(mentions, texts) for x in row]
        # Most are names that come again.
        self.assertGreater(len(words), 5 * len(texts))
        self.assertLess(len(set(words)), 0.6 * len(words))
        for word in ("Mediterranean Sea", "British Isles"):
            self.assertIn(word, words)
        for word in words:
            self.assertNotIn(word, ("The", "It", "In", "He", "This"))
            self.assertTrue(word[0].isupper(), word)


if __name__ == "__main__":
    tf.test.main()
