"""Tests of `normalized_texts`; `answer_spans_test` tests finding answers."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import normalized_texts


class NormalizeTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("as_it_is", "Caf\u00e9 & bar", "Caf\u00e9 & bar"),
        ("docstring", "Cafe\u0301  &amp;\nbar", "Caf\u00e9 & bar"),
        ("empty_line", "a\r\n \nb\n", "a\nb "),
        ("paragraph_separator", "a\u2029b", "a\nb"),
        # Entities are decoded only once.
        ("entity_of_an_entity", "&amp;amp;", "&amp;"),
        ("no_entities", "&x; & &; AT&T &amp", "&x; & &; AT&T &amp"),
        # The number of this entity is not a character.
        ("no_character", "a&#1;b", "a&#1;b"),
        ("nothing", "", ""),
    )
    def test_normalize(self, text, expected):
        self.assertEqual(expected, normalized_texts.normalize(text))


class NormalizedTextTest(tf.test.TestCase):
    def test_given_places(self):
        """Maps every boundary; None inside U+0958, which is decomposed."""
        text = normalized_texts.NormalizedText("a&lt;\u0958  e\u0301b")
        self.assertEqual("a<\u0915\u093c \u00e9b", text.text)
        self.assertEqual(
            [0, 1, 5, None, 6, 8, 10, 11], list(map(text.given_place, range(8)))
        )

    def test_is_normalized_once(self):
        """A text is normalized once, since stories are long."""
        with mock.patch.object(
            normalized_texts, "_spaces", wraps=normalized_texts._spaces
        ) as spaces:
            normalized_texts.NormalizedText("a  b")
        spaces.assert_called_once()


if __name__ == "__main__":
    tf.test.main()
