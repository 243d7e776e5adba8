"""The worked examples of BERT's description."""

from absl.testing import absltest

from benchmarks import reference_tokenizer

VOCAB = "[PAD] [UNK] un ##aff ##able runn ##ing , a ##b 中 [ ]".split()


class ReferenceTokenizerTest(absltest.TestCase):
    def test_examples(self):
        tokenizer = reference_tokenizer.BertTokenizer(VOCAB)
        for text, expected in (
            ("UNaffable running,", [2, 3, 4, 5, 6, 7]),
            (
                " Ünaff\u00adable,RUNNING\x00 中[\ufffd",
                [2, 3, 4, 7, 5, 6, 10, 11],
            ),
            ("abc ab", [1, 8, 9]),
            ("a" + "b" * 200, [1]),
            ("a" + "b" * 199, [8] + [9] * 199),
        ):
            self.assertEqual(tokenizer(text), expected)
        self.assertEqual(
            tokenizer.with_offsets("Abc  U\u0301Naff\u0301\x00"),
            [(1, 0, 3), (2, 5, 8), (3, 8, 13)],
        )


if __name__ == "__main__":
    absltest.main()
