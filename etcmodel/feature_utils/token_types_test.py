import unittest

from etcmodel.feature_utils import token_types


class TokenTypesTest(unittest.TestCase):
    def test_numbers(self):
        # Checkpoints have an embedding for each type, so types cannot change.
        # Type 8 is new: the original code recognizes [CLS] by its token id.
        self.assertEqual(
            {k: v for k, v in vars(token_types).items() if k.isupper()},
            {
                "GLOBAL": 0,
                "SENTENCE": 1,
                "TITLE": 2,
                "QUESTION": 3,
                "CANDIDATE": 4,
                "QUESTION_GLOBAL": 5,
                "CANDIDATE_GLOBAL": 6,
                "PARAGRAPH_GLOBAL": 7,
                "CLS_GLOBAL": 8,
            },
        )


if __name__ == "__main__":
    unittest.main()
