import os

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.tasks.model_testing import shrink_experiment
from etcmodel.tasks.model_testing import small_records
from etcmodel.tasks.wikihop import experiment


def small_experiment():
    """A tiny model on tiny records."""
    return shrink_experiment(experiment.wikihop_experiment(), small_records())


class WikiHopTaskTest(tf.test.TestCase):
    def test_reads_files_of_the_original_code(self):
        """Uncompressed, with padding, and no note beside them."""
        params = experiment.WikiHopTaskConfig()
        params.model.long_length, params.model.global_length = 6, 4
        features = {
            name: [1, 0, 0, 0, 0, 0] for name in etc_features.LONG_FEATURES
        } | {name: [6, 6, 0, 0] for name in etc_features.GLOBAL_FEATURES}
        proto = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            for name, value in features.items()
        }
        proto["label_id"] = tf.train.Feature(
            float_list=tf.train.FloatList(value=[1.0])
        )
        example = tf.train.Example(
            features=tf.train.Features(feature=proto)
        ).SerializeToString()
        path = os.path.join(self.get_temp_dir(), "tf_examples.record")
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(example)
        params.validation_data.input_path = path
        params.validation_data.global_batch_size = 2
        task = experiment.WikiHopTask(params)
        ((inputs, labels),) = task.build_inputs(params.validation_data)
        self.assertAllEqual([1, 0], labels["label"])
        self.assertAllEqual([1.0, 0.0], labels["weight"])
        self.assertAllEqual(
            [[6, 6, 0, 0], [0, 0, 0, 0]], labels["global_token_type_ids"]
        )
        self.assertAllEqual([1, 0, 0, 0, 0, 0], inputs["l2g_linked_ids"][0])

    def test_loads_the_encoder_of_another_run(self):
        params = small_experiment()
        task = experiment.WikiHopTask(params.task)
        model = task.build_model()
        encoder = model.get_layer("etc_encoder").weights
        expected = [weight.numpy() for weight in encoder]
        params.task.init_checkpoint = tf.train.Checkpoint(
            model=model, **model.checkpoint_items
        ).write(os.path.join(self.get_temp_dir(), "ckpt"))
        for weight in model.weights:
            weight.assign(tf.zeros_like(weight))
        task.initialize(model)
        for weight, value in zip(encoder, expected, strict=True):
            self.assertAllEqual(value, weight)
        kernel = model.get_layer("global_output_layer").logit.kernel
        self.assertAllEqual(tf.zeros_like(kernel), kernel)

    def test_label_smoothing_and_padding(self):
        params = small_experiment()
        params.task.label_smoothing = 0.3
        task = experiment.WikiHopTask(params.task)
        labels = {
            "label": tf.constant([1, 0]),
            "weight": tf.constant([1.0, 0.0]),
            "global_token_type_ids": tf.constant([[6, 6, 6, 0], [0, 0, 0, 0]]),
        }
        outputs = {
            "logits": tf.constant([[0.0, 1.0, 2.0, -10000.0], [-10000.0] * 4])
        }
        log_sum = np.log(np.exp([0.0, 1.0, 2.0]).sum())
        # 0.7 + 0.1 for the right one, 0.1 for each of the others.
        expected = 0.1 * log_sum + 0.8 * (log_sum - 1) + 0.1 * (log_sum - 2)
        self.assertAllClose(
            expected, task.build_losses(labels, outputs), rtol=1e-4
        )
        metrics = task.build_metrics()
        task.process_metrics(metrics, labels, outputs)
        self.assertAllClose(
            [0.0, expected], [metric.result() for metric in metrics]
        )


if __name__ == "__main__":
    tf.test.main()
