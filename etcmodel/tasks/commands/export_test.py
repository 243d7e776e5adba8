import os
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.tasks.commands import export
from etcmodel.tasks.commands.training_test import write_run
from etcmodel.tasks.task_testing import CommandTestCase
from etcmodel.tasks.task_testing import run_cli
from etcmodel.tasks.task_testing import write_test_vocab
from etcmodel.tasks.wikihop.experiment import WikiHopTask

_SMALL = {"task": {"model": {"encoder": {"preset": "tiny"}}}}


class _RunTestCase(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.model_dir = self.path("run")
        os.makedirs(self.model_dir)

    def save(self, *names):
        """Saves a checkpoint that fits no model."""
        checkpoint = tf.train.Checkpoint(x=tf.Variable(1))
        return checkpoint.save(self.path("run", *names))


class FindCheckpointTest(_RunTestCase):
    def test_best_before_last(self):
        find = export.find_checkpoint
        first, last = self.save("ckpt"), self.save("later")
        self.assertNotEqual(first, last)
        self.assertEqual(last, find(self.model_dir, None))
        with self.assertRaisesRegex(UserError, "checkpoint best"):
            find(self.model_dir, "best")
        best = self.save("best_ckpt", "ckpt")
        self.assertEqual(best, find(self.model_dir, None))
        self.assertEqual(best, find(self.model_dir, "best"))
        self.assertEqual(last, find(self.model_dir, "last"))
        # A path may be a checkpoint or its directory.
        self.assertEqual(first, find("/no/such", first))
        self.assertEqual(best, find("/no/such", os.path.dirname(best)))

    @parameterized.parameters(None, "best", "last", "/no/such/ckpt-1")
    def test_none(self, choice):
        with self.assertRaisesRegex(
            UserError,
            f"No checkpoint.*{self.model_dir}.*{choice or 'best or last'}.*"
            "Run `train` first",
        ):
            export.find_checkpoint(self.model_dir, choice)


class ExportTest(_RunTestCase):
    def _fails(self, message, *arguments):
        result = run_cli(
            "export",
            f"--model_dir={self.model_dir}",
            f"--output_dir={self.path('saved_model')}",
            *arguments,
        )
        self.assert_fails(result, message)
        self.assertEqual(["run"], os.listdir(self.directory))

    def test_incomplete_runs(self):
        vocabulary = "--vocab_file=vocab.txt"
        write_run(self.model_dir, params=_SMALL)
        self._fails("run has no copy of the vocabulary. Name it with --vocab_f")
        self._fails("No checkpoint was found", vocabulary)
        self.save("ckpt")
        self._fails("task.model.long_length=N", vocabulary)

    def test_checkpoint_of_another_model(self):
        note = {
            "task": "wikihop",
            "experiment": "etc/wikihop",
            "records": {
                "features": {"long_length": 8, "global_length": 4},
                "vocab_file": "vocab.txt",
                "vocab_size": 11,
            },
        }
        write_run(self.model_dir, note, _SMALL)
        write_test_vocab(self.model_dir, "rome")
        checkpoint = self.save("ckpt")
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.build([1, 1])
        with mock.patch.object(WikiHopTask, "build_model", return_value=model):
            self._fails(
                f"{checkpoint} does not fit the model that {self.model_dir} and"
            )

    def test_pretraining(self):
        experiment = {"experiment": "read_twice/pretrain"}
        note = {"task": "read_twice_pretrain", **experiment}
        write_run(self.model_dir, note, _SMALL)
        self._fails("read_twice_pretrain is pre-training")


if __name__ == "__main__":
    tf.test.main()
