"""Tests of ReadTwice's experiments."""

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.tasks import registry


class TaskTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # Section 4.2 and Appendix C of the paper, and its code. Steps are
        # questions times segments of each, times epochs, of 128 segments.
        ("hotpotqa", 3e-5, 90_447 * 10 * 6 / 128, "f1", 40, 10),
        ("triviaqa", 1e-5, 61_888 * 10 * 6 / 128, "f1", 8, 20),
        ("narrativeqa", 5e-6, 32_747 * 200 * 6 / 128, "rouge_l", 40, 10),
    )
    def test_hyperparameters_of_the_paper(
        self, name, rate, steps, metric, top, size
    ):
        registry.register_experiments(f"read_twice_{name}")
        params = exp_factory.get_exp_config(f"read_twice/{name}")
        schedule = params.trainer.optimizer_config.learning_rate.polynomial
        self.assertEqual(rate, schedule.initial_learning_rate)
        self.assertEqual(int(steps), params.trainer.train_steps)
        self.assertEqual(128, params.task.train_data.global_batch_size)
        self.assertEqual(128, params.task.validation_data.global_batch_size)
        self.assertEqual(metric, params.trainer.best_checkpoint_eval_metric)
        self.assertEqual(top, params.task.decode_top_k)
        self.assertEqual(size, params.task.decode_max_size)
        self.assertEqual("doc", params.task.model.cross_block_attention_mode)
        config = params.task.model.encoder.to_config(99)
        self.assertEqual("entity", config.summary_mode)
        # Appendix C.4.
        self.assertEqual(100, config.cross_attention_top_k)

    @parameterized.parameters(
        # Where memories are not of mentions, all tokens read them.
        ("single_segment", "entity", "block", 12, True),
        ("single_segment_10_layers", "entity", "block", 10, True),
        ("cls", "cls", "doc", 12, False),
        ("sts", "text_block", "doc", 12, False),
    )
    def test_ablations(self, name, summary_mode, mode, layers, is_sparse):
        registry.register_experiments("read_twice_narrativeqa")
        name = f"read_twice/narrativeqa_{name}"
        params = exp_factory.get_exp_config(name)
        config = params.task.model.encoder.to_config(99)
        self.assertEqual(summary_mode, config.summary_mode)
        self.assertEqual(layers, config.num_hidden_layers)
        self.assertEqual(is_sparse, config.use_sparse_memory_attention)
        self.assertEqual(mode, params.task.model.cross_block_attention_mode)


if __name__ == "__main__":
    tf.test.main()
