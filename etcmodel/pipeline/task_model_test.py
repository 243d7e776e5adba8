import pytest
import tensorflow as tf

from etcmodel.models import EtcConfig
from testing import toy_task as toy


class TaskModelTest(tf.test.TestCase):
    @pytest.mark.both_kerases
    def test_builds_the_head_on_the_encoder(self):
        task_model = toy.TASK.make_model(toy.ModelOptions(scale=3.0))
        config = EtcConfig.from_preset(
            "tiny", num_hidden_layers=1, initializer_range=0.3
        )
        model = task_model.build(config, long_length=5, global_length=2)
        self.assertEqual([None, 5], list(model.input["long_token_ids"].shape))
        self.assertEqual([None, 2], list(model.input["global_token_ids"].shape))
        plain = toy.TASK.make_model().build(config)
        plain.set_weights(model.get_weights())
        ids = {
            name: tf.ones([1, *x.shape[1:]], x.dtype)
            for name, x in model.input.items()
        }
        logits = model(ids)["logits"]
        self.assertGreater(tf.reduce_max(tf.abs(logits)), 0.01)
        self.assertAllClose(logits, 3 * plain(ids)["logits"], 1e-4, 1e-4)

    def test_options(self):
        task_model = toy.TASK.make_model(toy.ModelOptions(scale=3.0))
        other = task_model.with_option("threshold", 2.0)
        self.assertEqual(3.0, other.model_options.scale)
        self.assertEqual(2.0, other.options.threshold)
        self.assertIsNone(task_model.options.threshold)


if __name__ == "__main__":
    tf.test.main()
