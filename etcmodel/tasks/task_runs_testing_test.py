"""Tests of `task_runs_testing`."""

import tensorflow as tf

from etcmodel.tasks import registry
from etcmodel.tasks import task_runs_testing


class TaskRunsTestingTest(tf.test.TestCase):
    def test_every_task_has_a_run(self):
        """TriviaQA has no code of its own beside NarrativeQA's."""
        self.assertCountEqual(
            registry.tasks(),
            [*task_runs_testing.TASKS, "read_twice_triviaqa"],
        )
        self.assertNotIn("pretrain", task_runs_testing.WITH_ANSWERS)
        self.assertIn("nq", task_runs_testing.WITH_ANSWERS)
        self.assertNotIn("nq", task_runs_testing.READ_TWICE)


if __name__ == "__main__":
    tf.test.main()
