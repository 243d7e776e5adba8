import re

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets import answer_spans
from etcmodel.datasets import normalized_texts


class FindAnswerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("docstring", ["Art, art", "party"], "art", [(0, 5, 8)]),
        ("inside_a_word", ["party"], "art", [(0, 1, 4)]),
        ("begins_a_word", ["arty"], "art", [(0, 0, 3)]),
        ("ends_a_word", ["Bart"], "art", [(0, 1, 4)]),
        ("word_in_a_later_text", ["party", "Bart", "art"], "art", [(2, 0, 3)]),
        ("no_word", ["Bart", "x", "arts"], "art", [(0, 1, 4), (2, 0, 3)]),
        (
            "several",
            ["art art", "(art)"],
            "art",
            [(0, 0, 3), (0, 4, 7), (1, 1, 4)],
        ),
        ("other_words", ["Art glee", "art Glee"], "Glee", [(1, 4, 8)]),
        ("in_capitals", ["ART", "art Art"], "art", [(0, 0, 3), (1, 0, 3)]),
        (
            "name",
            ["JAN BO", "Jan Bo, jan bo"],
            "Jan Bo",
            [(0, 0, 6), (1, 0, 6)],
        ),
        ("letter_in_capitals", ["x", "X"], "x", [(0, 0, 1)]),
        ("first_letter", ["The king", "the king"], "The king", [(0, 0, 8)]),
        ("words_first", ["ART", "Bart"], "art", [(0, 0, 3)]),
        ("any_case_inside", ["BART", "x"], "art", [(0, 1, 4)]),
        ("any_case", ["ART Art"], "art", [(0, 0, 3), (0, 4, 7)]),
        # "\u0130" has a different number of bytes in lower case.
        ("bytes_of_capitals", ["\u0130 \u00c9T"], "\u00e9t", [(0, 3, 6)]),
        ("digits", ["1999 19", "219"], "19", [(0, 5, 7)]),
        ("marks_end", ["x Inc.y", "Inc.!"], "Inc.", [(0, 2, 6), (1, 0, 4)]),
        ("marks_begin_a_word", ["a(b)"], "(b)", [(0, 1, 4)]),
        # "é" has two bytes, "日" and "本" three each, "😀" four.
        ("bytes", ["Caf\u00e9, \u00e9"], "\u00e9", [(0, 7, 9)]),
        ("bytes_before", ["\u65e5\u672c \U0001f600 art"], "art", [(0, 12, 15)]),
        ("bytes_inside", ["a \u65e5\u672c"], "\u65e5\u672c", [(0, 2, 8)]),
        ("cyrillic", ["коты кот"], "кот", [(0, 9, 15)]),
        (
            "many_words",
            ["New  York, New York"],
            "New York",
            [(0, 0, 9), (0, 11, 19)],
        ),
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
            words = texts[text].encode()[start:end].decode().lower().split()
            self.assertEqual(words, answer.lower().split())

    @parameterized.named_parameters(
        ("no_break_space", "in New\u00a0York,", "New York", "New\u00a0York"),
        ("thin_space", "in New\u2009York,", "New York", "New\u2009York"),
        ("line_feed", "in New\nYork,", "New York", "New\nYork"),
        ("indented_line", "in New\n  York,", "New York", "New\n  York"),
        ("empty_line", "in New\n\nYork,", "New York", None),
        ("spaces_in_the_answer", "in New York,", "New \u00a0York", "New York"),
        ("composed_text", "le caf\u00e9 noir", "cafe\u0301", "caf\u00e9"),
        ("decomposed_text", "le cafe\u0301 noir", "caf\u00e9", "cafe\u0301"),
        ("decomposed_before", "e\u0301te\u0301 a\u0300 Brno", "Brno", "Brno"),
        # A letter with two marks; in the text, one is composed with the letter.
        ("partly_composed", "\u00ea\u0323t", "\u1ec7t", "\u00ea\u0323t"),
        ("marks", "e\u0302\u0323t", "e\u0323\u0302t", "e\u0302\u0323t"),
        # Hangul syllables and the letters that they are composed of.
        ("syllable", "\u1112\u1161\u11ab x", "\ud55c", "\u1112\u1161\u11ab"),
        ("same_character", "5 \u212b", "\u00c5", "\u212b"),
        ("mark_of_the_last_letter", "cafe\u0301", "cafe", None),
        ("letter_without_its_mark", "x\u0331", "x", None),
        ("word_behind_a_mark", "x\u0331art art", "art", "art"),
        ("entity", "AT&amp;T &amp; co", "AT&T", "AT&amp;T"),
        ("entity_in_the_answer", "AT&T", "AT&amp;T", "AT&T"),
        ("numeric_entity", "the king&#39;s or", "king's", "king&#39;s"),
        ("entity_of_a_space", "New&nbsp;York", "New York", "New&nbsp;York"),
        ("entity_with_a_mark", "cafe&#x301;", "caf\u00e9", "cafe&#x301;"),
        ("no_entity", "R&D; x", "R&D;", "R&D;"),
        ("all_at_once", "&lt;e\u0301 &lt; x", "< x", "&lt; x"),
    )
    def test_other_characters(self, text, answer, expected):
        """Compares normalized texts; offsets refer to the original text."""
        found = answer_spans.find_answers([text], [answer])
        places = [text.encode()[x.start : x.end].decode() for x in found]
        self.assertEqual([] if expected is None else [expected], places)
        # Letters before the match only shift the offsets.
        more = answer_spans.find_answers(["\u0130 \u00e9 " + text], [answer])
        self.assertEqual(found, [(0, x.start - 6, x.end - 6) for x in more])

    @parameterized.named_parameters(
        # A form that does not occur as written matches in any case.
        (
            "each",
            "Rom, ulm, red Oak",
            ["Rom", "Ulm", "Red oak"],
            ["Rom", "red Oak"],
        ),
        ("small_letters", "Rom or Ulm", ["rom", "Ulm"], ["Rom", "Ulm"]),
        ("other_words", "Bill said he will", ["Bill", "Will"], ["Bill"]),
        ("acronym", "the UN told us. Us?", ["UN", "US"], ["UN"]),
        ("no_other", "he will", ["Bill", "Will"], ["will"]),
    )
    def test_forms(self, text, answers, expected):
        """Decides for each form whether letter case matters."""
        found = answer_spans.find_answers([text], answers)
        self.assertEqual(expected, [text[x.start : x.end] for x in found])

    def test_sentence_case(self):
        """Ignores the case of a first letter, except in single words."""
        text = "The king, the king, THE KING, the King, Will, will"
        found = answer_spans.find_answers(
            [text], ["The king", "Will"], sentence_case=True
        )
        self.assertEqual(
            ["The king", "the king", "THE KING", "Will"],
            [text[x.start : x.end] for x in found],
        )

    @parameterized.parameters(
        "ab AB, aB abab Ab\u0301 ab",
        # Non-ASCII letters that become k, s or i in another case.
        "\u212a ks K\u017f kS \u0131 i \u0130 I",
        # A letter whose lower case is longer; a letter with two upper cases.
        "\u0130ks ks \u00dfKS Ks",
        "\u03a3 ks \u03c2KS ks \u03c3",
    )
    def test_searching_lower_case_changes_nothing(self, text):
        normalized = normalized_texts.NormalizedText(text)
        for form in ("ab", "k", "ks", "s", "i", "aba", "KS"):
            for pattern in (
                *(form, f"(?i:{form})", rf"(?<![^\W_])(?i:{form})"),
                rf"(?i:{form})(?![^\W_])",
            ):
                found = answer_spans._matches(normalized, pattern, form)
                self.assertEqual(
                    [x.span() for x in re.finditer(pattern, text)],
                    [x.span() for x in found],
                    (form, pattern),
                )

    def test_several_answers(self):
        """Finds all forms; searches inside words only if no word matches."""
        found = answer_spans.find_answers(
            ["the York house of york", "New York"], ["York", "New York", "of"]
        )
        self.assertEqual([(0, 4, 8), (0, 15, 17), (1, 0, 8), (1, 4, 8)], found)


if __name__ == "__main__":
    tf.test.main()
