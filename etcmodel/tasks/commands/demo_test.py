from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.demo import demo as demo_lib
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.task_testing import run_cli


class DemoCommandTest(tf.test.TestCase, parameterized.TestCase):
    def _config(self, *arguments):
        """What the demo is told to do."""
        with mock.patch.object(demo_lib, "main") as main:
            code, _, err = run_cli("demo", *arguments)
        self.assertEqual((0, ""), (code, err))
        main.assert_called_once()
        return main.call_args.args[0]

    def test_needs_no_flag(self):
        self.assertEqual(demo_lib.DemoConfig(), self._config())

    def test_flags_reach_the_demo(self):
        self.assertEqual(
            demo_lib.DemoConfig(
                output_dir="here",
                question="mine.json",
                num_train=5,
                num_heldout=6,
                train_steps=7,
                min_accuracy=0.25,
                seed=8,
            ),
            self._config(
                "--output_dir=here",
                "--question=mine.json",
                "--num_train=5",
                "--num_heldout=6",
                "--train_steps=7",
                "--min_accuracy=0.25",
                "--seed=8",
            ),
        )

    @parameterized.parameters(
        "--num_train=0",
        "--num_heldout=0",
        "--train_steps=0",
        "--min_accuracy=1.5",
        "--seed=x",
    )
    def test_values_out_of_range(self, flag):
        with mock.patch.object(demo_lib, "main") as main:
            code, _, err = run_cli("demo", flag)
        self.assertEqual(1, code)
        self.assertIn(flag, err)
        self.assertIn("python -m etcmodel demo --help", err)
        main.assert_not_called()

    def test_failure_is_told_and_is_the_exit_code(self):
        error = UserError("The model got 20% right; 95% was expected.")
        with mock.patch.object(demo_lib, "main", side_effect=error):
            code, _, err = run_cli("demo")
        self.assertEqual((1, f"Error: {error}\n"), (code, err))


if __name__ == "__main__":
    tf.test.main()
