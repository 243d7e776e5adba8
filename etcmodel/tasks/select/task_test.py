"""Tests of selection's options and experiments."""

import tensorflow as tf
from official.core import exp_factory

from etcmodel.errors import RecordError
from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.select.task import TASK

_ROW = {"paragraphs": [["Jan sings.", "He paints."], ["It rains."]]}


class TaskTest(tf.test.TestCase):
    def test_experiments(self):
        registry.register_experiments("select")
        for name in TASK.experiments:
            params = exp_factory.get_exp_config(name)
            encoder = params.task.model.encoder.to_config()
            large = "large" in name
            self.assertEqual(24 if large else 12, encoder.num_hidden_layers)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertTrue(encoder.use_hard_g2l_mask)
            self.assertEqual(0.1, params.task.model.unit_prior)
            best = params.trainer.best_checkpoint_eval_metric
            self.assertEqual("f1", best)

    def _read(self, units, selected):
        format_ = TASK.format(TASK.make_preprocessing_config({"units": units}))
        (record,) = format_.read_rows([{**_ROW, "selected": selected}])
        return record.selected

    def test_units_say_how_positions_are_read(self):
        self.assertEqual(((0, 1),), self._read("texts", [[0, 1]]))
        self.assertEqual(((0, 1),), self._read("auto", [[0, 1]]))
        # The whole paragraph.
        self.assertEqual(((0, -1),), self._read("paragraphs", [[0, 1]]))
        self.assertEqual(((1, -1),), self._read("paragraphs", [1]))
        with self.assertRaisesRegex(RecordError, "Leave `units` out"):
            self._read("sentences", [[0, 1]])

    def test_blocks_cannot_be_selected(self):
        with self.assertRaisesRegex(UserError, "'blocks', expected one of"):
            TASK.make_preprocessing_config({"units": "blocks"})


if __name__ == "__main__":
    tf.test.main()
