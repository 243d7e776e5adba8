import contextlib
import fcntl
import io
import os
import time
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.checkpoints import files
from etcmodel.errors import UserError
from etcmodel.training import run_directory
from etcmodel.training import runs
from testing.tasks import CommandTestCase

_POINTERS = {
    "gone": None,
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "words": b"garbage",
    "cut off": b"model_checkpoint_pa",
    "of a checkpoint that is gone": b'model_checkpoint_path: "ckpt-9"\n',
}


class RunDirectoryTest(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.run = self.path("run")
        self.best = self.path("run", "best_ckpt")
        self.value = tf.Variable(0, dtype=tf.int64)
        for directory, name, steps in (
            (self.run, "ckpt", (2, 9, 10)),
            (self.best, "best_ckpt", (2, 9)),
        ):
            manager = self._manager(directory, name)
            for step in steps:
                self.value.assign(step)
                manager.save(step)

    def _manager(self, directory, name, max_to_keep=5):
        checkpoint = tf.train.Checkpoint(value=self.value)
        return tf.train.CheckpointManager(
            checkpoint, directory, max_to_keep, checkpoint_name=name
        )

    def _call(self, function, *arguments):
        """Calls a function; returns its printed text."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            function(*arguments)
        return output.getvalue()

    def _hold(self, *arguments):
        with run_directory.hold(self.run, *arguments):
            pass

    def _damage_pointer(self, directory, content):
        path = os.path.join(directory, "checkpoint")
        os.remove(path)
        if content is not None:
            with open(path, "wb") as stream:
                stream.write(content)

    def _remove(self, directory, name):
        os.remove(os.path.join(directory, f"{name}.index"))
        os.remove(os.path.join(directory, f"{name}.data-00000-of-00001"))

    def test_nothing_to_do(self):
        self.assertEmpty(self._call(run_directory.prepare, self.run))
        self.assertEmpty(self._call(run_directory.prepare, self.path("new")))
        self.assertFalse(os.path.exists(self.path("new")))

    @parameterized.parameters(*_POINTERS)
    def test_damaged_pointer(self, name):
        """Uses the checkpoint with the highest number, and repairs the file."""
        if name == "of a checkpoint that is gone":
            self._remove(self.best, "best_ckpt-9")
        for directory in (self.run, self.best):
            content = _POINTERS[name]
            if content is not None:
                content = content.replace(b"ckpt-9", b"ckpt-11")
            self._damage_pointer(directory, content)
        last = os.path.join(self.run, "ckpt-10")
        best = 2 if name == "of a checkpoint that is gone" else 9
        best = os.path.join(self.best, f"best_ckpt-{best}")
        # Commands that only read find these checkpoints without a repair.
        self.assertEqual(last, runs.find_checkpoint(self.run, "last"))
        self.assertEqual(best, runs.find_checkpoint(self.run, None))
        self.assertEqual(last, files.open_checkpoint(self.run).path)
        out = self._call(run_directory.prepare, self.run)
        self.assertIn(
            f"{self.run}/checkpoint is missing or damaged: using the newest "
            f"complete checkpoint, {last}.",
            out,
        )
        self.assertEqual(last, tf.train.latest_checkpoint(self.run))
        self.assertEqual(best, tf.train.latest_checkpoint(self.best))
        # Older checkpoints are still listed, so they are deleted later.
        manager = self._manager(self.run, "ckpt", max_to_keep=2)
        self.assertEqual(
            [os.path.join(self.run, f"ckpt-{i}") for i in (2, 9, 10)],
            manager.checkpoints,
        )
        manager.restore_or_initialize()
        self.assertEqual(10, self.value.numpy())
        self.assertEmpty(self._call(run_directory.prepare, self.run))

    def test_damaged_newest_checkpoint(self):
        """Prints the damaged checkpoint's path, and uses the previous one."""
        paths = [os.path.join(self.run, f"ckpt-{i}") for i in (2, 9, 10)]
        with open(f"{paths[2]}.data-00000-of-00001", "r+b") as stream:
            stream.write(b"\xff\xff")
        os.truncate(f"{paths[1]}.index", 20)
        out = self._call(run_directory.prepare, self.run)
        for path in paths[1:]:
            self.assertRegex(out, f"{path} is damaged")
        self.assertIn(f"using the newest complete checkpoint, {paths[0]}.", out)
        self.assertEqual(paths[0], tf.train.latest_checkpoint(self.run))
        self.assertEmpty(self._call(run_directory.prepare, self.run))

    def test_directory_that_is_read_only(self):
        self._damage_pointer(self.run, None)
        with mock.patch.object(
            tf.compat.v1.train,
            "update_checkpoint_state",
            side_effect=tf.errors.PermissionDeniedError(None, None, "no"),
        ) as update:
            self._call(run_directory.prepare, self.run)
        update.assert_called_once()

    def test_pointer_to_an_incomplete_checkpoint(self):
        os.remove(os.path.join(self.run, "ckpt-10.data-00000-of-00001"))
        self.assertEqual(
            os.path.join(self.run, "ckpt-9"), files.latest_checkpoint(self.run)
        )
        self.assertIn("ckpt-9.", self._call(run_directory.prepare, self.run))

    def test_checkpoints_of_other_names_are_ignored(self):
        directory = self.path("published")
        os.mkdir(directory)
        tf.train.Checkpoint(x=self.value).write(f"{directory}/model.ckpt-7")
        self.assertEmpty(self._call(run_directory.prepare, directory))

    @parameterized.parameters("", "{", "[]")
    def test_damaged_file_of_the_best(self, content):
        path = os.path.join(self.best, "info.json")
        with open(path, "w") as stream:
            stream.write('{"accuracy": 0.5}')
        run_directory.prepare(self.run)
        with open(path, "w") as stream:
            stream.write(content)
        with self.assertRaisesRegex(UserError, f"^{path}: .*Remove it"):
            run_directory.prepare(self.run)

    @parameterized.parameters(("data-00000-of-00001", 4), ("index", 20))
    def test_damaged_checkpoint(self, ending, size):
        path = os.path.join(self.run, "ckpt-10")
        os.truncate(f"{path}.{ending}", size)
        checkpoint = tf.train.Checkpoint(value=self.value)
        with (
            self.assertRaisesRegex(
                UserError, f"{path} is damaged.*Copy its files again"
            ) as raised,
            run_directory.restoring(path),
        ):
            checkpoint.restore(path)
        self.assertNotIn("\n", str(raised.exception))

    def test_other_errors_stay(self):
        path = os.path.join(self.run, "ckpt-10")
        for place in (path, None):
            with (
                self.assertRaisesRegex(ValueError, "of the model"),
                run_directory.restoring(place),
            ):
                raise ValueError("of the model")

    def _leave(self):
        """Writes leftovers of killed processes; returns files to keep."""
        kept = {x for _, _, names in os.walk(self.run) for x in names}
        for directory, name in ((self.run, "ckpt"), (self.best, "best_ckpt")):
            folder = os.path.join(directory, f"{name}-11_temp")
            os.mkdir(folder)
            for place in (
                f"{folder}/part-00000-of-00001.data-00000-of-00001",
                f"{directory}/{name}-12.data-00000-of-00001",
                f"{directory}/checkpoint.tmp0a1b",
                f"{directory}/etcmodel.json.{'0f' * 16}.partial",
                f"{directory}/my-vocab.txt.{'0f' * 16}.partial",
            ):
                with open(place, "wb") as stream:
                    stream.write(b"x")
        # A folder that the user created.
        os.mkdir(self.path("run", "my_temp"))
        return kept

    def _files(self):
        return {x for _, _, names in os.walk(self.run) for x in names}

    def test_removes_leftovers(self):
        kept = self._leave()
        out = self._call(self._hold)
        self.assertEqual(kept, self._files())
        self.assertEqual(10, out.count("which a killed process left behind."))
        self.assertIn(f"Removes {self.run}/ckpt-11_temp,", out)
        self.assertCountEqual(
            ["best_ckpt", "my_temp"],
            [
                x
                for x in os.listdir(self.run)
                if os.path.isdir(f"{self.run}/{x}")
            ],
        )
        self.assertEmpty(self._call(self._hold))

    def test_another_process_is_writing(self):
        self._leave()
        before = self._files()
        with run_directory.hold(self.path("other")):
            self.assertEqual([], os.listdir(self.path("other")))
        handle = os.open(self.run, os.O_RDONLY)
        self.addCleanup(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with self.assertRaisesRegex(
            UserError, f"Another process trains in {self.run}.*`model_dir`"
        ):
            self._hold()
        # Another worker of the same training may hold the lock.
        with mock.patch.dict(os.environ, {"TF_CONFIG": "{}"}):
            self._hold()
        self.assertEqual(before, self._files())
        fcntl.flock(handle, fcntl.LOCK_UN)
        self._hold()
        self.assertNotEqual(before, self._files())

    def test_without_locks_removes_only_old_leftovers(self):
        kept = self._leave()
        before = self._files()
        with mock.patch.object(fcntl, "flock", side_effect=OSError("no locks")):
            self._hold()
            self.assertEqual(before, self._files())
            # The folder's age is that of its newest file.
            yesterday = time.time() - 25 * 3600
            for directory, _, names in os.walk(self.run):
                for name in [".", *names]:
                    os.utime(os.path.join(directory, name), (yesterday,) * 2)
            fresh = f"{self.run}/ckpt-11_temp"
            (part,) = os.listdir(fresh)
            os.utime(f"{fresh}/{part}")
            self._hold()
        self.assertEqual({*kept, part}, self._files())

    def test_buckets_are_not_changed(self):
        with run_directory.hold("gs://no/such/bucket"):
            pass


if __name__ == "__main__":
    tf.test.main()
