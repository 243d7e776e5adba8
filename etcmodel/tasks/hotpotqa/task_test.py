import tensorflow as tf
from official.core import exp_factory

from etcmodel.tasks import registry
from etcmodel.tasks.hotpotqa.task import TASK


class TaskTest(tf.test.TestCase):
    def test_names_tell_how_experiments_differ(self):
        registry.register_experiments("hotpotqa")
        for name in TASK.experiments:
            model = exp_factory.get_exp_config(name).task.model
            encoder = model.encoder.to_config()
            large = "large" in name
            self.assertEqual(24 if large else 12, encoder.num_hidden_layers)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertEqual("shared" in name, encoder.share_qkv_projections)
            self.assertEqual("flat" in name, model.flat_sequence)
            self.assertEqual("span", model.answer_encoding)
            self.assertEqual(
                "no_hard_g2l" not in name, encoder.use_hard_g2l_mask
            )
            self.assertFalse(encoder.use_hard_l2g_mask)
            self.assertEqual(169 if large else 84, encoder.local_radius)
            self.assertEqual(
                24 if large else 12, encoder.relative_pos_max_distance
            )
            # Labels of 2k + 1 distances and three more.
            self.assertGreaterEqual(
                encoder.relative_vocab_size,
                2 * encoder.relative_pos_max_distance + 4,
            )


if __name__ == "__main__":
    tf.test.main()
