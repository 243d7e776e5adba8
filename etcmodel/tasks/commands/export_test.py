import contextlib
import os
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.commands import export
from etcmodel.tasks.commands.training_test import write_run
from etcmodel.tasks.errors import UserError
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import run_cli
from etcmodel.tasks.task_testing import write_test_vocab

_SMALL = {"task": {"model": {"encoder": {"preset": "tiny"}}}}


class _RunTestCase(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = os.path.join(self.get_temp_dir(), self._testMethodName)
        self.model_dir = os.path.join(self.root, "run")
        os.makedirs(self.model_dir)

    def save(self, *names):
        """Saves a checkpoint that fits no model."""
        return tf.train.Checkpoint(x=tf.Variable(1)).save(
            os.path.join(self.model_dir, *names)
        )


class FindCheckpointTest(_RunTestCase):
    def test_best_before_last(self):
        first, last = self.save("ckpt"), self.save("later")
        self.assertNotEqual(first, last)
        self.assertEqual(last, export.find_checkpoint(self.model_dir, None))
        best = self.save("best_ckpt", "ckpt")
        find = export.find_checkpoint
        self.assertEqual(best, find(self.model_dir, None))
        self.assertEqual(best, find(self.model_dir, "best"))
        self.assertEqual(last, find(self.model_dir, "last"))

    def test_a_path_may_be_a_checkpoint_or_its_directory(self):
        first = self.save("ckpt")
        best = self.save("best_ckpt", "ckpt")
        find = export.find_checkpoint
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

    def test_only_the_last_though_the_best_is_wanted(self):
        self.save("ckpt")
        with self.assertRaisesRegex(UserError, "checkpoint best"):
            export.find_checkpoint(self.model_dir, "best")


class ExportTest(_RunTestCase):
    def _fails(self, message, *arguments):
        """Checks an error; under Keras 3, that there is another before it."""
        output = os.path.join(self.root, "saved_model")
        code, out, err = run_cli(
            "export",
            f"--model_dir={self.model_dir}",
            f"--output_dir={output}",
            *arguments,
        )
        self.assertEqual((1, ""), (code, out))
        self.assertRegex(err, message if KERAS_2 else "TF_USE_LEGACY_KERAS=1")
        self.assertEqual(["run"], os.listdir(self.root))

    def test_no_vocabulary(self):
        write_run(self.model_dir, params=_SMALL)
        self._fails("run has no copy of the vocabulary. Name it with --vocab_f")

    def test_no_checkpoint(self):
        write_run(self.model_dir, params=_SMALL)
        self._fails("No checkpoint was found", "--vocab_file=vocab.txt")

    def test_unknown_lengths(self):
        write_run(self.model_dir, params=_SMALL)
        self.save("ckpt")
        self._fails("task.model.long_length=N", "--vocab_file=vocab.txt")

    def test_checkpoint_of_another_model(self):
        records = {
            "features": {"long_length": 8, "global_length": 4},
            "vocab_file": "vocab.txt",
            "vocab_size": 11,
        }
        write_run(
            self.model_dir,
            {
                "task": "wikihop",
                "experiment": "etc/wikihop",
                "records": records,
            },
            _SMALL,
        )
        write_test_vocab(self.model_dir, "rome")
        checkpoint = self.save("ckpt")
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.build([1, 1])
        with contextlib.ExitStack() as stack:
            if KERAS_2:
                from etcmodel.tasks.wikihop.experiment import WikiHopTask

                stack.enter_context(
                    mock.patch.object(
                        WikiHopTask, "build_model", return_value=model
                    )
                )
            self._fails(
                f"{checkpoint} does not fit the model that {self.model_dir} and"
            )

    def test_not_a_run(self):
        code, _, err = run_cli(
            "export", "--model_dir=/no/such", "--output_dir=/tmp/x"
        )
        self.assertEqual(1, code)
        self.assertIn("/no/such is not the directory of a run", err)

    def test_required_flags(self):
        code, _, err = run_cli("export", "--checkpoint=best")
        self.assertEqual(1, code)
        self.assertIn("export needs --model_dir, --output_dir", err)


if __name__ == "__main__":
    tf.test.main()
