import tensorflow as tf
from official.core import exp_factory

from etcmodel.tasks.wikihop import experiment
from etcmodel.tasks.wikihop.experiments import EXPERIMENTS

assert experiment  # It registers them.


class ExperimentsTest(tf.test.TestCase):
    def test_variants(self):
        for name in EXPERIMENTS:
            params = exp_factory.get_exp_config(name)
            encoder = params.task.model.encoder.to_etc_config()
            lamb = params.trainer.optimizer_config.optimizer.type == "lamb"
            self.assertEqual("lamb" in name, lamb)
            large = encoder.num_hidden_layers == 24
            self.assertEqual("large" in name, large)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertEqual("shared" in name, encoder.share_qkv_projections)
            self.assertEqual("flat" in name, params.task.model.flat_sequence)
            self.assertEqual(
                name not in ("etc/wikihop", "etc/wikihop_lamb"),
                encoder.use_hard_g2l_mask,
            )


if __name__ == "__main__":
    tf.test.main()
