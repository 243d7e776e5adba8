"""Tests of OpenKP's sizes and experiments."""

import tensorflow as tf
from official.core import exp_factory

from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.openkp.task import TASK


class TaskTest(tf.test.TestCase):
    def test_sizes_of_the_paper(self):
        config = TASK.make_preprocessing_config({})
        self.assertEqual(
            (4096, 512, 0),
            (config.long_length, config.global_length, config.fixed_block_size),
        )

    def test_sizes_that_do_not_fit(self):
        for size, message in ((-3, "0 or more"), (7, "512 blocks of 7 have")):
            with self.assertRaisesRegex(UserError, message):
                TASK.make_preprocessing_config({"fixed_block_size": size})

    def test_names_tell_how_experiments_differ(self):
        registry.register_experiments("openkp")
        for name in TASK.experiments:
            params = exp_factory.get_exp_config(name)
            task, model = params.task, params.task.model
            encoder = model.encoder.to_config()
            self.assertEqual("max_loss" in name, task.max_loss)
            self.assertEqual(1e-4, task.label_smoothing)
            large = encoder.num_hidden_layers == 24
            self.assertEqual("large" in name, large)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertEqual("shared" in name, encoder.share_qkv_projections)
            # Each row of the paper's table leaves out one thing more.
            rows = ("no_visual", "no_hard_g2l", "fixed_blocks")
            without = any(x in name for x in rows)
            self.assertEqual(
                (not without, not without),
                (model.visual_in_global, model.visual_in_long),
            )
            self.assertEqual(
                not any(x in name for x in rows[1:]), encoder.use_hard_g2l_mask
            )


if __name__ == "__main__":
    tf.test.main()
