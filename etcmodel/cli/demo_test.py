from unittest import mock

import tensorflow as tf

from etcmodel.demo import demo as demo_lib
from testing.tasks import CommandTestCase
from testing.tasks import run_cli


class DemoCommandTest(CommandTestCase):
    def _config(self, *arguments):
        """Runs the command with a fake demo; returns the demo's options."""
        with mock.patch.object(demo_lib, "main") as main:
            self.assert_succeeds(run_cli("demo", *arguments))
        main.assert_called_once()
        return main.call_args.args[0]

    def test_needs_no_flag(self):
        self.assertEqual(demo_lib.Options(), self._config())

    def test_flags_reach_the_demo(self):
        given = {"output_dir": "here", "question": __file__}
        self.assertEqual(
            demo_lib.Options(**given),
            self._config(*(f"--{name}={x}" for name, x in given.items())),
        )


if __name__ == "__main__":
    tf.test.main()
