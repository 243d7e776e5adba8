import unittest

from etcmodel.errors import UserError
from etcmodel.tasks.read_twice_pretrain.task import TASK


class TaskTest(unittest.TestCase):
    def test_impossible_sizes(self):
        for name, value, message in (
            ("block_length", 1, "inconsistent: block_length is 1"),
            ("documents", "pages", "'pages', expected one of auto, blank_lin"),
            ("long_length", 9, "has no such size"),
        ):
            with self.assertRaisesRegex(UserError, message):
                TASK.make_preprocessing_config({name: value})


if __name__ == "__main__":
    unittest.main()
