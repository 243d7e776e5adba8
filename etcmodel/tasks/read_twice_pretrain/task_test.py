"""Tests of the experiments of ReadTwice's pre-training."""

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.tasks import registry


class TaskTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        registry.register_experiments("read_twice_pretrain")

    def test_hyperparameters_of_the_paper(self):
        params = exp_factory.get_exp_config("read_twice/pretrain")
        # Sections 2.2 and 4.1.
        self.assertEqual(1_000_000, params.trainer.train_steps)
        self.assertEqual("lamb", params.trainer.optimizer_config.optimizer.type)
        self.assertEqual(512, params.task.train_data.global_batch_size)
        self.assertEqual(0.25, params.task.mlm_entity_fraction_to_mask)
        self.assertEqual(0.15, params.task.mlm_fraction_to_mask)
        config = params.task.model.encoder.to_config()
        self.assertEqual("entity", config.summary_mode)

    @parameterized.parameters(
        ("read_twice/pretrain_single_segment", "entity", "block", 1.0),
        ("read_twice/pretrain_no_coreference", "entity", "doc", 0.0),
        ("read_twice/pretrain_cls", "cls", "doc", 0.0),
        ("read_twice/pretrain_sts", "text_block", "doc", 0.0),
    )
    def test_ablations(self, name, summary_mode, mode, coreference_weight):
        params = exp_factory.get_exp_config(name)
        config = params.task.model.encoder.to_config(99)
        self.assertEqual(summary_mode, config.summary_mode)
        self.assertEqual(99, config.vocab_size)
        self.assertEqual(mode, params.task.model.cross_block_attention_mode)
        self.assertEqual(coreference_weight, params.task.coreference_weight)


if __name__ == "__main__":
    tf.test.main()
