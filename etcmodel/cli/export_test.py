import os

import tensorflow as tf

from etcmodel.pipeline import tfrecords
from testing.tasks import CommandTestCase
from testing.tasks import run_cli
from testing.tasks import without_phases
from testing.tasks import write_run
from testing.tasks import write_test_vocab

_SMALL = {"task": {"model": {"encoder": {"preset": "tiny"}}}}


class ExportTest(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.model_dir = self.path("run")
        os.makedirs(self.model_dir)

    def _fails(self, message, *arguments):
        """Exports a checkpoint that fits no model; checks the error."""
        checkpoint = tf.train.Checkpoint(x=tf.Variable(1))
        checkpoint.save(self.path("run", "ckpt"))
        result = run_cli(
            "export",
            f"--model_dir={self.model_dir}",
            f"--output_dir={self.path('saved_model')}",
            *arguments,
        )
        self.assert_fails(without_phases(result), message)
        self.assertEqual(["run"], os.listdir(self.directory))

    def test_incomplete_run(self):
        write_run(self.model_dir, params=_SMALL)
        self._fails("task.model.long_length=N", f"--vocab_file={__file__}")

    def test_checkpoint_of_another_model(self):
        vocab_file = write_test_vocab(self.model_dir, "rome")
        note = {
            "task": "wikihop",
            "experiment": "etc/wikihop",
            "records": {
                "preprocessing_config": {
                    "long_length": 8,
                    "global_length": 4,
                    "max_num_sentences": 9,
                },
                "vocab_file": "vocab.txt",
                "vocab_size": 11,
                "vocab_fingerprint": tfrecords.fingerprint(vocab_file),
            },
        }
        write_run(self.model_dir, note, _SMALL)
        self._fails(
            f"{self.model_dir}/ckpt-1 does not fit the model configured by "
            f"{self.model_dir} and"
        )


if __name__ == "__main__":
    tf.test.main()
