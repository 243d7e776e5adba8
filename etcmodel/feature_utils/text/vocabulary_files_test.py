import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.text import vocabulary_files
from testing.helpers import real_data_path
from testing.helpers import write_file


class VocabularyFilesTest(tf.test.TestCase, parameterized.TestCase):
    def _file(self, content):
        return write_file(self, content, "vocab.txt")

    @parameterized.parameters(
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb\r\n\r\n", ["a", "b"]),
        ("a\r\nb\nc\r\nd", ["a", "b", "c", "d"]),
        # White space around tokens is stripped. Tokens that are only white
        # space are kept, even at the end.
        (" a\t\n\u3000\n \n\u2028\nb \n\xa0\n", [*"a\u3000 \u2028b\xa0"]),
        ("a\n\x85\n\r\nb\n", ["a", "\x85", "\r", "b"]),
        # A repeated token does not change the ids of other tokens.
        ("a\nb\na\nc", ["a", "b", "a", "c"]),
    )
    def test_one_token_a_line(self, content, expected):
        path = self._file(content.encode())
        self.assertEqual(vocabulary_files.load_vocab(path), expected)

    def test_warns_of_equal_tokens(self):
        path = self._file(b"a\nb\na\n")
        with self.assertLogs("absl", "WARNING") as logs:
            vocabulary_files.load_vocab(path)
        self.assertIn(f"{path} has 1 repeated tokens", logs.output[0])

    def test_blank_line(self):
        for content in (b"a\n\nb\n", b"a\r\n\r\nb"):
            with self.assertRaisesRegex(ValueError, "Line 2 of .* is blank"):
                vocabulary_files.load_vocab(self._file(content))

    def test_chinese(self):
        """Reads Google's Chinese vocabulary, in which U+2028 is a token."""
        path = real_data_path("vocab/bert_chinese_vocab.txt")
        tokens = vocabulary_files.load_vocab(path)
        self.assertLen(tokens, 21128)
        self.assertIn("\u2028", tokens)
        # The ids in the published model.
        self.assertEqual(
            [tokens.index(x) for x in ("[PAD]", "[UNK]", "[CLS]", "[MASK]")],
            [0, 100, 101, 103],
        )


if __name__ == "__main__":
    tf.test.main()
