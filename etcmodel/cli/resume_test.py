"""Tests that a killed and resumed run ends like an uninterrupted run."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import tensorflow as tf

from testing import tasks

_STEPS = 23


class ResumeTest(tasks.EndToEndTestCase):
    """Resumes pre-training, with random masks, dropout and record order."""

    task = "pretrain"
    steps = _STEPS
    exports = False
    overrides = {
        # The run is interrupted within an epoch.
        "task.train_data.global_batch_size": 3,
        "task.model.encoder.hidden_dropout_prob": 0.1,
        "task.model.encoder.attention_probs_dropout_prob": 0.1,
        "trainer.steps_per_loop": 1,
        "trainer.summary_interval": 2,
        "trainer.checkpoint_interval": 4,
    }

    @classmethod
    def write_data(cls):
        write, cls.features = tasks.SMALL_RECORDS[cls.task]
        return write(cls.root, 8)

    @classmethod
    def train_flags(cls, *args):
        return [*super().train_flags(*args), "--seed=1"]

    def _checkpoint(self, model_dir):
        """Returns the variables of the last checkpoint by name."""
        path = tf.train.latest_checkpoint(model_dir)
        reader = tf.train.load_checkpoint(path)
        return {
            name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): value
            for name in reader.get_variable_to_shape_map()
            if not isinstance(value := reader.get_tensor(name), bytes)
        }

    def _assert_equal_checkpoints(self, model_dir):
        """Compares a run's last checkpoint with the uninterrupted run's."""
        expected = self._checkpoint(self.model_dir)
        self.assertEqual(_STEPS, expected["global_step"])
        actual = self._checkpoint(model_dir)
        self.assertEqual(set(expected), set(actual))
        slots = [name for name in actual if "OPTIMIZER_SLOT" in name]
        self.assertGreater(len(slots), 20)
        # The interrupted run saved one more checkpoint.
        del expected["save_counter"]
        for name, value in expected.items():
            self.assertAllEqual(value, actual[name], name)

    def _run_until(self, model_dir, is_time, signal_number):
        """Runs `train` in a new process until `is_time`, then signals it.

        Returns the exit code and the log.
        """
        log = self.path("log.txt")
        environment = dict(os.environ)
        # With it, TensorFlow's log is as the user asks.
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        with open(log, "w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "etcmodel", "train", *self._train],
                stdout=out,
                stderr=out,
                env=environment,
            )
            while not is_time(log) and process.poll() is None:
                time.sleep(0.0005)
            process.send_signal(signal_number)
            code = process.wait()
        with open(log) as stream:
            return code, stream.read()

    @contextlib.contextmanager
    def _small_disk(self):
        """Mounts a disk of 16 KB; yields its path and a resize function."""
        disk = self.path("disk")
        os.makedirs(disk)

        def mount(size, *more):
            options = ",".join([f"size={size}", *more])
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk],
                check=True,
                capture_output=True,
            )

        try:
            mount("16k")
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"Making a small disk is not allowed: {error}")
        try:
            yield disk, lambda size: mount(size, "remount")
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def _assert_is_full(self, command, *arguments):
        """Checks that a command fails with one line about the full disk."""
        code, _, err = tasks.run_cli(command, *arguments)
        self.assertEqual(1, code)
        self.assertRegex(err, rf"^Error: {command} failed: .*[Nn]o space left")
        self.assertIn("Make room on the disk", err)
        self.assertEqual(1, err.count("\n"), err)

    def test_a_full_disk(self):
        """Leaves no partial files; resumes once there is space.

        Skipped where disks cannot be mounted.
        """
        with self._small_disk() as (disk, set_size):
            self._assert_is_full(
                "preprocess",
                f"--task={self.task}",
                f"--input={self.input}",
                f"--vocab_file={self.vocab_file}",
                f"--output_dir={disk}/records",
                *self.features,
            )
            self.assertEqual([], os.listdir(disk))
            model_dir = os.path.join(disk, "run")
            flags = [*self.train_flags(), f"--model_dir={model_dir}"]
            set_size("600k")
            self._assert_is_full("train", *flags)
            set_size("1g")
            self.run_command("train", *flags)
            self._assert_equal_checkpoints(model_dir)

    def test_resumed_run_equals_an_uninterrupted_one(self):
        model_dir = self.path("interrupted")
        # If a flag is repeated, the last one counts.
        self._train = [*self.train_flags(), f"--model_dir={model_dir}"]

        def is_saving(log):
            """Returns whether writing of the third checkpoint has begun."""
            del log
            names = os.listdir(model_dir) if os.path.isdir(model_dir) else ()
            return any(name.startswith("ckpt-9") for name in names)

        def has_resumed(log):
            with open(log) as stream:
                return "Step " in stream.read()

        code, out = self._run_until(model_dir, is_saving, signal.SIGKILL)
        self.assertEqual(-signal.SIGKILL, code, out)
        # Machines send SIGTERM before they are preempted.
        code, out = self._run_until(model_dir, has_resumed, signal.SIGTERM)
        self.assertEqual(143, code, out)
        self.assertIn("same command resumes", out)
        # Lines of TensorFlow's log, and others that do not concern users.
        self.assertNotRegex(
            out,
            r"(?m)^([IWEF]\d{4} |\d{4}-\d\d-\d\d )|InitializeLog|cuInit|"
            r"Compiled cluster|custom gradient|\bgin\b",
        )
        saved = self._checkpoint(model_dir)["global_step"]
        self.assertBetween(saved, 5, _STEPS - 1)
        self.run_command("train", *self._train)
        self._assert_equal_checkpoints(model_dir)


if __name__ == "__main__":
    tf.test.main()
