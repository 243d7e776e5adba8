"""Values of fields; sources_conformance_test.py has them in all sources."""

import json

from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.datasets import cells


class CellsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("[['a' 'b']\n ['c' 'd']]", [["a", "b"], ["c", "d"]]),
        ("[ True False]", [True, False]),
        ("[-1.   2.5e-03]", [-1.0, 0.0025]),
        ("['a' nan \"it's\"]", ["a", None, "it's"]),
        ("['a', nan]", ["a", None]),
        ("{'a', 'b'}", ["a", "b"]),
        ("[datetime.date(2020, 1, 2)]", ["2020-01-02"]),
        ("[Decimal('1.50'), np.int64(2)]", [1.5, 2]),
        ("tensor([1, 2])", [1, 2]),
        (
            "{'text': array(['a'], dtype=object), 'n': [np.str_('b')]}",
            {"text": ["a"], "n": ["b"]},
        ),
    )
    def test_prints(self, text, expected):
        self.assertEqual(expected, cells.read_cell(text))

    @parameterized.parameters(
        "[1-2]",
        "[see 3]",
        "['it''s']",
        "[a, b",
        "(1)",
        "(-1)",
        "('a')",
        "print(1)",
        "{'a' 'b'}",
        "[007 1]",
        "array",
        "array(",
        "array([f(x)])",
        "<b>bold</b>",
        "[\\d]",
        "[1] and [2]",
        "a\ndtype: object and more",
    )
    def test_texts_that_look_like_prints(self, text):
        self.assertEqual(text, cells.read_cell(text))

    def test_warnings_are_not_shown(self):
        """Python warns of escapes that it does not know."""
        self.assertEqual(["\\d"], cells.read_cell("['\\\\d']"))

    def test_nested_too_deeply(self):
        value = []
        for _ in range(100_000):
            value = [value]
        self.assertIsInstance(cells.read_cell(value), cells.BadCell)
        text = "[" * 100_000 + "]" * 100_000
        self.assertEqual(text, cells.read_cell(text))

    def test_a_value_that_cannot_be_read_in_json(self):
        bad = cells.read_cell({"a": 1j})
        self.assertIn("of the type complex", bad.problem)
        stored = json.loads(json.dumps(cells.to_json(bad)))
        self.assertEqual(bad, cells.read_cell(stored))


if __name__ == "__main__":
    absltest.main()
