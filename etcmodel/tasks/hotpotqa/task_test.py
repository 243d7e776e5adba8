import unittest

from etcmodel.tasks.hotpotqa.task import TASK


class TaskTest(unittest.TestCase):
    def test_thresholds_of_the_paper(self):
        expected = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        self.assertEqual(expected, TASK.tuned.values)


if __name__ == "__main__":
    unittest.main()
