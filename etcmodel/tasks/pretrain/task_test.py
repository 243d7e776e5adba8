"""Tests of the experiments of ETC's pre-training."""

import math

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.tasks import registry


class TaskTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        registry.register_experiments("pretrain")

    def test_hyperparameters_of_the_paper(self):
        params = exp_factory.get_exp_config("etc/pretrain")
        # Section 4.1 and Appendix C.
        self.assertEqual(63_000, params.trainer.train_steps)
        schedule = params.trainer.optimizer_config
        self.assertEqual("lamb", schedule.optimizer.type)
        self.assertNear(
            math.sqrt(8) * 1e-3,
            schedule.learning_rate.polynomial.initial_learning_rate,
            1e-9,
        )
        self.assertEqual(512, params.task.train_data.global_batch_size)
        self.assertEqual(0.1, params.task.cpc_fraction_to_mask)
        self.assertEqual(0.15, params.task.mlm_fraction_to_mask)
        self.assertEqual(0.8, params.task.mlm_weight)
        self.assertEqual(0.2, params.task.cpc_weight)
        sizes = registry.get("pretrain").make_preprocessing_config({})
        self.assertEqual(4096, sizes.long_length)
        self.assertEqual(7, sizes.min_sentences)

    @parameterized.parameters(
        # Table 8 of the paper: parameters of base and shared.
        ("etc/pretrain", 12, False, 0.2, 512),
        ("etc/pretrain_shared", 12, True, 0.2, 512),
        ("etc/pretrain_no_cpc", 12, False, 0.0, 512),
        ("etc/pretrain_large", 24, False, 0.2, 1024),
    )
    def test_variants(self, name, layers, shared, cpc_weight, batch_size):
        params = exp_factory.get_exp_config(name)
        config = params.task.model.encoder.to_config(99)
        self.assertEqual(layers, config.num_hidden_layers)
        self.assertEqual(shared, config.share_qkv_projections)
        self.assertTrue(config.use_hard_g2l_mask)
        self.assertEqual(cpc_weight, params.task.cpc_weight)
        self.assertEqual(batch_size, params.task.train_data.global_batch_size)


if __name__ == "__main__":
    tf.test.main()
