import tensorflow as tf
from absl.testing import parameterized

from benchmarks import compiled_steps
from benchmarks import program
from etcmodel.tasks import registry
from etcmodel.training import configuration  # noqa: F401  Needs Keras 2.
from testing import task_runs


class CompiledStepsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        next(iter(registry.get(task).experiments)) for task in task_runs.TASKS
    )
    def test_finds_nothing_in(self, experiment):
        values = program.parse(
            compiled_steps.PROGRAM, f"--experiments={experiment}"
        )
        (line,) = program.run(compiled_steps.PROGRAM, values)
        self.assertEqual("", line["first"])
        self.assertEqual(0, line["offenders"])


if __name__ == "__main__":
    tf.test.main()
