"""Tests of converting single cells.

sources_conformance_test.py tests the values of all sources.
"""

import decimal
import enum
import json

from absl.testing import absltest

from etcmodel.readers import cells


class CellsTest(absltest.TestCase):
    def test_nested_too_deeply(self):
        value = []
        for _ in range(100_000):
            value = [value]
        self.assertIsInstance(cells.read_cell(value), cells.BadCell)
        text = "[" * 100_000 + "]" * 100_000
        self.assertEqual(text, cells.read_cell(text))

    def test_numbers_of_many_digits(self):
        for value in (
            10**5000,
            decimal.Decimal("1E+200000"),
            "Decimal('1E+5000')",
        ):
            self.assertIsInstance(cells.read_cell(value), cells.BadCell)
        self.assertIsNone(cells.read_cell(decimal.Decimal("sNaN")))

    def test_members_of_enumerations(self):
        class Label(str, enum.Enum):
            SPORT = "sport"

        class Number(enum.IntEnum):
            TWO = 2

        found = cells.read_cell([Label.SPORT, Number.TWO])
        self.assertEqual(["sport", 2], found)
        self.assertEqual([str, int], [*map(type, found)])

    def test_a_list_of_numbers_keeps_its_text(self):
        found = cells.read_cell(" [1, 2]")
        self.assertEqual(([1, 2], " [1, 2]"), (found, found.text))
        self.assertEqual(" [1, 2]", cells.to_json(found))
        self.assertNotIsInstance(cells.read_cell("['a']"), cells.Printed)

    def test_bad_cell_in_json(self):
        bad = cells.read_cell({"a": 1j})
        self.assertIn("of type complex", bad.problem)
        stored = json.loads(json.dumps(cells.to_json(bad)))
        self.assertEqual(bad, cells.read_cell(stored))


if __name__ == "__main__":
    absltest.main()
