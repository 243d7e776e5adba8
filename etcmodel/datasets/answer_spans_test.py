"""Tests of `answer_spans`."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import answer_spans


class FindAnswerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("docstring", ["Art, art", "party"], "art", [(0, 5, 8)]),
        ("inside_a_word", ["party"], "art", [(0, 1, 4)]),
        ("begins_a_word", ["arty"], "art", [(0, 0, 3)]),
        ("ends_a_word", ["Bart"], "art", [(0, 1, 4)]),
        ("word_in_a_later_text", ["party", "Bart", "art"], "art", [(2, 0, 3)]),
        (
            "no_word_anywhere",
            ["Bart", "x", "arts"],
            "art",
            [(0, 1, 4), (2, 0, 3)],
        ),
        (
            "several_of_several_texts",
            ["art art", "", "(art)"],
            "art",
            [(0, 0, 3), (0, 4, 7), (2, 1, 4)],
        ),
        ("as_written_first", ["ART", "art"], "art", [(1, 0, 3)]),
        ("words_first", ["ART", "Bart"], "art", [(0, 0, 3)]),
        ("any_case_inside", ["BART", "x"], "art", [(0, 1, 4)]),
        ("any_case", ["ART Art"], "art", [(0, 0, 3), (0, 4, 7)]),
        # The small letter of "\u0130" has another number of bytes.
        (
            "bytes_of_capitals",
            ["\u0130 \u00c9T\u00c9"],
            "\u00e9t\u00e9",
            [(0, 3, 8)],
        ),
        ("digits", ["1999 19", "219"], "19", [(0, 5, 7)]),
        (
            "marks_end_a_word",
            ["x Inc.y", "Inc.!"],
            "Inc.",
            [(0, 2, 6), (1, 0, 4)],
        ),
        ("marks_begin_a_word", ["a(b)"], "(b)", [(0, 1, 4)]),
        # "é" has two bytes, "日" and "本" three each, "😀" four.
        ("bytes", ["Caf\u00e9, \u00e9"], "\u00e9", [(0, 7, 9)]),
        ("bytes_before", ["\u65e5\u672c \U0001f600 art"], "art", [(0, 12, 15)]),
        ("bytes_inside", ["a \u65e5\u672c"], "\u65e5\u672c", [(0, 2, 8)]),
        (
            "letters_of_other_scripts",
            ["\u043a\u043e\u0442\u044b \u043a\u043e\u0442"],
            "\u043a\u043e\u0442",
            [(0, 9, 15)],
        ),
        ("many_words", ["x New  York, New York"], "New York", [(0, 13, 21)]),
        ("touching", ["aaaaa"], "aa", [(0, 0, 2), (0, 2, 4)]),
        ("overlapping_words", ["a a a a"], "a a", [(0, 0, 3), (0, 4, 7)]),
        # The first two overlap, and only the second consists of words.
        ("overlaps_a_word", ["xab ab ab"], "ab ab", [(0, 4, 9)]),
        ("blanks_around", ["x art"], " art\n", [(0, 2, 5)]),
        ("whole_text", ["art"], "art", [(0, 0, 3)]),
        ("longer_than_the_text", ["art"], "arts", []),
        ("empty", ["art", ""], "", []),
        ("blank", ["a b"], " ", []),
        ("no_texts", [], "art", []),
    )
    def test_find_answer(self, texts, answer, expected):
        found = answer_spans.find_answers(texts, [answer])
        self.assertEqual(found, [answer_spans.Occurrence(*x) for x in expected])
        for text, start, end in found:
            self.assertEqual(
                texts[text].encode()[start:end].decode().lower(),
                answer.strip().lower(),
            )

    def test_several_answers(self):
        """At each level those of all; then no further level."""
        found = answer_spans.find_answers(
            ["the York house of york", "New York"], ["York", "New York", "of"]
        )
        self.assertEqual([(0, 4, 8), (0, 15, 17), (1, 0, 8), (1, 4, 8)], found)


if __name__ == "__main__":
    tf.test.main()
