import os
import shutil
import tempfile
import unittest

import numpy as np
import tensorflow as tf

from etcmodel.feature_utils import etc_features
from etcmodel.tasks.commands import training
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import write_small_records
from etcmodel.testing import call_in_fresh_process
from etcmodel.testing import two_device_strategy

if KERAS_2:
    from official.core import exp_factory
    from official.core import train_lib

    from etcmodel.tasks.wikihop import experiment


def small_experiment(path, **options):
    """An experiment with a tiny model on tiny records."""
    params = experiment.wikihop_experiment(preset="tiny", **options)
    params.override(
        {
            "task": {
                "train_data": {"input_path": path, "global_batch_size": 8},
                "validation_data": {"input_path": path, "global_batch_size": 4},
                "model": {
                    "encoder": {
                        "num_hidden_layers": 1,
                        "hidden_dropout_prob": 0.0,
                        "attention_probs_dropout_prob": 0.0,
                    }
                },
            },
            "trainer": {
                "train_steps": 40,
                "validation_interval": 20,
                "steps_per_loop": 20,
                "summary_interval": 20,
                "checkpoint_interval": 20,
                "optimizer_config": {
                    "learning_rate": {
                        "polynomial": {
                            "initial_learning_rate": 0.01,
                            "decay_steps": 40,
                        }
                    },
                    "warmup": {"linear": {"warmup_steps": 5}},
                },
            },
        }
    )
    return params


def train_on_two_devices(records, directory):
    """Trains with LAMB on two logical devices; to be called in a fresh process.

    Args:
        records: directory with 9 small records.
        directory: where to write checkpoints.
    """
    strategy = two_device_strategy()
    params = small_experiment(records, optimizer="lamb")
    # LAMB's steps are relative to the norm of the weights.
    decay = params.trainer.optimizer_config.learning_rate.polynomial
    decay.initial_learning_rate = 0.05
    with strategy.scope():
        task = experiment.WikiHopTask(params.task)
    runner = train_lib.OrbitExperimentRunner(
        strategy, task, "train_and_eval", params, directory
    )
    with strategy.scope():
        before = runner.controller.evaluate(steps=-1)
        runner.controller.train(steps=40)
        after = runner.controller.evaluate(steps=-1)
    # Nine records: whatever the replicas, the counts are exact.
    for logs in (before, after):
        ninths = 9 * float(logs["accuracy"])
        np.testing.assert_allclose(ninths, round(ninths), atol=1e-5)
    losses = [float(logs["cross_entropy"]) for logs in (before, after)]
    assert losses[1] < 0.5 * losses[0], losses
    for variable in runner.trainer.model.trainable_variables:
        first, second = (value.numpy() for value in variable.values)
        np.testing.assert_array_equal(first, second)
    # One device reads the same from the same weights.
    model = task.build_model()
    tf.train.Checkpoint(model=model).read(
        runner.checkpoint_manager.latest_checkpoint
    ).expect_partial()
    metrics = task.build_metrics(training=False)
    for batch in task.build_inputs(params.task.validation_data):
        task.validation_step(batch, model, metrics)
    for metric in metrics:
        np.testing.assert_allclose(
            float(after[metric.name]), float(metric.result()), rtol=1e-4
        )


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class ExperimentsTest(tf.test.TestCase):
    def test_hyperparameters_of_the_paper(self):
        params = exp_factory.get_exp_config("etc/wikihop")
        self.assertEqual("base", params.task.model.encoder.preset)
        self.assertFalse(params.task.model.encoder.use_hard_g2l_mask)
        self.assertEqual(64, params.task.train_data.global_batch_size)
        # 43,738 records, 15 epochs.
        self.assertEqual(10251, params.trainer.train_steps)
        optimizer = params.trainer.optimizer_config
        self.assertEqual("adamw", optimizer.optimizer.type)
        self.assertEqual(
            4e-5, optimizer.learning_rate.polynomial.initial_learning_rate
        )
        self.assertEqual(1025, optimizer.warmup.linear.warmup_steps)

    def test_variants(self):
        for name in experiment.EXPERIMENTS:
            params = exp_factory.get_exp_config(name)
            encoder = params.task.model.encoder.to_etc_config()
            lamb = params.trainer.optimizer_config.optimizer.type == "lamb"
            self.assertEqual("lamb" in name, lamb)
            large = encoder.num_hidden_layers == 24
            self.assertEqual("large" in name, large)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertEqual("shared" in name, encoder.share_qkv_projections)
            self.assertEqual("flat" in name, params.task.model.flat_sequence)
            self.assertEqual(
                name not in ("etc/wikihop", "etc/wikihop_lamb"),
                encoder.use_hard_g2l_mask,
            )


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class WikiHopTaskTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.records = write_small_records(directory, 9)

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
        params = small_experiment(self.records)
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

    def test_trains_through_the_model_garden(self):
        directory = self.get_temp_dir()
        params = small_experiment(self.records)
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        with strategy.scope():
            task = experiment.WikiHopTask(params.task)
        runner = train_lib.OrbitExperimentRunner(
            strategy, task, "train_and_eval", params, directory
        )
        metrics = training.run_mode(runner, params, "train_and_post_eval")
        self.assertAllClose(1.0, metrics["accuracy"])
        self.assertLess(metrics["cross_entropy"], 0.2)
        for name in ("checkpoint", "train", "validation", "best_ckpt"):
            self.assertIn(name, os.listdir(directory))
        best = os.path.join(directory, "best_ckpt")
        self.assertIsNotNone(tf.train.latest_checkpoint(best))
        self.assertIn("info.json", os.listdir(best))

    def test_trains_with_lamb_on_two_devices(self):
        call_in_fresh_process(
            train_on_two_devices, self.records, self.get_temp_dir()
        )

    def test_label_smoothing_and_padding(self):
        params = small_experiment(self.records)
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
