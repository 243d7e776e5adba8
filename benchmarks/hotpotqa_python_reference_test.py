"""Tests of `hotpotqa_python_reference`: answers in real texts are rarely so."""

from absl.testing import absltest

from benchmarks import hotpotqa_python_reference as reference


class HotpotQAPythonReferenceTest(absltest.TestCase):
    def test_find_answer(self):
        for texts, answer, expected in (
            (["arty Art", "art, part art"], " art ", [(1, 0, 3), (1, 10, 13)]),
            (["arty Art", "part"], "art", [(0, 5, 8)]),
            (["arty", "pARt"], "art", [(0, 0, 3)]),
            (["İ ART, part"], "art", [(0, 2, 5)]),
            (["İ ART, is"], "art", [(0, 2, 5)]),
            (["a"], " ", []),
        ):
            self.assertEqual(reference.find_answer(texts, answer), expected)


if __name__ == "__main__":
    absltest.main()
