"""Tests of selection's preprocessor."""

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.select.task import TASK
from testing.records import RecordsTestCase

_STRING = "Jan sings. He paints.\n\nIt rains."
_LISTS = [
    {"title": "Jan", "paragraphs": [["Jan sings.", "", "He paints."], []]},
    {"title": "", "paragraphs": [["It rains."]]},
]


class RecordsTest(RecordsTestCase):
    TASK = TASK
    WORDS = "jan sings . he paints it rains who ?"
    SIZES = {"long_length": 24, "global_length": 12}

    def _write(self, units, document, selected, split="dev", **sizes):
        """Stores a row of a data file; returns the stored values and counts."""
        sizes["units"] = units
        row = {"text": document, "query": "Who?", "selected": selected}
        return self.store(self.read(row, **sizes), split, **sizes)

    # Expected labels of global tokens after the CLS and two of the query.
    @parameterized.parameters(
        # The document has a paragraph of two units and a paragraph of one.
        ("sentences", _STRING, ["He paints."], [1, 0, 1, 0, 0], 1),
        ("sentences", _STRING, [], [0, 0, 0, 0, 0], 0),
        ("sentences", _STRING, [[0, -1]], [1, 1, 1, 0, 0], 2),
        ("sentences", _STRING, ["paints", "rains."], [1, 0, 1, 1, 1], 2),
        # The document has a paragraph with a title and two units, numbered 0
        # and 2; an empty paragraph, which has a global token; and a paragraph
        # with one unit.
        ("texts", _LISTS, [[0, 2]], [1, 1, 0, 1, 0, 0, 0], 1),
        ("texts", _LISTS, [[0, 0], [2, 0]], [1, 1, 1, 0, 0, 1, 1], 2),
        ("texts", _LISTS, [["Jan", 2]], [1, 1, 0, 1, 0, 0, 0], 1),
        ("texts", _LISTS, [[0, 0, 1], [], [0]], [1, 1, 0, 1, 0, 0, 0], 1),
        # One paragraph has a title, the other has none.
        ("paragraphs", _LISTS, [[0, 2]], [1, 1, 0], 1),
        ("paragraphs", _LISTS, [2], [0, 0, 1], 1),
        ("paragraphs", _STRING, ["It rains."], [0, 1], 1),
    )
    def test_labels(self, units, document, selected, expected, number):
        for split in ("train", "dev"):
            stored, counts = self._write(units, document, selected, split=split)
            self.assertEqual(
                [-1, -1, -1, *expected],
                # Padding is not stored.
                stored["is_relevant"],
            )
            self.assertEqual(
                (number, 0, 0),
                tuple(
                    counts[f"selected{x}"]
                    for x in ("", "_cut", "_not_in_document")
                ),
            )

    def test_stored_units(self):
        stored, _ = self._write("texts", _LISTS, [[0, 2]])
        for name, expected in (
            ("global_units", [-1, -1, -1, -1, 0, 1, 2, -1, -1, 3]),
            ("unit_paragraphs", [0, 0, 0, 2]),
            ("unit_numbers", [-1, 0, 2, 0]),
        ):
            self.assertEqual(expected, stored[name])
        self.assertEqual(
            [b"Jan", b"Jan sings.", b"He paints.", b"It rains."],
            stored["units"],
        )
        self.assertEqual([b"[[[0, 2]], []]"], stored["gold"])

    def test_missing_units_are_left_out_of_training(self):
        """The selected unit is cut, or not in the document."""
        for args, sizes, counted in (
            # Room for the CLS, "who ?" and the first of two sentences.
            (("sentences", _STRING, ["It rains."]), {"long_length": 6}, "cut"),
            (("texts", _LISTS, [[0, 1]]), {}, "not_in_document"),
        ):
            stored, counts = self._write(*args, **sizes)
            self.assertIn("is_relevant", stored)
            self.assertEqual(1, counts[f"selected_{counted}"])
            stored, _ = self._write(*args, **sizes, split="train")
            self.assertIsNone(stored)


if __name__ == "__main__":
    tf.test.main()
