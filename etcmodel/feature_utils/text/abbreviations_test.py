"""Tests of `abbreviations`; `sentences_test.py` tests them in sentences."""

import tensorflow as tf

from etcmodel.feature_utils.text import abbreviations


class AbbreviationsTest(tf.test.TestCase):
    def test_alternatives(self):
        table = {"de": "z.~B vgl", "it": "ca"}
        for least, capitals in ((None, []), (3, ["Vgl", "Z.B"])):
            pattern = abbreviations.alternatives(table, least)
            for text in ("z. B", "z.B", "z.\u00a0B", "vgl", "ca", *capitals):
                self.assertTrue(tf.strings.regex_full_match(text, pattern))
            for text in ("z.  B", "z-B", "zB", "Ca", "vg", "VGL", "z. BC"):
                self.assertFalse(tf.strings.regex_full_match(text, pattern))

    def test_tables(self):
        """Each entry lacks its last period, and is in one table only."""
        never, often, numbered = (
            set(" ".join(table.values()).split())
            for table in (
                abbreviations.NEVER_LAST,
                abbreviations.OFTEN_LAST,
                abbreviations.NUMBERED,
            )
        )
        self.assertEmpty(never & (often | numbered))
        for entry in never | often | numbered:
            self.assertNotEndsWith(entry, ".")


if __name__ == "__main__":
    tf.test.main()
