import json
import os
from unittest import mock

import tensorflow as tf

from etcmodel.tasks.commands import training
from etcmodel.tasks.commands.training_test import write_run
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import run_cli

_PARAMS = {
    "task": {
        "train_data": {"input_path": "GONE"},
        "validation_data": {"input_path": "DEV"},
    }
}


class EvaluateTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.model_dir = os.path.join(self.get_temp_dir(), self._testMethodName)
        os.makedirs(self.model_dir)
        write_run(self.model_dir, params=_PARAMS)

    def _save_checkpoint(self):
        tf.train.Checkpoint(x=tf.Variable(1)).save(
            os.path.join(self.model_dir, "ckpt")
        )

    def _evaluate(self, *arguments, metrics=None):
        """Runs the command, but for the evaluation itself."""
        with (
            mock.patch.object(training, "make_runner") as make_runner,
            mock.patch.object(training, "run_mode") as self.run_mode,
        ):
            runner = mock.Mock()
            runner.trainer.global_step.numpy.return_value = 70
            make_runner.return_value = None, runner
            self.run_mode.return_value = dict(metrics or {})
            return run_cli(
                "evaluate", f"--model_dir={self.model_dir}", *arguments
            )

    def _fails(self, result, message):
        """Checks an error; under Keras 3, that there is another before it."""
        code, out, err = result
        self.assertEqual((1, ""), (code, out))
        self.assertIn(message if KERAS_2 else "TF_USE_LEGACY_KERAS=1", err)
        self.run_mode.assert_not_called()

    def test_prints_and_writes_metrics(self):
        self._save_checkpoint()
        output = os.path.join(self.model_dir, "new", "metrics.json")
        result = self._evaluate(
            f"--output={output}",
            metrics={"cross_entropy": 1.25, "accuracy": 2 / 3},
        )
        if not KERAS_2:
            self._fails(result, "")
            self.assertFalse(os.path.exists(output))
            return
        self.assertEqual(
            (0, "accuracy: 0.666667\ncross_entropy: 1.25\nstep: 70\n", ""),
            result,
        )
        with open(output, encoding="utf-8") as stream:
            self.assertEqual(
                {"accuracy": 2 / 3, "cross_entropy": 1.25, "step": 70},
                json.load(stream),
            )
        _, params, mode = self.run_mode.call_args.args
        self.assertEqual("eval", mode)
        # The training records may be gone, and no checkpoint becomes the best.
        self.assertEqual("", params.task.train_data.input_path)
        self.assertEqual("DEV", params.task.validation_data.input_path)
        self.assertEqual("", params.trainer.best_checkpoint_export_subdir)

    def test_other_records(self):
        self._save_checkpoint()
        result = self._evaluate(
            "--params_override=task.validation_data.input_path=OTHER"
        )
        if not KERAS_2:
            self._fails(result, "")
            return
        params = self.run_mode.call_args.args[1]
        self.assertEqual("OTHER", params.task.validation_data.input_path)

    def test_waiting_for_checkpoints_needs_none_yet(self):
        result = self._evaluate("--mode=continuous_eval")
        if not KERAS_2:
            self._fails(result, "")
            return
        self.assertEqual((0, "", ""), result)
        _, params, mode = self.run_mode.call_args.args
        self.assertEqual("continuous_eval", mode)
        self.assertEqual(
            "best_ckpt", params.trainer.best_checkpoint_export_subdir
        )

    def test_no_checkpoint(self):
        self._fails(
            self._evaluate(),
            f"{self.model_dir} has no checkpoint yet. Run `train` first.",
        )

    def test_no_data(self):
        write_run(self.model_dir, params={})
        self._fails(self._evaluate(), "There is no validation_data")

    def test_not_a_run(self):
        code, _, err = run_cli("evaluate", "--model_dir=/no/such")
        self.assertEqual(1, code)
        self.assertIn("/no/such is not the directory of a run", err)

    def test_required_flags(self):
        code, _, err = run_cli("evaluate")
        self.assertEqual(1, code)
        self.assertIn("evaluate needs --model_dir", err)


if __name__ == "__main__":
    tf.test.main()
