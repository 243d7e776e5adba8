import os
import subprocess
import sys

from etcmodel.engine import processes
from etcmodel.engine import progress
from etcmodel.engine import train
from etcmodel.errors import UserError
from testing.models import small_records
from testing.tasks import CommandTestCase
from testing.tasks import run_cli

# Calls `train` in Keras 3, interrupts a second run, and resumes it.
_SCRIPT = """
import os, signal, sys, threading
import tensorflow as tf
assert not tf.keras.layers.Layer.__module__.startswith("tf_keras")
from etcmodel.engine import evaluate, processes, progress, train
signal.signal(signal.SIGINT, signal.default_int_handler)
records, model_dir = sys.argv[1:]
common = dict(
    experiment="etc/wikihop", train_data=records, validation_data=records,
    small=True, batch_size=3, seed=1,
)
one = {"trainer.train_steps": 4, "trainer.validation_interval": 2,
       "trainer.summary_interval": 1,
       "task.model.encoder.num_hidden_layers": 1}
options = train.Options(model_dir=model_dir, params_override=one, **common)
seen = []
result = processes.train(
    options, progress.Reporter("lines"), lambda step, x: seen.append(step))
print("STEPS", result.steps, sorted(result.losses), seen)
progress._FIRST_LINE = 0
result = processes.run(evaluate.evaluate, evaluate.Options(model_dir=model_dir),
                       progress.Reporter("lines"))
print("EVALUATED", result.metrics["step"])
longer = train.Options(
    model_dir=model_dir, params_override={**one, "trainer.train_steps": 40},
    **common)
try:
    processes.train(longer, None, lambda step, x: signal.raise_signal(
        signal.SIGINT) if step == 8 else None)
except KeyboardInterrupt:
    print("INTERRUPTED", tf.train.latest_checkpoint(model_dir))
stopped = processes.train(longer, None, lambda step, x: step >= 12)
print("STOPPED", max(stopped.validations))
"""


class ProcessesTest(CommandTestCase):
    def _options(self, name, **options):
        return train.Options(
            experiment="etc/wikihop",
            model_dir=self.path(name),
            train_data=small_records("wikihop"),
            small=True,
            **options,
        )

    def test_under_keras_3(self):
        """Progress, callbacks and interrupts work across the processes."""
        environment = dict(os.environ, PYTHONPATH=os.getcwd())
        environment.pop("TF_USE_LEGACY_KERAS", None)
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _SCRIPT,
                small_records("wikihop"),
                self.path("run"),
            ],
            capture_output=True,
            env=environment,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("STEPS 4 [1, 2, 3, 4] [2, 4]\n", done.stdout)
        self.assertIn("Step 1 of 4: loss ", done.stdout)
        self.assertIn("Validating; the first batch takes", done.stdout)
        self.assertIn("Evaluating: batch 1 of 3, 33%\n", done.stdout)
        self.assertIn("EVALUATED 4\n", done.stdout)
        self.assertRegex(done.stdout, "INTERRUPTED .*ckpt-([89]|10)\n")
        self.assertIn("STOPPED 12\n", done.stdout)

    def test_the_command_line_gives_the_same_run(self):
        options = self._options(
            "python",
            seed=1,
            params_override={
                "trainer.train_steps": 2,
                "trainer.summary_interval": 1,
                "task.model.encoder.num_hidden_layers": 1,
            },
        )
        result = processes.train(options, progress.Reporter("quiet"))
        out = self.assert_succeeds(
            run_cli(
                "train",
                "--experiment=etc/wikihop",
                f"--model_dir={self.path('commands')}",
                f"--train_data={options.train_data}",
                "--small",
                "--seed=1",
                "--params_override=trainer.train_steps=2,"
                "trainer.summary_interval=1,"
                "task.model.encoder.num_hidden_layers=1",
            )
        )
        for step, loss in result.losses.items():
            self.assertIn(f"Step {step} of 2: loss {loss:.4g}", out)
        contents = []
        for name in ("python", "commands"):
            with open(self.path(name, "params.yaml")) as stream:
                contents.append(stream.read())
        self.assertEqual(*contents)

    def test_errors_name_options(self):
        for name, value, message in (
            ("patience", 2, "`patience=2` needs `validation_data`"),
            ("epochs", "many", "`epochs` is 'many', but must be a number"),
            ("experiment", "etc/wiki", "`experiment=etc/wiki`: there is no"),
            ("train_data", "/no", "`train_data=/no`: no TFRecord files"),
            ("optimizer", "sgd", "`optimizer` is 'sgd', but must be one of"),
        ):
            options = self._options("run")
            setattr(options, name, value)
            with self.assertRaisesRegex(UserError, message):
                processes.train(options)


if __name__ == "__main__":
    import tensorflow as tf

    tf.test.main()
