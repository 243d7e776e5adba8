import os
import pathlib
import subprocess
import sys
from unittest import mock

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import parameterized

import etcmodel
from etcmodel.errors import UserError
from etcmodel.tasks.commands import cli
from etcmodel.tasks.commands import options
from etcmodel.tasks.frame.experiments_test import KERAS_2
from etcmodel.tasks.task_testing import CommandTestCase
from etcmodel.tasks.task_testing import run_cli

# The directory that holds the package.
_ROOT = pathlib.Path(etcmodel.__file__).parents[1]


class CliTest(CommandTestCase):
    @parameterized.parameters((), ("--help",), ("-h",), ("help",))
    def test_general_help(self, *arguments):
        out = self.assert_succeeds(run_cli(*arguments))
        for command in cli.COMMANDS:
            self.assertIn(f"  {command}", out)
        self.assertIn("From a data file to answers", out)

    @parameterized.parameters(*cli.COMMANDS)
    def test_command_help(self, command):
        out = self.assert_succeeds(run_cli(command, "--help"))
        self.assertIn("Example:", out)
        self.assertIn(f"python -m etcmodel {command}", out)
        for line in out.splitlines():
            self.assertLessEqual(len(line), 80, line)
        module = cli.load(command)
        flag_values = flags.FlagValues()
        options.define(flag_values, module.Flags)
        for name in flag_values:
            self.assertGreater(len(flag_values[name].help), 10, name)
            self.assertRegex(out, rf"(?m)^  --(\[no\])?{name}\b")
        required = options.required(module.Flags)
        if not required:
            return
        needed = ", ".join(f"--{name}" for name in required)
        self.assert_fails(run_cli(command), f"{command} needs {needed}")

    def test_flags_of_a_task(self):
        out = self.assert_succeeds(run_cli("preprocess", "--help"))
        self.assertNotIn("--stride", out)
        self.assertIn("--task=TASK --help", out)
        for arguments in (["--task=nq"], ["--task", "nq"]):
            out = self.assert_succeeds(
                run_cli("preprocess", *arguments, "--help")
            )
            self.assertRegex(out, r"--stride \(default: 2048\)\n +How many tok")
            self.assertIn("--[no]include_html_tokens (default: True)", out)
        # Some sizes are those of a class that the task's own stands on.
        out = self.assert_succeeds(
            run_cli("inspect", "--help", "--task=read_twice_pretrain")
        )
        self.assertIn("--block_length (default: 512)", out)
        self.assertIn("--num_blocks_per_example (default: 128)", out)
        needed = "--input=/no/such --output_dir=y --vocab_file=z"
        for flag, message in (
            ("--fixed_block_size=0", "there is no such file"),
            ("--stride=0", "--stride=0"),
            ("--include_unknown_rate=-1", "--include_unknown_rate=-1"),
            ("--max_num_sentences=9", "no flag --max_num_sentences.*=nq --h"),
            ("--long_length=9", "do not fit: long_length is 9"),
        ):
            result = run_cli("preprocess", "--task=nq", flag, *needed.split())
            self.assert_fails(result)
            self.assertRegex(result[2], message)
        self.assert_fails(
            run_cli("preprocess", "--long_length=9"), "--task=TASK --help"
        )

    @parameterized.named_parameters(
        ("command", "prepro", "no command 'prepro'. Did you mean 'prepro"),
        ("flag", "predict --inptu=x", "no flag --inptu. Did you mean"),
        ("missing", "predict --input=x", "needs --saved_model, --output"),
        ("word", "predict x.json", "what to do with 'x.json'"),
        ("number", "predict --batch_size=x", "--batch_size=x"),
        ("bound", "predict --batch_size=0", "--batch_size=0"),
        ("enum", "evaluate --mode=train", "--mode=train"),
        (
            "task",
            "preprocess --task=a --input=x --output_dir=y --vocab_file=z",
            "no such task. Choose one of: hotpotqa, nq, openkp, pretrain, ",
        ),
    )
    def test_mistakes_are_explained(self, arguments, message):
        self.assert_fails(run_cli(*arguments.split()), message)

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

    @parameterized.parameters(
        (
            tf.errors.ResourceExhaustedError(
                None, None, "Graph execution error:\n\nOOM when allocating."
            ),
            "predict failed: OOM when allocating. Use a smaller --batch_size",
        ),
        (OSError(28, "No space left on device"), "Make room on the disk"),
        (
            tf.errors.DataLossError(None, None, "corrupted record at 12"),
            "again",
        ),
        (tf.errors.InternalError(None, None, ""), "InternalError. --debug"),
    )
    def test_errors_of_the_machine(self, error, message):
        with mock.patch.object(
            cli.importlib, "import_module", side_effect=error
        ):
            self.assert_fails(run_cli("predict"), message)
            with self.assertRaises(type(error)):
                run_cli("predict", "--debug")

    def test_files_are_looked_for_before_anything_is_loaded(self):
        """TensorFlow takes seconds, and a model more."""
        commands = (
            "preprocess --task=nq --input=GONE --vocab_file=v --output_dir=o",
            "train --experiment=etc/nq --model_dir=m --train_data=GONE",
            "train --experiment=GONE --model_dir=m",
            "evaluate --model_dir=GONE",
            "export --model_dir=GONE --output_dir=o",
            "predict --saved_model=s --input=GONE --output=o",
            "predict --saved_model=GONE --input=/dev/null --output=o",
            "inspect --task=nq --input=GONE --vocab_file=v --output=o",
            "experiments GONE",
        )
        script = (
            "import sys\n"
            "from etcmodel.tasks.commands import cli\n"
            "for command in sys.argv[1:]:\n"
            "    print(cli.main(command.split()), file=sys.stderr)\n"
            "    assert 'tensorflow' not in sys.modules, command\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *commands],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stderr.splitlines()
        self.assertLen(lines, 2 * len(commands), done.stderr)
        for message, code in zip(lines[::2], lines[1::2], strict=True):
            self.assertRegex(message, "Error: .*GONE")
            self.assertEqual("1", code)

    def test_mistakes_of_ours_are_not_hidden(self):
        with mock.patch.object(
            cli.importlib, "import_module", side_effect=ValueError
        ):
            with self.assertRaises(ValueError):
                run_cli("predict")

    def test_environment_is_left_alone_once_tensorflow_is_there(self):
        with mock.patch.dict(os.environ, TF_USE_LEGACY_KERAS="as it was"):
            cli.prepare_environment()
            self.assertEqual("as it was", os.environ["TF_USE_LEGACY_KERAS"])

    @parameterized.parameters(
        ("train --experiment=etc/wikihop", "no train_data"),
        ("evaluate --experiment=etc/nq", "no validation_data"),
        ("export --experiment=etc/hotpotqa --output_dir=x", "not the dir"),
    )
    @pytest.mark.both_kerases
    def test_training_needs_keras_2(self, arguments, message):
        self.assert_fails(
            run_cli(*arguments.split(), "--model_dir=/no/such"),
            message if KERAS_2 else "TF_USE_LEGACY_KERAS=1",
        )

    def test_help_does_not_load_tensorflow(self):
        done = _run_in_a_shell(
            "-c",
            "import sys\n"
            "from etcmodel.tasks.commands import cli\n"
            "for command in cli.COMMANDS:\n"
            "    assert cli.main([command, '--help']) == 0\n"
            "assert 'tensorflow' not in sys.modules\n",
        )
        self.assertEqual(0, done.returncode, done.stderr)

    def test_training_chooses_its_keras_itself(self):
        done = _run_in_a_shell(
            *("-m", "etcmodel", "train", "--experiment=etc/wikihop"),
            f"--model_dir={self.path('run')}",
        )
        self.assertEqual(1, done.returncode)
        # The configuration of the Model Garden is there, which needs Keras 2.
        self.assertIn("no train_data", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


def _run_in_a_shell(*arguments):
    """Runs Python as a user does, who has set nothing."""
    environment = dict(os.environ)
    environment.pop("TF_USE_LEGACY_KERAS", None)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=_ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )


if __name__ == "__main__":
    tf.test.main()
