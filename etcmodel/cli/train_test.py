import os
import shutil
from unittest import mock

import tensorflow as tf
import yaml
from absl.testing import parameterized

from etcmodel import models
from etcmodel.engine import runner as runner_lib
from etcmodel.pipeline import tfrecords
from etcmodel.training import configuration
from etcmodel.training import runs
from testing.tasks import CommandTestCase
from testing.tasks import run_cli

_OVERRIDES = (
    "task.validation_data.input_path=DEV,task.model.encoder.preset=tiny"
)


class TrainTest(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.model_dir = self.path("run")
        self.train_data = self.path("train")
        os.mkdir(self.train_data)
        with tfrecords.ShardedWriter(self.train_data, "train", 1):
            pass

    def _arguments(self):
        return [
            "--experiment=etc/wikihop",
            f"--model_dir={self.model_dir}",
            f"--train_data={self.train_data}",
            f"--params_override={_OVERRIDES}",
        ]

    def _train(self, *arguments):
        """Runs the command with a fake trainer."""
        with (
            mock.patch.object(
                configuration, "find_metadata", return_value=None
            ),
            mock.patch.object(runner_lib, "make_runner") as make_runner,
            mock.patch.object(runner_lib, "run_mode") as self.run_mode,
        ):
            task = mock.Mock(metadata=None)
            task.describe_encoder.return_value = (
                models.EtcConfig.from_preset("tiny"),
                {},
            )
            make_runner.return_value = task, mock.Mock()
            # If a flag is repeated, the last one counts.
            return run_cli("train", *self._arguments(), *arguments)

    def _write_run(self, **variables):
        """Writes a run with a checkpoint of the given variables."""
        self.assert_succeeds(self._train("--mode=train"))
        tf.train.Checkpoint(**variables).save(
            os.path.join(self.model_dir, "ckpt")
        )

    @parameterized.parameters("train", "train_and_eval")
    def test_writes_configuration_and_prints_next_commands(self, mode):
        out = self.assert_succeeds(self._train(f"--mode={mode}"))
        _, params, mode_run, _ = self.run_mode.call_args.args
        self.assertEqual(mode, mode_run)
        self.assertEqual(self.train_data, params.task.train_data.input_path)
        self.assertEqual("tiny", params.task.model.encoder.preset)
        note = runs.read(self.model_dir)
        self.assertEqual("wikihop", note["task"])
        self.assertEqual("etc/wikihop", note["experiment"])
        with open(os.path.join(self.model_dir, "params.yaml")) as stream:
            self.assertIn("preset: tiny", stream.read())
        self.assertIn(f"tensorboard --logdir={self.model_dir}", out)
        self.assertIn(
            f"etcmodel export --model_dir={self.model_dir} --output_dir=", out
        )

    @parameterized.parameters(
        (7, "train", None, ""),
        (7, "train_and_eval", None, ""),
        (8, "train", "train", ""),
        (6, "train", None, "already at step 7 of 6. .*raise --epochs"),
    )
    def test_a_finished_run(self, steps, mode, mode_run, message):
        """The run is at step 7 of `steps`."""
        self._write_run(global_step=tf.Variable(7, dtype=tf.int64))
        result = self._train(
            f"--mode={mode}",
            f"--params_override={_OVERRIDES},trainer.train_steps={steps}",
        )
        if message:
            self.assertEqual(1, result[0])
            self.assertRegex(result[2], message)
        else:
            out = self.assert_succeeds(result)
            self.assertEqual(mode_run is None, "nothing is trained" in out)
            self.assertEqual(mode_run is None, "step 7 of 7" in out)
            self.assertEqual(mode_run is None, "tensorboard" not in out)
        modes = [call.args[2] for call in self.run_mode.call_args_list]
        self.assertEqual([mode_run] if mode_run else [], modes)

    def test_a_checkpoint_of_something_else(self):
        self._write_run(x=tf.Variable(7))
        self.assert_fails(
            self._train("--mode=train"),
            "stores no step, so `train` did not write it",
        )

    def test_pretraining_has_nothing_to_export(self):
        result = self._train("--experiment=read_twice/pretrain")
        out = self.assert_succeeds(result)
        self.assertNotIn("etcmodel export", out)
        self.assertIn(f"--init_checkpoint={self.model_dir}", out)

    @parameterized.parameters(
        (
            f"--params_override=task.nothing=1,{_OVERRIDES}",
            "--params_override: there is no parameter task.nothing",
        ),
        ("--preset=huge", "--preset=huge: .*one of base, base_shared, lar"),
        (
            "--params_override=task.train_data.input_path=A",
            "no validation_data",
        ),
    )
    def test_configuration_that_cannot_be_used(self, argument, message):
        """Invalid configurations are rejected before anything is written."""
        self.assert_fails(
            self._train("--mode=train_and_eval", argument), message
        )
        self.run_mode.assert_not_called()
        self.assertFalse(os.path.exists(self.model_dir))

    @parameterized.parameters(
        ("runtime.mixed_precision_dtype=mixed_float16", "must be one of float"),
        ("runtime.mixed_precision_dtype=half", "must be one of float32, float"),
        ("trainer.best_checkpoint_export_subdir=../x", "path inside the run"),
        ("trainer.best_checkpoint_export_subdir=/x", "path inside the run"),
    )
    def test_values_that_cannot_be_used(self, override, message):
        self.assert_fails(
            self._train(f"--params_override={override},{_OVERRIDES}"), message
        )
        self.assertFalse(os.path.exists(self.model_dir))

    @parameterized.parameters("a,b", "[ab]", "a*,?")
    def test_records_in_a_directory_of_any_name(self, name):
        directory = self.path(name)
        os.rename(self.train_data, directory)
        self.assert_succeeds(self._train(f"--train_data={directory}"))
        params = self.run_mode.call_args.args[1]
        self.assertEqual(directory, params.task.train_data.input_path)
        both = f"{directory},{directory}"
        self.assert_succeeds(self._train(f"--train_data={both}"))
        found = tfrecords.find_files(
            self.run_mode.call_args.args[1].task.train_data.input_path
        )
        self.assertLen(found, 2)

    def test_run_inside_its_validation_data(self):
        inside, other = os.path.join(self.train_data, "run"), self.path("other")
        shutil.copytree(self.train_data, other)
        path = "task.validation_data.input_path"
        self.assert_fails(
            self._train(
                f"--model_dir={inside}",
                f"--train_data={other}",
                f"--params_override={path}={self.train_data}",
            ),
            f"--model_dir={inside} is in {path}={self.train_data}, an input",
        )
        self.assertFalse(os.path.exists(inside))

    def test_patience_needs_validations(self):
        code, _, err = self._train("--patience=3")
        self.assertEqual(1, code)
        self.assertIn("--patience=3 needs --validation_data", err)

    def test_prints_its_configuration(self):
        code, out, err = self._train(
            "--print_config",
            f"--params_override={_OVERRIDES},trainer.train_steps=50",
        )
        self.assertEqual(0, code)
        self.run_mode.assert_not_called()
        # Notes go to stderr, so that stdout is valid YAML.
        self.assertStartsWith(
            err, "The learning-rate schedule is scaled to 50 steps"
        )
        values = yaml.safe_load(out)
        self.assertEqual(50, values["trainer"]["train_steps"])
        encoder = values["task"]["model"]["encoder"]
        self.assertEqual("tiny", encoder["preset"])
        # Values of the preset and a default. Only records set `vocab_size`.
        self.assertEqual(32, encoder["hidden_size"])
        self.assertEqual("gelu", encoder["hidden_act"])
        self.assertIsNone(encoder["vocab_size"])
        self.assertFalse(os.path.exists(self.model_dir))


if __name__ == "__main__":
    tf.test.main()
