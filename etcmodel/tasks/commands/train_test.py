import os
import unittest
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.commands import training
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import run_cli

_OVERRIDES = (
    "task.train_data.input_path=TRAIN,"
    "task.validation_data.input_path=DEV,"
    "task.model.encoder.preset=tiny"
)


class TrainTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.model_dir = os.path.join(self.get_temp_dir(), self._testMethodName)

    def _train(self, *arguments, overrides=_OVERRIDES):
        """Runs the command, but for the training itself."""
        with (
            mock.patch.object(training, "make_runner") as make_runner,
            mock.patch.object(training, "run_mode") as self.run_mode,
        ):
            task, runner = mock.Mock(metadata=None), mock.Mock()
            make_runner.return_value = task, runner
            return run_cli(
                "train",
                "--experiment=etc/wikihop",
                f"--model_dir={self.model_dir}",
                f"--params_override={overrides}",
                # The last of two equal flags counts.
                *arguments,
            )

    @parameterized.parameters("train", "train_and_eval", "train_and_post_eval")
    def test_leaves_its_configuration_and_says_what_is_next(self, mode):
        code, out, err = self._train(f"--mode={mode}")
        if not KERAS_2:
            self.assertEqual(1, code)
            self.assertIn("TF_USE_LEGACY_KERAS=1", err)
            self.assertFalse(os.path.exists(self.model_dir))
            return
        self.assertEqual((0, ""), (code, err))
        _, params, mode_run = self.run_mode.call_args.args
        self.assertEqual(mode, mode_run)
        self.assertEqual("TRAIN", params.task.train_data.input_path)
        self.assertEqual("tiny", params.task.model.encoder.preset)
        self.assertEqual(
            {"task": "wikihop", "experiment": "etc/wikihop"},
            training.read_run(self.model_dir),
        )
        with open(os.path.join(self.model_dir, "params.yaml")) as stream:
            self.assertIn("preset: tiny", stream.read())
        self.assertIn(f"tensorboard --logdir={self.model_dir}", out)
        self.assertIn(
            f"etcmodel export --model_dir={self.model_dir} --output_dir=", out
        )

    @unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
    def test_pretraining_has_nothing_to_export(self):
        code, out, err = self._train("--experiment=read_twice/pretrain")
        self.assertEqual((0, ""), (code, err))
        self.assertNotIn("etcmodel export", out)
        self.assertIn(f"task.init_checkpoint={self.model_dir}", out)

    @parameterized.parameters("eval", "continuous_eval")
    def test_evaluation_leaves_the_run_as_it_was(self, mode):
        code, out, err = self._train(f"--mode={mode}")
        if not KERAS_2:
            self.assertIn("TF_USE_LEGACY_KERAS=1", err)
            return
        self.assertEqual((0, "", ""), (code, out, err))
        self.assertEqual(mode, self.run_mode.call_args.args[2])
        self.assertFalse(os.path.exists(self.model_dir))

    def test_data_must_be_named_before_anything_is_written(self):
        code, _, err = self._train(
            "--mode=train_and_eval",
            overrides="task.train_data.input_path=TRAIN",
        )
        self.assertEqual(1, code)
        if KERAS_2:
            self.assertIn("There is no validation_data", err)
        else:
            self.assertIn("TF_USE_LEGACY_KERAS=1", err)
        self.run_mode.assert_not_called()
        self.assertFalse(os.path.exists(self.model_dir))

    def test_required_flags_and_modes(self):
        code, _, err = run_cli("train")
        self.assertEqual(1, code)
        self.assertIn("train needs --experiment, --model_dir", err)
        code, _, err = self._train("--mode=predict")
        self.assertEqual(1, code)
        for mode in ("train", "eval", "train_and_eval", "continuous_eval"):
            self.assertIn(mode, err)


if __name__ == "__main__":
    tf.test.main()
