"""A run that was interrupted ends as one that was not."""

from unittest import mock

import orbit
import tensorflow as tf

from testing import tasks
from testing.tasks import run_cli

_STEPS, _INTERRUPTED_AFTER = 9, 7


class ResumeTest(tasks.EndToEndTestCase):
    """Masks, dropout and the order of records are random in each step."""

    task = "pretrain"
    steps = _STEPS
    exports = False
    overrides = {
        # Interrupted within an epoch.
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

    def _checkpoint(self, model_dir):
        """All that the last checkpoint holds: name -> value."""
        path = tf.train.latest_checkpoint(model_dir)
        reader = tf.train.load_checkpoint(path)
        return {
            name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): value
            for name in reader.get_variable_to_shape_map()
            if not isinstance(value := reader.get_tensor(name), bytes)
        }

    def test_goes_on_as_if_nothing_had_happened(self):
        expected = self._checkpoint(self.model_dir)
        self.assertEqual(_STEPS, expected["global_step"])
        model_dir = self.path("interrupted")
        # The last of two equal flags counts.
        train = ["train", *self.train_flags(), f"--model_dir={model_dir}"]
        train_steps = orbit.Controller._train_n_steps

        def train_until_interrupted(controller, num_steps):
            train_steps(controller, num_steps)
            if controller.global_step >= _INTERRUPTED_AFTER:
                raise KeyboardInterrupt

        tf.keras.utils.set_random_seed(1)
        with mock.patch.object(
            orbit.Controller, "_train_n_steps", train_until_interrupted
        ):
            code, out, err = run_cli(*train)
        self.assertIn("same command resumes", out)
        self.assertEqual((130, "\ntrain was interrupted.\n"), (code, err))
        saved = self._checkpoint(model_dir)["global_step"]
        self.assertEqual(_INTERRUPTED_AFTER, saved)
        # If anything of a model began anew, it would begin otherwise.
        tf.keras.utils.set_random_seed(2)
        self.run_command(*train)
        actual = self._checkpoint(model_dir)
        self.assertEqual(set(expected), set(actual))
        slots = [name for name in actual if "OPTIMIZER_SLOT" in name]
        self.assertGreater(len(slots), 20)
        # One checkpoint more was saved where the run was interrupted.
        del expected["save_counter"]
        for name, value in expected.items():
            self.assertAllEqual(value, actual[name], name)


if __name__ == "__main__":
    tf.test.main()
