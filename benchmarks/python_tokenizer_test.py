"""Tests of `python_tokenizer`: the description's worked examples."""

import unittest

from benchmarks import python_tokenizer

VOCAB = "[PAD] [UNK] un ##aff ##able runn ##ing , a ##b".split()


class PythonTokenizerTest(unittest.TestCase):
    def setUp(self):
        self.tokenizer = python_tokenizer.BertTokenizer(VOCAB)

    def test_words(self):
        self.assertEqual(
            self.tokenizer.words(
                " Ünaff\u00adable,RUNNING\x00 中文! [CLS]\ufffd"
            ),
            ["unaffable", ",", "running", "中", "文", "!", "[", "cls", "]"],
        )

    def test_pieces(self):
        tokenizer = self.tokenizer
        self.assertEqual(tokenizer("UNaffable running,"), [2, 3, 4, 5, 6, 7])
        self.assertEqual(tokenizer("abc ab"), [1, 8, 9])
        self.assertEqual(tokenizer("a" + "b" * 200), [1])
        self.assertEqual(tokenizer("a" + "b" * 199), [8] + [9] * 199)
        self.assertEqual(
            tokenizer.with_offsets("Abc  U\u0301Naff"),
            [(1, 0, 3), (2, 5, 8), (3, 8, 11)],
        )


if __name__ == "__main__":
    unittest.main()
