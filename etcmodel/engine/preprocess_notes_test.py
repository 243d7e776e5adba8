import tensorflow as tf
from absl.testing import parameterized

from etcmodel.engine import preprocess_notes


class NotesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (100, 6, ["6 % of the tokens are unknown"]),
        (100, 100, ["100 % of the tokens are unknown"]),
        (100, 5, []),
        (0, 0, []),
    )
    def test_unknown_tokens(self, stored, unknown, expected):
        counts = {"tokens_stored": stored, "tokens_unknown": unknown}
        notes = preprocess_notes.make_notes(counts, had_queries=False)
        self.assertLen(notes, len(expected))
        for note, text in zip(notes, expected, strict=True):
            self.assertIn(text, note)
            self.assertIn("another language or case", note)

    @parameterized.parameters(
        (
            4,
            50,
            "examples have 9 tokens on .*, but the longest has 50,",
        ),
        (4, 45, None),
        (0, 50, None),
        (4, 0, None),
    )
    def test_padding(self, number, room, expected):
        """36 of 4 * 45 tokens are a fifth."""
        notes = preprocess_notes.make_notes(
            {"tokens_stored": 36}, False, number, room
        )
        self.assertLen(notes, int(bool(expected)))
        for note in notes:
            self.assertRegex(note, expected)

    @parameterized.parameters((2, True, 1), (2, False, 0), (0, True, 0))
    def test_records_without_query(self, without, had_queries, number):
        counts = {"records_without_query": without, "tokens": 9}
        notes = preprocess_notes.make_notes(counts, had_queries)
        self.assertLen(notes, number)
        for note in notes:
            self.assertIn("Note: 2 records have no query", note)
            self.assertIn("`query_field`", note)


if __name__ == "__main__":
    tf.test.main()
