from unittest import mock

import tensorflow as tf

from etcmodel.engine import runner as runner_lib
from etcmodel.training import configuration
from testing import tasks
from testing.tasks import run_cli

_PARAMS = {
    "task": {
        "train_data": {"input_path": "GONE"},
        "validation_data": {"input_path": "/DEV"},
    }
}


class EvaluateTest(tasks.CommandTestCase):
    def setUp(self):
        super().setUp()
        tasks.write_run(self.directory, params=_PARAMS)

    def _evaluate(self, *arguments, metrics=None, saved=True, metadata=None):
        """Runs the command with a fake trainer, which returns `metrics`."""
        if saved:
            checkpoint = tf.train.Checkpoint(x=tf.Variable(1))
            checkpoint.save(self.path("ckpt"))
        with (
            mock.patch.object(
                configuration, "find_metadata", return_value=metadata
            ),
            mock.patch.object(runner_lib, "make_runner") as make_runner,
            mock.patch.object(runner_lib, "run_mode") as self.run_mode,
        ):
            runner = mock.Mock()
            runner.trainer.global_step.numpy.return_value = 70
            runner.trainer.model.variables = []
            make_runner.return_value = None, runner
            self.run_mode.return_value = dict(metrics or {})
            return run_cli(
                "evaluate", f"--model_dir={self.directory}", *arguments
            )

    def test_prints_and_writes_metrics(self):
        output = self.path("new", "metrics.json")
        result = self._evaluate(
            f"--output={output}",
            metrics={"cross_entropy": 1.25, "accuracy": 2 / 3},
        )
        self.assertEqual(
            f"Checkpoint: {self.path('ckpt-1')}\n"
            "accuracy: 0.666667\ncross_entropy: 1.25\nstep: 70\n",
            self.assert_succeeds(result),
        )
        self.assertEqual(
            {"accuracy": 2 / 3, "cross_entropy": 1.25, "step": 70},
            tasks.read_json(output),
        )
        _, params, mode = self.run_mode.call_args.args
        self.assertEqual("eval", mode)
        # Training records are not read, and the best checkpoint is kept.
        self.assertEqual("", params.task.train_data.input_path)
        self.assertEqual("/DEV", params.task.validation_data.input_path)
        self.assertEqual("", params.trainer.best_checkpoint_export_subdir)

    def test_other_records(self):
        name = "task.validation_data.input_path"
        self._evaluate(f"--params_override={name}=/OTHER")
        params = self.run_mode.call_args.args[1]
        self.assertEqual("/OTHER", params.task.validation_data.input_path)

    def test_computes_as_the_served_model(self):
        """Evaluates in float32 unless an override sets the precision."""
        name = "runtime.mixed_precision_dtype"
        runtime = {"mixed_precision_dtype": "bfloat16"}
        tasks.write_run(self.directory, params={**_PARAMS, "runtime": runtime})
        tasks.write_json(self.path("own.yaml"), {"runtime": runtime})
        for arguments, expected in (
            ([], None),
            ([f"--config_file={self.path('own.yaml')}"], "bfloat16"),
            ([f"--params_override={name}=bfloat16"], "bfloat16"),
        ):
            self.assert_succeeds(self._evaluate(*arguments))
            params = self.run_mode.call_args.args[1]
            self.assertEqual(expected, params.runtime.mixed_precision_dtype)

    def test_a_fixed_threshold_cannot_be_tuned(self):
        note = {"task": "select", "experiment": "etc/select"}
        task = {**_PARAMS["task"], "threshold": 0.25}
        tasks.write_run(self.directory, note, {"task": task})
        self.assert_fails(
            self._evaluate("--tune"),
            "is fixed at 0.25.*params_override=task.threshold=null",
        )
        self.assert_succeeds(
            self._evaluate("--tune", "--params_override=task.threshold=null")
        )

    def test_nothing_to_tune(self):
        """Neither single labels nor WikiHop's candidates need a threshold."""
        note = {"task": "classify", "experiment": "etc/classify"}
        for kind in ("single", "number", "multiple"):
            tasks.write_run(self.directory, note, _PARAMS)
            sizes = {"kind": kind}
            metadata = {"preprocessing_config": sizes, "num_examples": 1}
            result = self._evaluate("--tune", metadata=metadata)
            if kind == "multiple":
                self.assert_succeeds(result)
                continue
            self.assert_fails(result, "nothing to tune.*classify.* threshold")
        tasks.write_run(self.directory, params=_PARAMS)
        self.assert_fails(self._evaluate("--tune"), "nothing to tune.*wikihop")


if __name__ == "__main__":
    tf.test.main()
