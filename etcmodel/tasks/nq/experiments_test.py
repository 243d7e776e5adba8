import tensorflow as tf
from official.core import exp_factory

from etcmodel.tasks.nq import experiment
from etcmodel.tasks.nq.experiments import EXPERIMENTS

assert experiment  # It registers them.


class ExperimentsTest(tf.test.TestCase):
    def test_ablations(self):
        """Each differs from the base model in what its name says."""
        expected = {
            "etc/nq": {},
            "etc/nq_no_hard_g2l": {"use_hard_g2l_mask": False},
            "etc/nq_shared": {
                "share_qkv_projections": True,
                "share_att_output_projection": True,
            },
            "etc/nq_2x_radius": {"local_radius": 169},
            "etc/nq_2x_vocabulary": {
                "relative_pos_max_distance": 24,
                "relative_vocab_size": 64,
            },
            "etc/nq_large": {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "local_radius": 169,
                "relative_pos_max_distance": 24,
            },
        }
        self.assertEqual(set(expected), set(EXPERIMENTS))
        base = None
        for name, changes in expected.items():
            params = exp_factory.get_exp_config(name)
            values = params.task.model.encoder.to_etc_config(99).to_dict()
            base = base or values
            self.assertEqual(4802, params.trainer.validation_interval)
            for key, value in changes.items():
                self.assertEqual(value, values[key], msg=f"{name} {key}")
            if name != "etc/nq_large":
                self.assertEqual({**base, **changes}, values, msg=name)
                decay = params.trainer.optimizer_config.learning_rate.polynomial
                self.assertEqual(5e-5, decay.initial_learning_rate)


if __name__ == "__main__":
    tf.test.main()
