"""Tests of `training_runs`."""

import json
import os
import tempfile
import unittest
from unittest import mock

from absl import flags as absl_flags

from benchmarks import training_runs
from etcmodel.cli import command_line


class TrainingRunsTest(unittest.TestCase):
    def test_train(self):
        with tempfile.TemporaryDirectory() as folder:
            model_dir = os.path.join(folder, "run")
            trainer = training_runs.make_trainer(30, 0.5, interval=50)
            with mock.patch.object(training_runs, "run_command") as run:
                training_runs.train(
                    model_dir, "etc/nq", {"a": 1}, trainer, ["--mode=train"]
                )
            ((command, *flags), _) = run.call_args
            self.assertEqual("train", command)
            self.assertIn("--mode=train", flags)
            with open(f"{model_dir}.json", encoding="utf-8") as stream:
                config = json.load(stream)
        self.assertEqual({"a": 1}, config["task"])
        self.assertEqual(30, config["trainer"]["steps_per_loop"])
        schedule = config["trainer"]["optimizer_config"]
        self.assertEqual(3, schedule["warmup"]["linear"]["warmup_steps"])
        self.assertEqual(
            {"initial_learning_rate": 0.5, "decay_steps": 30},
            schedule["learning_rate"]["polynomial"],
        )

    def test_run_command(self):
        """In a process of its own, whatever Keras this one has."""
        with mock.patch.object(
            command_line, "main", side_effect=AssertionError
        ):
            training_runs.run_command("experiments")
            with self.assertRaisesRegex(RuntimeError, "export failed"):
                training_runs.run_command("export")

    def test_open_directory(self):
        """It is kept if it was asked for, and never written over."""
        values = absl_flags.FlagValues()
        training_runs.define_flags(values)
        values(["x"])
        with training_runs.open_directory(values) as directory:
            self.assertEqual([], os.listdir(directory))
        self.assertFalse(os.path.exists(directory))
        with tempfile.TemporaryDirectory() as root:
            values.directory = os.path.join(root, "a", "b")
            with training_runs.open_directory(values) as directory:
                self.assertEqual(values.directory, directory)
            self.assertTrue(os.path.exists(directory))
            with self.assertRaises(FileExistsError):
                training_runs.open_directory(values).__enter__()


if __name__ == "__main__":
    unittest.main()
