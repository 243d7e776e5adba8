from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.demo import demo as demo_lib
from testing.tasks import CommandTestCase
from testing.tasks import run_cli


class DemoCommandTest(CommandTestCase):
    def _config(self, *arguments):
        """Returns the demo's configuration."""
        with mock.patch.object(demo_lib, "main") as main:
            self.assert_succeeds(run_cli("demo", *arguments))
        main.assert_called_once()
        return main.call_args.args[0]

    def test_needs_no_flag(self):
        self.assertEqual(demo_lib.Options(), self._config())

    def test_flags_reach_the_demo(self):
        given = {
            "output_dir": "here",
            "question": __file__,
            "num_train": 5,
            "num_heldout": 6,
            "train_steps": 7,
            "min_accuracy": 0.25,
            "seed": 8,
        }
        self.assertEqual(
            demo_lib.Options(**given),
            self._config(*(f"--{name}={x}" for name, x in given.items())),
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
            result = run_cli("demo", flag)
        self.assert_fails(result, flag, "python -m etcmodel demo --help")
        main.assert_not_called()


if __name__ == "__main__":
    tf.test.main()
