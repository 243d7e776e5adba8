import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
from unittest import mock

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import parameterized

import etcmodel
from etcmodel import models
from etcmodel.cli import command_line
from etcmodel.cli import flags as flags_lib
from etcmodel.errors import UserError
from etcmodel.pipeline import options
from etcmodel.tasks import registry
from testing import tasks
from testing.keras_version import KERAS_2
from testing.tasks import CommandTestCase
from testing.tasks import run_cli

# The directory that contains the package.
_ROOT = pathlib.Path(etcmodel.__file__).parents[1]
_PRETRAINED = {"task": "pretrain", "experiment": "etc/pretrain"}
_LAST = "--input=note.json --vocab_file=note.json --output_dir=new"
# Command -> flags of all its cases, and further flags -> error message. If a
# flag is repeated, the last one counts.
_CHECKED = {
    "preprocess": (
        f"--task=wikihop {_LAST}",
        {
            "--task=GONE": "GONE: there is no such task",
            "--input=GONE": "GONE: there is no such file",
            "--input=full": "full is a directory",
            "--vocab_file=GONE": "--vocab_file=GONE: there is no such file",
            "--vocab_file=full": "--vocab_file=full is a directory",
            "--output_dir=full": "full exists and is not empty. Choose ",
            "--output_dir=note.json": "note.json is a file",
            "--output_dir=note.json/x --overwrite": "cannot be created",
            "--output_dir=. --overwrite": "was not written by",
            "--output_dir=loop": "loop is a link to loop, which does not exi",
            "--output_dir=full/x --like=full": "full/x is in --like=full",
            "--split=GONE": "--split=GONE: wikihop has no .* of: train, dev",
            "--vocab_file=": "needs --vocab_file or --like",
            "--like=GONE": "--like=GONE: no TFRecord files found",
            "--validation_fraction=1": "expected a number between 0 and 1",
            "--validation_fraction=0.1 --split=dev": "Leave out --split",
        },
    ),
    "lift": (
        "--from=note.json --output_dir=new",
        {
            "--from=GONE": "--from=GONE: there is no such directory or chec",
            "--output_dir=full": "full exists",
            "--output_dir=full/x --from=full": "full/x is in --from=full",
            "--vocab_file=GONE": "--vocab_file=GONE",
            "--model=read_twice --local_radius=4": "--local_radius needs",
        },
    ),
    "experiments": ("", {"GONE": "GONE"}),
    "train": (
        "--experiment=etc/wikihop --model_dir=new --train_data=full",
        {
            "--experiment=GONE": "GONE: there is no such experiment",
            "--train_data=GONE": "--train_data=GONE: no TFRecord files",
            "--validation_data=full,GONE": "--validation_data=GONE: no TFR",
            "--train_data=": "There is no train_data.*--train_data=DIR",
            "--train_data= --params_override=trainer.train_steps=1": (
                "There is no train_data"
            ),
            "--train_data= --config_file=note.json": "There is no train_data",
            "--mode=train_and_eval": "There is no validation_data",
            "--config_file=GONE": "--config_file=GONE",
            "--init_checkpoint=GONE": "--init_checkpoint=GONE",
            "--model_dir=note.json": "note.json is a file",
            "--model_dir=full": "full and --train_data=full are the",
            "--model_dir=model": "model is not a run: it holds saved_model.pb",
            "--model_dir=loop": "loop is a link to loop",
        },
    ),
    "evaluate": (
        "--model_dir=trained --validation_data=full",
        {
            "--model_dir=GONE": "GONE is not the directory of a run",
            "--model_dir=run": "No checkpoint found .model_dir run",
            "--checkpoint=best": "checkpoint best.*Run `train` first",
            "--checkpoint=GONE": "--checkpoint=GONE",
            "--validation_data=GONE": "--validation_data=GONE",
            "--validation_data=": "There is no validation_data",
            "--output=full": "full is a directory",
            "--output=trained/params.yaml": "params.yaml exists and does not",
            "--output=full/x": "full/x is in --validation_data=full",
        },
    ),
    "export": (
        "--model_dir=trained --output_dir=new --vocab_file=note.json",
        {
            "--model_dir=GONE": "GONE is not the directory of a run",
            "--model_dir=run": "No checkpoint found .model_dir run",
            "--model_dir=pretrained": "pretrain is pre-training",
            "--vocab_file=": "no copy of the vocabulary",
            "--vocab_file=GONE": "--vocab_file=GONE",
            "--output_dir=full": "full exists and is not empty",
            "--output_dir=trained/best_ckpt": "best_ckpt is a part of ",
            "--output_dir=. --overwrite": "was not written by this version",
        },
    ),
    "predict": (
        "--saved_model=model --input=note.json --output=new",
        {
            "--saved_model=GONE": "GONE is not a SavedModel",
            "--input=GONE": "GONE: there is no such file",
            "--output=note.json": "note.json exists.*--overwrite",
            "--metrics=note.json": "note.json exists.*--overwrite",
            "--metrics=full --overwrite": "full is a directory",
            "--output=note.json --overwrite": "note.json and --input=note.json",
            "--output=model/x": "model/x is in --saved_model=model",
            "--metrics=new": "--metrics=new and --output=new are",
            "--reading=GONE": "--reading=GONE: wikihop has no such option",
        },
    ),
    "inspect": (
        "--task=wikihop --input=note.json --vocab_file=note.json --output=p",
        {
            "--task=pretrain": "pretrain is pre-training",
            "--input=GONE": "GONE: there is no such file",
            "--vocab_file=GONE": "--vocab_file=GONE",
            "--output=full/file": "full/file exists and is not a picture",
            "--vocab_file=": "needs --vocab_file or --like",
            "--like=GONE": "--like=GONE: no TFRecord files found",
            "--output=x.docx": "--output=x.docx: .* ends in .png, .svg",
            "--output=full": "full is a directory",
        },
    ),
    "serve": (
        "--saved_model=model",
        {
            "--saved_model=": "Give either --saved_model or --model_dir",
            "--saved_model=GONE": "GONE is no SavedModel",
            "--saved_model= --model_dir=GONE": "GONE is not the directory of ",
            "--model_dir=trained": "Give either --saved_model or --model_dir",
            "--example=GONE": "--example=GONE: there is no such file",
            "--model_name=a/b": "--model_name=a/b: choose a name without",
        },
    ),
    "demo": (
        "",
        {
            "--question=GONE": "--question=GONE: there is no such",
            "--output_dir=full --question=full/file": "full contains --questi",
        },
    ),
}


class CliTest(CommandTestCase):
    @parameterized.parameters((), ("--help",), ("-h",), ("help",))
    def test_general_help(self, *arguments):
        out = self.assert_succeeds(run_cli(*arguments))
        for command in command_line.COMMANDS:
            self.assertIn(f"  {command}", out)
        self._assert_fits_a_screen(out)

    def _assert_fits_a_screen(self, text):
        """Asserts that a text fits a terminal's usual 24 lines of 80."""
        self.assertLessEqual(len(text.splitlines()), 24, text)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_version(self):
        out = self.assert_succeeds(run_cli("--version"))
        self.assertRegex(out, r"^etcmodel \d+\.\d+\.\d+ .TensorFlow \d+\.\d+")

    @parameterized.parameters(*command_line.COMMANDS)
    def test_command_help(self, command):
        brief = self.assert_succeeds(run_cli(command, "--help"))
        self._assert_fits_a_screen(brief)
        self.assertIn("--helpfull", brief)
        out = self.assert_succeeds(run_cli(command, "--helpfull"))
        module = command_line.load(command)
        for text in (brief, out):
            self.assertIn("Example:", text)
            self.assertIn(f"python -m etcmodel {command}", text)
        for line in out.splitlines():
            self.assertLessEqual(len(line), 80, line)
        flag_values = flags.FlagValues()
        flags_lib.define(flag_values, module.Options)
        common = getattr(module, "COMMON_FLAGS", flag_values)
        for name in flag_values:
            self.assertGreater(len(flag_values[name].help), 10, name)
            self.assertRegex(out, rf"(?m)^  --(\[no\])?{name}\b")
        for name in (*common, *options.required(module.Options)):
            # Some are flags of a task.
            if name in flag_values:
                self.assertRegex(brief, rf"(?m)^  --(\[no\])?{name}\b")
        required = options.required(module.Options)
        if not required:
            return
        needed = ", ".join(f"--{name}" for name in required)
        self.assert_fails(run_cli(command), f"{command} needs {needed}")

    @parameterized.parameters(*registry.tasks())
    def test_help_of_a_task(self, task):
        result = run_cli("preprocess", f"--task={task}", "--help")
        brief = self.assert_succeeds(result)
        self._assert_fits_a_screen(brief)
        self.assertIn("--vocab_file", brief)

    def test_help_names_the_presets(self):
        for command in ("train", "lift"):
            flag_values = flags.FlagValues()
            flags_lib.define(flag_values, command_line.load(command).Options)
            words = re.findall(r"\w+", flag_values["preset"].help)
            for config in (models.EtcConfig, models.ReadTwiceConfig):
                self.assertContainsSubset(config._PRESETS, words)

    def test_flags_of_a_task(self):
        out = self.assert_succeeds(run_cli("preprocess", "--helpfull"))
        self.assertNotIn("--stride", out)
        self.assertIn("--task=TASK --help", out)
        for task in ("--task=nq", "--task nq"):
            arguments = f"preprocess {task} --helpfull".split()
            out = self.assert_succeeds(run_cli(*arguments))
            self.assertRegex(
                out, r"--stride \(default: 2048\)\n +Tokens of the"
            )
            self.assertIn("--[no]include_html_tokens (default: True)", out)
        # Some flags are inherited from a base class of the task's options.
        out = self.assert_succeeds(
            run_cli("preprocess", "--helpfull", "--task=read_twice_pretrain")
        )
        self.assertIn("--block_length (default: 512)", out)
        self.assertIn("--num_blocks_per_example (default: 128)", out)
        common = f"--input={__file__} --output_dir=y --vocab_file={__file__}"
        for flag, message in (
            ("--fixed_block_size=0 --input=/none", "there is no such file"),
            ("--stride=0", "--stride=0"),
            ("--include_unknown_rate=-1", "--include_unknown_rate=-1"),
            ("--max_num_sentences=9", "no flag --max_num_sentences.*=nq --h"),
            ("--long_length=9", "are inconsistent: long_length is 9"),
        ):
            arguments = f"preprocess --task=nq {common} {flag}".split()
            self.assert_fails(run_cli(*arguments), message)
        self.assert_fails(
            run_cli("preprocess", "--long_length=9"), "--task=TASK --help"
        )

    @parameterized.named_parameters(
        ("command", "prepro", "no command 'prepro'. Did you mean prepro"),
        ("flag", "predict --inptu=x", "no flag --inptu. Did you mean --input?"),
        ("missing", "predict --input=x", "predict needs --saved_model. See"),
        ("word", "predict x.json", "unexpected argument 'x.json'"),
        ("number", "predict --batch_size=x", "--batch_size=x"),
        ("bound", "predict --batch_size=0", "--batch_size=0"),
        ("enum", "train --mode=eval", "--mode=eval"),
        (
            "task",
            "preprocess --task=a --input=x --output_dir=y --vocab_file=z",
            "no such task. Choose one of: answer, classify, hotpotqa, nq, ",
        ),
    )
    def test_mistakes_are_explained(self, arguments, message):
        self.assert_fails(run_cli(*arguments.split()), message)

    def _fail(self, error, *arguments):
        """Runs a command whose module cannot be loaded because of `error`."""
        with mock.patch.object(command_line, "load", side_effect=error):
            return run_cli("predict", *arguments)

    def test_errors_and_interrupts_end_without_traceback(self):
        self.assert_fails(self._fail(UserError("x is y")), "x is y")
        code, _, err = self._fail(KeyboardInterrupt)
        self.assertEqual((130, "\npredict was interrupted.\n"), (code, err))
        before = signal.getsignal(signal.SIGTERM)

        def terminate(name):
            del name
            signal.raise_signal(signal.SIGTERM)

        code, _, err = self._fail(terminate)
        self.assertEqual((143, "\npredict was interrupted.\n"), (code, err))
        self.assertEqual(before, signal.getsignal(signal.SIGTERM))
        # Bugs of this package show a traceback.
        with self.assertRaises(ValueError):
            self._fail(ValueError)

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
        self.assert_fails(self._fail(error), message)
        with self.assertRaises(type(error)):
            self._fail(error, "--debug")

    def _write(self, *names, content=None):
        path = self.path(*names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tasks.write_json(path, content or {})

    def test_options_are_checked_before_tensorflow_is_loaded(self):
        """Loading TensorFlow takes seconds, so this test blocks its import."""
        self._write("full", "file")
        self._write("note.json")
        os.symlink("loop", self.path("loop"))
        note = {"task": "wikihop", "experiment": "etc/wikihop"}
        params = {"task": {"model": {}}, "trainer": {"validation_steps": -1}}
        for name in ("run", "trained"):
            self._write(name, "etcmodel.json", content=note)
            self._write(name, "params.yaml", content=params)
        self._write("trained", "checkpoint")
        self._write("pretrained", "etcmodel.json", content=_PRETRAINED)
        self._write("pretrained", "params.yaml", content=params)
        self._write("model", "saved_model.pb")
        exported = {**note, "options": {}}
        self._write("model", "assets.extra", "etcmodel.json", content=exported)
        self.assertEqual(set(command_line.COMMANDS), set(_CHECKED))
        commands = [
            (f"{name} {common} {flags}", message)
            for name, (common, cases) in _CHECKED.items()
            for flags, message in cases.items()
        ]
        script = (
            "import sys\n"
            "sys.modules['tensorflow'] = None\n"
            "from etcmodel.cli import command_line\n"
            "for name in command_line.COMMANDS:\n"
            "    assert command_line.main([name, '--help']) == 0\n"
            "for command in sys.argv[1:]:\n"
            "    print(command_line.main(command.split()), file=sys.stderr)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *(x for x, _ in commands)],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stderr.splitlines()
        self.assertLen(lines, 2 * len(commands), done.stderr)
        for (command, message), error, code in zip(
            commands, lines[::2], lines[1::2], strict=True
        ):
            self.assertRegex(error, f"^Error: .*{message}", command)
            self.assertEqual("1", code, command)
        # Nothing was written.
        self.assertEqual(
            [
                *("full", "loop", "model", "note.json", "pretrained"),
                *("run", "trained"),
            ],
            sorted(os.listdir(self.directory)),
        )

    def test_every_path_is_checked(self):
        """Flags with a name like a path's are declared as paths."""
        named = ("_dir", "_file", "_data", "output", "input", "checkpoint")
        for command in command_line.COMMANDS:
            module = command_line.load(command)
            declared = options.paths(module.Options)
            for field in dataclasses.fields(module.Options):
                if field.name.endswith(named):
                    self.assertIn(field.name, declared, command)

    def test_environment_is_kept_once_tensorflow_is_loaded(self):
        with mock.patch.dict(os.environ, TF_USE_LEGACY_KERAS="as it was"):
            command_line.prepare_environment()
            self.assertEqual("as it was", os.environ["TF_USE_LEGACY_KERAS"])

    @pytest.mark.both_kerases
    def test_training_needs_keras_2(self):
        os.mkdir(self.path("records"))
        records = self.path("records", "a.tfrecord")
        with open(records, "wb"):
            pass
        self.assert_fails(
            run_cli(
                *("train", "--experiment=etc/wikihop"),
                *(f"--train_data={records}", f"--model_dir={self.path('x')}"),
            ),
            records if KERAS_2 else "TF_USE_LEGACY_KERAS=1",
        )

    def test_training_chooses_its_keras_itself(self):
        environment = dict(os.environ)
        environment.pop("TF_USE_LEGACY_KERAS", None)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "etcmodel", "train"),
                *("--experiment=etc/wikihop", f"--model_dir={self.path('x')}"),
                '--params_override={"task": {"train_data": {"input_path": '
                '""}}}',
            ],
            cwd=_ROOT,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        self.assertEqual(1, done.returncode)
        # This error occurs after the Model Garden, which needs Keras 2, is
        # imported.
        self.assertRegex(done.stderr, "(?m)^Error: There is no train_data")
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    tf.test.main()
