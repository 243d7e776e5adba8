import unittest

from tools import compare_checkouts


class DifferencesTest(unittest.TestCase):
    def compare(self, first, second, **options):
        found = compare_checkouts.Differences(**options)
        found.compare("x", first, second)
        return found

    def test_common_fields_and_fields_of_one(self):
        first = {"a": 1, "b": [1, 2, 3], "old": "x", "gone": 1, "path": "/1"}
        second = {"a": 2, "b": [1, 5, 6], "new": "x", "path": "/2"}
        found = self.compare(
            first, second, renames={"old": "new"}, ignored=["path"]
        )
        self.assertCountEqual(
            ["x: a: 1 -> 2", "x: b [1]: 2 -> 5"], found.different
        )
        self.assertEqual({"only the first has x: gone": 1}, found.only)
        found = self.compare([{"a": 1}] * 3, [{"b": 1}] * 2)
        self.assertEqual(["x: 3 -> 2 values"], found.different)
        self.assertEqual(
            {
                "only the first has x [N]: a": 2,
                "only the second has x [N]: b": 2,
            },
            found.only,
        )

    def test_tolerance_applies_to_numbers(self):
        for first, second, is_same in (
            (1.0, 1.00001, True),
            (1e-9, 0.0, True),
            (1e6, 1e6 + 1, True),
            (1.0, 1.1, False),
            (1, "1", False),
            ([1.0], [1.1], False),
        ):
            found = self.compare(first, second, tolerance=1e-4)
            self.assertEqual(is_same, not found.different, (first, second))
        self.assertTrue(self.compare(1.0, 1.00001).different)


if __name__ == "__main__":
    unittest.main()
