"""Tests of parsing reprs; sources_conformance_test.py tests them in fields."""

from absl.testing import absltest
from absl.testing import parameterized

from etcmodel.readers import reprs


class ReprsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("[['a' 'b']\n ['c' 'd']]", [["a", "b"], ["c", "d"]]),
        ("[ True False]", [True, False]),
        ("[-1.   2.5e-03]", [-1.0, 0.0025]),
        ("['a' nan \"it's\"]", ["a", None, "it's"]),
        ("['a', nan]", ["a", None]),
        ("{'a', 'b'}", {"a", "b"}),
        ("[('a', 1) ('b', 2)]", [("a", 1), ("b", 2)]),
        ("[{'a': 1}\n {'a': 2}]", [{"a": 1}, {"a": 2}]),
        ("array([list(['a']), list([])], dtype=object)", [["a"], []]),
        ("['' \"a''b\" 'x[1,]']", ["", "a''b", "x[1,]"]),
        ("[np.True_, np.False_]", [True, False]),
        ("[datetime.date(2020, 1, 2)]", ["2020-01-02"]),
        (
            "[Timestamp('2020-01-01 10:00:00'), NaT]",
            ["2020-01-01 10:00:00", None],
        ),
        ("[Decimal('1.50'), np.int64(2)]", [1.5, 2]),
        ("tensor([1, 2])", [1, 2]),
        (
            "{'text': array(['a'], dtype=object), 'n': [np.str_('b')]}",
            {"text": ["a"], "n": ["b"]},
        ),
    )
    def test_reprs(self, text, expected):
        self.assertEqual(expected, reprs.read(text))

    @parameterized.parameters(
        "[1-2]",
        "[see 3]",
        "[1], [2]",
        "[1]\n[2]",
        "(1, 2)",
        "{...}",
        "[2-1j]",
        "np.save('a')",
        "np.arange(10)",
        "set('hello')",
        "Timestamp(2020)",
        "How?\n0    1\ndtype: int64",
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
    def test_texts_that_look_like_reprs(self, text):
        self.assertEqual(text, reprs.read(text))

    def test_warnings_are_not_shown(self):
        """Hides Python's warnings about unknown escapes."""
        self.assertEqual(["\\d"], reprs.read("['\\\\d']"))

    @parameterized.parameters(
        "['a' ... 'b']",
        "[[0 1 ... 8 9]\n ...\n [1 2 ... 3]]",
        "array(['a', ..., 'b'], dtype=object)",
        "[<tf.Tensor: x>, <tf.Tensor: y>]",
        "<function f at 0x7f00>",
        "0    1\n1    2\nName: c, dtype: datetime64[ns, UTC]",
        "{'a': 1, 'a': 2}",
    )
    def test_errors(self, text):
        with self.assertRaises(reprs.UnreadableError):
            reprs.read(text)


if __name__ == "__main__":
    absltest.main()
