"""Tests of `testing.task_runs`."""

import tensorflow as tf

from etcmodel.tasks import registry
from testing import task_runs


class TaskRunsTestingTest(tf.test.TestCase):
    def test_every_task_has_a_run(self):
        """TriviaQA has no code of its own beside NarrativeQA's."""
        self.assertCountEqual(
            registry.tasks(),
            [*task_runs.TASKS, "read_twice_triviaqa"],
        )
        self.assertNotIn("pretrain", task_runs.WITH_ANSWERS)
        self.assertIn("nq", task_runs.WITH_ANSWERS)
        self.assertNotIn("nq", task_runs.READ_TWICE)


if __name__ == "__main__":
    tf.test.main()
