import os
from unittest import mock

import tensorflow as tf

from etcmodel.engine import dry_run
from etcmodel.engine import runner as runner_lib
from etcmodel.errors import UserError
from etcmodel.training import damaged_records
from testing import tasks
from testing.models import small_records


class DryRunTest(tasks.CommandTestCase):
    def test_describes_two_steps(self):
        records = small_records("wikihop")
        model_dir = self.path("run")
        out = self.assert_succeeds(
            tasks.run_cli(
                "train",
                "--experiment=etc/wikihop",
                f"--model_dir={model_dir}",
                f"--train_data={records}",
                "--small",
                "--batch_size=3",
                "--dry_run",
                "--params_override=task.model.encoder.num_hidden_layers=1",
            )
        )
        # Nine records in batches of 3 for 15 epochs are 45 steps.
        self.assertIn("9 examples in batches of 3: 3 steps an epoch", out)
        self.assertIn("  long_token_ids: int32(3, 24)\n", out)
        self.assertIn("  global_token_ids: int32(3, 16)\n", out)
        for pattern in (
            r"Parameters: \d+,\d+\n",
            r"Loss: 1\.\d+",
            r"Peak memory of the process: \d+\.\d+ GB",
            r"First step, with tracing: \d+\.\d s",
            r"Next step: \d+\.\d+ s; 45 steps: ",
        ):
            self.assertRegex(out, pattern)
        self.assertFalse(os.path.exists(model_dir))

    def test_damaged_records_are_named(self):
        runner = mock.MagicMock()
        runner.trainer.train.side_effect = tf.errors.DataLossError(
            None, None, "truncated record"
        )
        with (
            mock.patch.object(
                runner_lib, "make_runner", return_value=(None, runner)
            ),
            mock.patch.object(
                damaged_records, "find", return_value=UserError("x is damaged")
            ) as find,
            self.assertRaisesRegex(UserError, "x is damaged"),
        ):
            dry_run.describe(mock.MagicMock())
        find.assert_called_once_with(runner.trainer.task)


if __name__ == "__main__":
    tf.test.main()
