import unicodedata

import tensorflow as tf
import tokenizers
from absl.testing import parameterized

from etcmodel.feature_utils.text import bert_words

# Excludes planes that have only ideographs or no characters.
_CODES = (
    *range(0xD800),
    *range(0xE000, 0x20000),
    *range(0x2A600, 0x2FA40),
    *range(0xE0000, 0xE0200),
    *range(0xFFFF0, 0x100010),
    *range(0x10FFF0, 0x110000),
)


class BertWordsTest(tf.test.TestCase, parameterized.TestCase):
    def _words(self, words, texts):
        """Returns the words of each text."""
        found = words(tf.constant(texts))
        # [n, (words)]
        joined = found.join(tf.RaggedTensor.from_tensor(found.texts[:, None]))
        return [
            [word.decode() for word in row if word] for row in joined.to_list()
        ]

    def test_words(self):
        words = bert_words.BertWords(lower_case=True, strip_accents=True)
        self.assertEqual(
            self._words(words, ["Né 中国!", "", "  a\tÉ\u3000b", "a-B a-B"]),
            [
                ["ne", "中", "国", "!"],
                [],
                ["a", "e", "b"],
                ["a", "-", "b", "a", "-", "b"],
            ],
        )
        words = bert_words.BertWords(False, False, tokenize_chinese_chars=False)
        self.assertEqual(
            self._words(words, ["Né 中国!"]), [["Né", "中国", "!"]]
        )

    @parameterized.parameters(
        (True, True, True),
        (True, False, True),
        (False, False, True),
        (False, True, False),
    )
    def test_every_character(self, lower_case, strip_accents, others):
        """Every character inside a word gives the same words as the library."""
        chars = [
            chr(code)
            for code in _CODES
            # Skips characters that are unassigned in Python's Unicode version.
            if not (lower_case and unicodedata.category(chr(code)) == "Cn")
        ]
        texts = [f"a{char}b" for char in chars]
        words = bert_words.BertWords(lower_case, strip_accents, others, others)
        normalizer = tokenizers.normalizers.BertNormalizer(
            clean_text=others,
            handle_chinese_chars=others,
            strip_accents=strip_accents,
            lowercase=lower_case,
        )
        splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
        found = self._words(words, [" ".join(texts)])[0]
        expected = splitter.pre_tokenize_str(
            normalizer.normalize_str(" ".join(texts))
        )
        self.assertGreater(len(expected), len(texts))
        self.assertEqual(found, [word for word, _ in expected])


if __name__ == "__main__":
    tf.test.main()
