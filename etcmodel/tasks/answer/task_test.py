"""Tests of question answering's options and experiments."""

import tensorflow as tf
from official.core import exp_factory

from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.answer.task import TASK


class TaskTest(tf.test.TestCase):
    def test_experiments(self):
        registry.register_experiments("answer")
        for name in TASK.experiments:
            params = exp_factory.get_exp_config(name)
            encoder = params.task.model.encoder.to_config()
            large = "large" in name
            self.assertEqual(24 if large else 12, encoder.num_hidden_layers)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertTrue(encoder.use_hard_g2l_mask)
            self.assertEqual("span", params.task.model.answer_encoding)
            best = params.trainer.best_checkpoint_eval_metric
            self.assertEqual("f1", best)

    def test_evidence_is_of_units(self):
        row = {
            **{"question": "Who?", "paragraphs": [["Jan.", "Eve."], ["Bo."]]},
            **{"answers": "Eve", "evidence": [[0, 1]]},
        }
        for units, expected in (("texts", (0, 1)), ("paragraphs", (0, -1))):
            config = TASK.make_preprocessing_config({"units": units})
            (record,) = TASK.format(config).read_rows([row])
            self.assertEqual((expected,), record.evidence)

    def test_answers_are_in_no_block(self):
        with self.assertRaisesRegex(UserError, "'blocks', expected one of"):
            TASK.make_preprocessing_config({"units": "blocks"})


if __name__ == "__main__":
    tf.test.main()
