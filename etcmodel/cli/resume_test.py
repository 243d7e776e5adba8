"""A run that was interrupted ends as one that was not."""

from unittest import mock

import orbit
import tensorflow as tf

from testing import tasks
from testing.tasks import run_cli

_STEPS, _INTERRUPTED_AFTER = 12, 10


class ResumeTest(tasks.EndToEndTestCase):
    task = "wikihop"
    steps = _STEPS
    exports = False
    overrides = {
        "task.train_data.global_batch_size": 4,
        # Not shuffled: where a run goes on, the records begin anew. Two steps
        # see all of them.
        "task.train_data.shuffle_buffer_size": 1,
        "task.train_data.cycle_length": 1,
        "trainer.steps_per_loop": 2,
        "trainer.summary_interval": 2,
        "trainer.checkpoint_interval": 4,
    }

    @classmethod
    def write_data(cls):
        write, cls.features = tasks.SMALL_RECORDS[cls.task]
        cls.features = (*cls.features, "--num_shards=1")
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
        for name, value in expected.items():
            self.assertAllEqual(value, actual[name], name)


if __name__ == "__main__":
    tf.test.main()
