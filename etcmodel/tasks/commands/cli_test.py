import os
import pathlib
import subprocess
import sys
from unittest import mock

import tensorflow as tf
from absl import flags
from absl.testing import parameterized

import etcmodel
from etcmodel.tasks.commands import cli
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.task_testing import run_cli

# The directory that holds the package.
_ROOT = pathlib.Path(etcmodel.__file__).parents[1]


class CliTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((), ("--help",), ("-h",), ("help",))
    def test_general_help(self, *arguments):
        code, out, _ = run_cli(*arguments)
        self.assertEqual(0, code)
        for command in cli.COMMANDS:
            self.assertIn(f"  {command}", out)
        self.assertIn("From a data file to answers", out)

    @parameterized.parameters(*cli.COMMANDS)
    def test_command_help(self, command):
        code, out, err = run_cli(command, "--help")
        self.assertEqual(0, code)
        self.assertEmpty(err)
        self.assertIn("Example:", out)
        self.assertIn(f"python -m etcmodel {command}", out)
        for line in out.splitlines():
            self.assertLessEqual(len(line), 80, line)

    @parameterized.parameters(*cli.COMMANDS)
    def test_every_flag_is_explained(self, command):
        module = cli.importlib.import_module(cli.COMMANDS[command].module)
        flag_values = flags.FlagValues()
        module.define_flags(flag_values)
        for name in flag_values:
            self.assertGreater(len(flag_values[name].help), 10, name)
        self.assertContainsSubset(module.REQUIRED, list(flag_values))

    @parameterized.named_parameters(
        ("command", ["prepro"], "no command 'prepro'. Did you mean 'prepro"),
        ("flag", ["predict", "--inptu=x"], "no flag --inptu. Did you mean"),
        ("missing", ["predict", "--input=x"], "needs --saved_model, --output"),
        ("word", ["predict", "x.json"], "what to do with 'x.json'"),
        ("number", ["predict", "--batch_size=x"], "--batch_size=x"),
        ("bound", ["predict", "--batch_size=0"], "--batch_size=0"),
        ("enum", ["evaluate", "--mode=train"], "--mode=train"),
        (
            "task",
            [
                "preprocess",
                "--task=squad",
                "--input=x",
                "--output_dir=y",
                "--vocab_file=z",
            ],
            "no such task. Choose one of: hotpotqa, nq, read_twice_pretrain, ",
        ),
    )
    def test_mistakes_are_explained(self, arguments, message):
        code, out, err = run_cli(*arguments)
        self.assertEqual(1, code)
        self.assertEmpty(out)
        self.assertStartsWith(err, "Error: ")
        self.assertIn(message, err)
        self.assertNotIn("Traceback", err)

    def test_errors_and_interrupts_end_without_traceback(self):
        for error, expected in (
            (UserError("x is y"), 1),
            (KeyboardInterrupt, 130),
        ):
            with mock.patch.object(
                cli.importlib, "import_module", side_effect=error
            ):
                code, _, err = run_cli("predict")
            self.assertEqual(expected, code)
            self.assertNotIn("Traceback", err)

    def test_environment_is_left_alone_once_tensorflow_is_there(self):
        before = os.environ.get("TF_USE_LEGACY_KERAS")
        cli.prepare_environment()
        self.assertEqual(before, os.environ.get("TF_USE_LEGACY_KERAS"))

    def test_help_does_not_load_tensorflow(self):
        program = (
            "import os, sys\n"
            "from etcmodel.tasks.commands import cli\n"
            "for command in cli.COMMANDS:\n"
            "    assert cli.main([command, '--help']) == 0\n"
            "assert 'tensorflow' not in sys.modules\n"
            "assert os.environ['TF_USE_LEGACY_KERAS'] == '1'\n"
        )
        environment = dict(os.environ)
        environment.pop("TF_USE_LEGACY_KERAS", None)
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=_ROOT,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def test_runs_as_a_module(self):
        done = subprocess.run(
            [sys.executable, "-m", "etcmodel", "nothing"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(1, done.returncode)
        self.assertStartsWith(done.stderr, "Error: There is no command")


if __name__ == "__main__":
    tf.test.main()
