"""Tests of `nq_python_reference`: what random records do not reach."""

from absl.testing import absltest

from benchmarks import nq_python_reference as reference

VOCAB = {"[CLS]": 2, "[SEP]": 3, "[unused0]": 4, "[unused2]": 5}


class NQPythonReferenceTest(absltest.TestCase):
    def test_the_last_global_token_is_shared(self):
        pieces = [reference.Piece(9, 7, candidate) for candidate in range(3)]
        made = reference.make_window([8], pieces, VOCAB, 7, 3)
        self.assertEqual(made["long_token_ids"], [2, 8, 3, 9, 9, 9, 3])
        self.assertEqual(made["long_sentence_ids"], [0, 1, -1, 2, 2, 2, -1])
        self.assertEqual(made["global_token_ids"], [2, 5, 4])


if __name__ == "__main__":
    absltest.main()
