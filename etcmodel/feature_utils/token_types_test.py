import unittest

from etcmodel.feature_utils import token_types


class TokenTypesTest(unittest.TestCase):
    def test_the_original_numbers(self):
        # Checkpoints have learned an embedding for each number.
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
            },
        )


if __name__ == "__main__":
    unittest.main()
