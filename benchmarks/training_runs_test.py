import os
import tempfile
from unittest import mock

import tensorflow as tf

from benchmarks import program
from benchmarks import training_runs
from etcmodel.cli import command_line
from testing.benchmark_commands import fake_commands
from testing.benchmark_commands import write_metrics


class TrainingRunsTest(tf.test.TestCase):
    def test_train(self):
        folder = self.get_temp_dir()
        runs = training_runs.Runs(folder)
        training = training_runs.Training(
            *("run", "etc/nq", "train", 30, 0.5, 8),
            encoder={"hidden_size": 4},
            task={"a": 1},
            init="lifted",
        )
        with fake_commands(evaluate=write_metrics(f1=0.5)) as seen:
            row = runs.measure("Some name", training)
        self.assertEqual(0.5, row["f1"])
        self.assertEqual(["train", "evaluate"], [name for name, _ in seen])
        given = seen[0][1]
        self.assertEqual("train", given["mode"])
        self.assertEqual(f"{folder}/lifted", given["init_checkpoint"])
        task, trainer = given["config"]["task"], given["config"]["trainer"]
        self.assertEqual(1, task["a"])
        self.assertEqual({"encoder": {"hidden_size": 4}}, task["model"])
        self.assertEqual(
            {"input_path": f"{folder}/train", "global_batch_size": 8},
            task["train_data"],
        )
        self.assertEqual(30, trainer["steps_per_loop"])
        schedule = trainer["optimizer_config"]
        self.assertEqual(3, schedule["warmup"]["linear"]["warmup_steps"])
        self.assertEqual(
            {"initial_learning_rate": 0.5, "decay_steps": 30},
            schedule["learning_rate"]["polynomial"],
        )
        self.assertNotIn("max_to_keep", trainer)
        training = training._replace(interval=3, keep_all=True)
        trainer = training.config("")["trainer"]
        self.assertEqual(3, trainer["checkpoint_interval"])
        self.assertEqual(11, trainer["max_to_keep"])

    def test_run_command(self):
        """In a process of its own, whatever Keras this one has."""
        with mock.patch.object(
            command_line, "main", side_effect=AssertionError
        ):
            training_runs.run_command("experiments")
            with self.assertRaisesRegex(RuntimeError, "export failed"):
                training_runs.run_command("export", model_dir=None)

    def test_open_runs(self):
        """A directory is kept if it was asked for, and never written over."""
        frame = program.Program("x", training_runs.FLAGS, {}, None)
        values = program.parse(frame)
        with training_runs.open_runs(values) as runs:
            path = runs.write("a.jsonl", [{"b": 1}, [2]], lines=True)
            with open(path, encoding="utf-8") as stream:
                self.assertEqual('{"b":1}\n[2]\n', stream.read())
        self.assertFalse(os.path.exists(runs.directory))
        with tempfile.TemporaryDirectory() as root:
            values.directory = os.path.join(root, "a", "b")
            with training_runs.open_runs(values) as runs:
                self.assertEqual(values.directory, runs.directory)
            self.assertTrue(os.path.exists(runs.directory))
            with self.assertRaises(FileExistsError):
                training_runs.open_runs(values).__enter__()


if __name__ == "__main__":
    tf.test.main()
