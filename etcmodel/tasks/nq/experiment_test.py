import numpy as np
import tensorflow as tf

from etcmodel.tasks.model_testing import shrink_experiment
from etcmodel.tasks.model_testing import small_records
from etcmodel.tasks.nq import experiment


def small_experiment():
    """A tiny model on 18 windows of nine tiny pages."""
    params = experiment.nq_experiment()
    return shrink_experiment(params, small_records("nq"), 8)


class NQTaskTest(tf.test.TestCase):
    def test_reads_windows(self):
        """In evaluation, the last batch is filled up."""
        task = experiment.NQTask(small_experiment().task)
        self.assertEqual(32, task.long_length)
        self.assertEqual(16, task.global_length)
        batches = list(task.build_inputs(task.task_config.validation_data))
        for features, labels in batches:
            self.assertEqual([8, 32], features["long_token_ids"].shape)
            self.assertEqual([8, 16], features["global_token_ids"].shape)
            self.assertEqual([8, 32], labels["words"].shape)
            self.assertEqual([8, 2], labels["record"].shape)
            real = labels["weight"] > 0
            is_padding = features["long_token_ids"][real] == 0
            self.assertAllEqual(
                tf.unique(labels["words"][real][is_padding])[0], [-1]
            )
            # A page begins behind the CLS, three words and a separator.
            self.assertAllEqual(
                tf.ones_like(labels["words"][real][:, :5]) * -1,
                labels["words"][real][:, :5],
            )
        self.assertAllEqual(
            [8, 8, 2],
            [tf.reduce_sum(labels["weight"]) for _, labels in batches],
        )

    def test_losses_and_padding(self):
        task = experiment.NQTask(small_experiment().task)
        rng = np.random.default_rng(0)
        names = experiment.model_lib.POSITIONS
        outputs = {
            f"{name}_logits": rng.normal(size=[3, 6]).astype(np.float32)
            for name in names
        }
        outputs["answer_type_logits"] = np.eye(5, dtype=np.float32)[[4, 1, 2]]
        labels = {name: rng.integers(0, 6, 3) for name in names}
        labels["answer_type"] = np.array([4, 0, 2])
        weight = np.array([1.0, 1.0, 0.0])
        losses = {}
        for name, label in labels.items():
            exponents = np.exp(outputs[f"{name}_logits"].astype(np.float64))
            probability = exponents / exponents.sum(1, keepdims=True)
            each = -np.log(probability[range(3), label])
            losses[name] = (each * weight).sum() / 2
        labels = {key: tf.constant(x, tf.int32) for key, x in labels.items()}
        labels["weight"] = tf.constant(weight, tf.float32)
        self.assertAllClose(
            # The plain mean of all five.
            sum(losses.values()) / 5,
            task.build_losses(labels, outputs),
            rtol=1e-4,
        )
        all_metrics = task.build_metrics()
        task.process_metrics(all_metrics, labels, outputs)
        self.assertAllClose(
            {
                "answer_type_accuracy": 0.5,
                **{f"{name}_loss": value for name, value in losses.items()},
            },
            {metric.name: metric.result().numpy() for metric in all_metrics},
        )


if __name__ == "__main__":
    tf.test.main()
