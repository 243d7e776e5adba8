"""What pre-training tasks share; `two_devices_test` has several replicas."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from official.core import config_definitions as cfg

from etcmodel.errors import UserError
from etcmodel.training import pretraining


@dataclasses.dataclass
class _Config(cfg.TaskConfig):
    mlm_fraction_to_mask: float = 0.15
    mlm_weight: float = 3.0
    other_weight: float = 1.0


class _Task(pretraining.PretrainingTask):
    @classmethod
    def factors(cls, params):
        return {
            "mlm_loss": params.mlm_weight,
            "other_loss": params.other_weight,
        }

    def build_inputs(self, params, input_context=None):
        raise NotImplementedError

    def metric_names(self):
        return ["mlm_loss", "mlm_accuracy"]

    def terms(self, labels, outputs):
        terms = pretraining.masked_language_model(labels, outputs)
        return terms | {
            "other_loss": pretraining.Term(
                outputs["other"], tf.constant([1.0, 0.0])
            )
        }


class PretrainingTaskTest(tf.test.TestCase, parameterized.TestCase):
    def test_by_hand(self):
        task = _Task(_Config(), metadata={"task": "x"})
        labels = {
            "label_ids": tf.constant([[0, 1]]),
            "weights": tf.constant([[1.0, 0.0]]),
        }
        outputs = {
            # Three to one for the right one.
            "logits": tf.math.log([[[0.75, 0.25], [0.9, 0.1]]]),
            "other": tf.constant([2.0, 50.0]),
        }
        self.assertAllClose(
            0.75 * -np.log(0.75) + 0.25 * 2.0,
            task.build_losses(labels, outputs, aux_losses=[tf.constant(0.0)]),
            1e-4,
        )
        metrics = task.build_metrics()
        task.process_metrics(metrics, labels, outputs)
        self.assertAllClose(
            [-np.log(0.75), 1.0], [x.result() for x in metrics], 1e-4
        )

    @parameterized.parameters(
        ({"mlm_fraction_to_mask": 2.0}, "task.mlm_fraction.*from 0 to 1"),
        ({"other_weight": -1.0}, "task.other_weight is -1.0"),
        (
            {"other_weight": 0.0, "mlm_weight": 0.0},
            "task.mlm_weight, task.other_weight are 0",
        ),
    )
    def test_mistakes(self, values, message):
        with self.assertRaisesRegex(UserError, message):
            _Task(_Config(**values), metadata={"task": "x"})


if __name__ == "__main__":
    tf.test.main()
