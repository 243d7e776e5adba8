import unittest

from etcmodel.errors import UserError
from etcmodel.tasks.pretrain.task import TASK


class TaskTest(unittest.TestCase):
    def test_impossible_sizes(self):
        for name, value, message in (
            ("min_sentences", 0, "min_sentences is 0, expected at least 1"),
            ("long_length", -1, "long_length is -1"),
            ("global_length", 0, "global_length is 0"),
            ("documents", "pages", "'pages', expected one of auto, blank_lin"),
        ):
            with self.assertRaisesRegex(UserError, message):
                TASK.make_preprocessing_config({name: value})


if __name__ == "__main__":
    unittest.main()
