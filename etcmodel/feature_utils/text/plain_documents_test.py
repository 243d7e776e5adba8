from unittest import mock

import tensorflow as tf

from etcmodel.feature_utils.text import plain_documents


class SplitParagraphsTest(tf.test.TestCase):
    def test_examples(self):
        for text, titles, texts in (
            ("", [], []),
            (" \n\n", [], []),
            ("a", [""], ["a"]),
            ("a\nb\n\nc", ["", ""], ["a\nb", "c"]),
            # Other line ends, and blank lines with white space.
            ("a\r\n \t\r\nb\r\rc\n", ["", "", ""], ["a", "b", "c"]),
            ("\n\n a \n\n\n\n b", ["", ""], ["a", "b"]),
            ("# Jan\nJan paints.\n\nHe cooks.", ["Jan", ""], None),
            ("# Jan\n\n\nJan paints.", ["Jan"], ["Jan paints."]),
            ("a\n## B ##\nc", ["", "B ##"], ["a", "c"]),
            # Headings without text between them.
            ("# A\n\n## B\n### C\nd", ["A B C"], ["d"]),
            ("# only", ["only"], [""]),
            ("  # A \n\n## B\n  c", ["A B"], ["c"]),
            # Blank lines of any white space.
            ("a\n\u3000\nb\u00a0\n\x85\n c", ["", "", ""], ["a", "b", "c"]),
            # These lines are not headings.
            ("a\n# \nb", [""], ["a\n# \nb"]),
            ("#tag\n\na # b", ["", ""], ["#tag", "a # b"]),
            ("####### seven", [""], ["####### seven"]),
            ("ä\n\n# Ö\nü", ["", "Ö"], ["ä", "ü"]),
        ):
            with self.subTest(text):
                found, made = plain_documents.split_paragraphs(
                    tf.constant([text, "other"])
                )
                titles, texts = (
                    x and [y.encode() for y in x] for x in (titles, texts)
                )
                self.assertEqual([titles, [b""]], found.to_list())
                if texts is not None:
                    self.assertEqual([texts, [b"other"]], made.to_list())

    def test_splits_words(self):
        texts = [
            "He said: (in Krakow).",
            "",
            "a-b U.S. \u201cx\u201d \u2026 <b>",
            "( (",
        ]
        self.assertEqual(
            [
                ["He", "said", ":", "(", "in", "Krakow", ")."],
                [],
                ["a-b", "U.S", ".", "\u201c", "x", "\u201d", "\u2026", "<b>"],
                ["(", "("],
            ],
            [
                [x.decode() for x in words]
                for words in plain_documents.split_words(
                    tf.constant(texts)
                ).to_list()
            ],
        )

    def test_an_empty_batch(self):
        titles, texts = plain_documents.split_paragraphs(
            tf.zeros([0], tf.string)
        )
        self.assertEqual([], titles.to_list())
        self.assertEqual([], texts.to_list())

    def test_padding_is_bounded(self):
        """Two rows of up to three parts of up to two words are 12 elements."""
        parts = tf.ragged.constant([[["a", "b"], [], ["c"]], [["d"]]])
        with mock.patch.object(plain_documents, "_MAX_CELLS", 12):
            self.assertEqual(
                parts.to_list(), plain_documents.bounded(parts).to_list()
            )
        with (
            mock.patch.object(plain_documents, "_MAX_CELLS", 11),
            self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "12.*at most 11. Send fewer"
            ),
        ):
            # In a graph, too, where nothing else needs the assertion.
            tf.function(lambda x: plain_documents.bounded(x).values)(parts)


if __name__ == "__main__":
    tf.test.main()
