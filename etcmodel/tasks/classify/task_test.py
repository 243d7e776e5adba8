"""Tests of classification's options and experiments."""

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.tasks.classify.task import TASK


class TaskTest(tf.test.TestCase, parameterized.TestCase):
    def test_sizes(self):
        config = TASK.make_preprocessing_config({})
        self.assertEqual(
            (4096, 512), (config.long_length, config.global_length)
        )
        self.assertEqual(("auto", 64), (config.units, config.block_size))
        config = TASK.make_preprocessing_config({"units": "blocks"})
        self.assertEqual("blocks", config.units)

    def test_experiments(self):
        registry.register_experiments("classify")
        for name in TASK.experiments:
            params = exp_factory.get_exp_config(name)
            encoder = params.task.model.encoder.to_config()
            large = "large" in name
            self.assertEqual(24 if large else 12, encoder.num_hidden_layers)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertFalse(encoder.use_hard_g2l_mask)
            self.assertEqual("mean", params.task.model.pooling)
            best = params.trainer.best_checkpoint_eval_metric
            self.assertEqual("score", best)

    @parameterized.parameters(
        ("number", 3, 3.0),
        ("number", "1.5", 1.5),
        ("multiple", "a", ("a",)),
        ("single", 3.0, "3"),
    )
    def test_other_records_are_read_as_the_training_records(
        self, kind, label, expected
    ):
        """Alone, 3 would be the label "3", and "a" one label."""
        config = TASK.make_preprocessing_config({"kind": kind})
        rows = TASK.format(config).read_rows([{"text": "x", "label": label}])
        (record,) = rows
        self.assertEqual(expected, record.label)

    def test_labels_are_those_of_the_training_records(self):
        """CSV has "1.0" or "True" where JSON has 1 or true."""
        for labels, label, expected in (
            (["0", "1"], "1.0", "1"),
            (["False", "True"], True, "True"),
        ):
            config = TASK.make_preprocessing_config(
                {"kind": "single", "labels": labels}
            )
            (record,) = TASK.format(config).read_rows(
                [{"text": "x", "label": label}]
            )
            self.assertEqual(expected, record.label)

    @parameterized.parameters(
        ("single", (0.5,)), ("number", (0.5,)), ("multiple", TASK.tuned.values)
    )
    def test_threshold_is_chosen_for_several_labels_alone(self, kind, values):
        sizes = {"kind": kind}
        self.assertEqual(values, TASK.tuned.to_try(None, sizes))

    def test_label_kind_that_the_training_records_do_not_have(self):
        with self.assertRaisesRegex(
            UserError, "label_kind is 'number', .* are 'single'"
        ):
            TASK.make_preprocessing_config(
                {"kind": "single", "label_kind": "number"}
            )


if __name__ == "__main__":
    tf.test.main()
