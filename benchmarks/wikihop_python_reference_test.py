"""Tests of `wikihop_python_reference`: the description's worked examples."""

from absl.testing import absltest

from benchmarks import wikihop_python_reference as reference


class WikiHopPythonReferenceTest(absltest.TestCase):
    def test_truncate(self):
        one = [[1] * 4, [1] * 2, [1] * 4]
        self.assertEqual(reference.truncate(one, 7, 99), [2, 2, 3])
        self.assertEqual(reference.truncate(one, 99, 3), [1, 1, 1])

    def test_find_mentions(self):
        tokens = {"a b a b a": [1, 2, 1, 2, 1], "a b a": [1, 2, 1]}
        self.assertEqual(
            reference.find_mentions("a b a b a", "A b a", tokens.get),
            [(0, 2), (2, 4)],
        )


if __name__ == "__main__":
    absltest.main()
