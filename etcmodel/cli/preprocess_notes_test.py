import tensorflow as tf
from absl.testing import parameterized

from etcmodel.cli import preprocess_notes


class NotesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (100, 6, ["6 % of the tokens are unknown"]),
        (100, 100, ["100 % of the tokens are unknown"]),
        (100, 5, []),
        (0, 0, []),
    )
    def test_unknown_tokens(self, stored, unknown, expected):
        counts = {"tokens_stored": stored, "tokens_unknown": unknown}
        notes = preprocess_notes.make_notes(counts)
        self.assertLen(notes, len(expected))
        for note, text in zip(notes, expected, strict=True):
            self.assertIn(text, note)
            self.assertIn("another language or case", note)


if __name__ == "__main__":
    tf.test.main()
