"""Tests of `python_tokenizer`: the description's worked examples."""

import unittest

from benchmarks import python_tokenizer

VOCAB = "[PAD] [UNK] un ##aff ##able runn ##ing , a ##b".split()
TEXT = " Ünaff\u00adable,RUNNING\x00 中文! [CLS]\ufffd"


class PythonTokenizerTest(unittest.TestCase):
    def setUp(self):
        self.tokenizer = python_tokenizer.BertTokenizer(VOCAB)

    def test_words(self):
        self.assertEqual(
            self.tokenizer.words(TEXT),
            ["unaffable", ",", "running", "中", "文", "!", "[", "cls", "]"],
        )

    def test_words_with_offsets(self):
        for text in (TEXT, "", "  ", "e\u0301a,\u0301b 中中"):
            self.assertEqual(
                [word for word, _ in self.tokenizer.words_with_offsets(text)],
                self.tokenizer.words(text),
            )
        self.assertEqual(
            self.tokenizer.words_with_offsets("Ünd e\u0301t. 中a\u00ad x"),
            [
                ("und", [0, 1, 2, 3]),
                ("et", [4, 6, 7]),
                (".", [7, 8]),
                ("中", [9, 10]),
                ("a", [10, 12]),
                ("x", [13, 14]),
            ],
        )

    def test_pieces(self):
        tokenizer = self.tokenizer
        self.assertEqual(tokenizer("UNaffable running,"), [2, 3, 4, 5, 6, 7])
        self.assertEqual(tokenizer("abc ab"), [1, 8, 9])
        self.assertEqual(tokenizer("a" + "b" * 200), [1])
        self.assertEqual(tokenizer("a" + "b" * 199), [8] + [9] * 199)

    def test_with_offsets(self):
        self.assertEqual(
            self.tokenizer.with_offsets("Abc  U\u0301Naff, ab"),
            [(1, 0, 3), (2, 5, 8), (3, 8, 11), (7, 11, 12), (8, 13, 14)]
            + [(9, 14, 15)],
        )

    def test_is_compatible(self):
        for text in ("plain", "é", "e\u0301\xa0中", "a\tb"):
            self.assertTrue(python_tokenizer.is_compatible(text), text)
        for text in ("½", "Straße", "λόγος", "a\u00adb", "\x00", "\ufffd"):
            self.assertFalse(python_tokenizer.is_compatible(text), text)


if __name__ == "__main__":
    unittest.main()
