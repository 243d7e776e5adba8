import shutil
import tempfile
import unittest

import numpy as np
import tensorflow as tf

from etcmodel.tasks import tfrecords
from etcmodel.tasks.commands import training
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.nq import evaluation
from etcmodel.tasks.task_testing import write_small_records
from etcmodel.testing import call_in_fresh_process
from etcmodel.testing import two_device_strategy

if KERAS_2:
    from official.core import exp_factory
    from official.core import train_lib

    from etcmodel.tasks.nq import experiment

# 18 windows of 9 pages.
_PAGES, _WINDOWS = 9, 18


def small_experiment(path, **options):
    """An experiment with a tiny model on tiny records."""
    params = experiment.nq_experiment(preset="tiny", **options)
    params.override(
        {
            "task": {
                "train_data": {"input_path": path, "global_batch_size": 10},
                "validation_data": {"input_path": path, "global_batch_size": 8},
                "model": {
                    "encoder": {
                        "num_hidden_layers": 1,
                        "hidden_dropout_prob": 0.0,
                        "attention_probs_dropout_prob": 0.0,
                    }
                },
            },
            "trainer": {
                "train_steps": 60,
                "validation_interval": 30,
                "steps_per_loop": 30,
                "summary_interval": 30,
                "checkpoint_interval": 30,
                "optimizer_config": {
                    "learning_rate": {
                        "polynomial": {
                            "initial_learning_rate": 0.01,
                            "decay_steps": 60,
                        }
                    },
                    "warmup": {"linear": {"warmup_steps": 5}},
                },
            },
        }
    )
    return params


def evaluate_plainly(task, model, params):
    """All metrics of a model, from its windows one by one.

    Args:
        task: the task.
        model: its model.
        params: the `ExperimentConfig`.

    Returns:
        The official metrics, and the mean of each loss.
    """
    data = params.task.validation_data.replace(global_batch_size=1)
    batches, losses = [], {}
    call = tf.function(lambda features: model(features, training=False))
    for features, labels in task.build_inputs(data):
        outputs = call(features)
        predicted = evaluation.predict_windows(outputs, labels, 38)
        batches.append({key: x.numpy() for key, x in predicted.items()})
        found = experiment.model_lib.example_losses(outputs, labels)
        for name, value in found.items():
            losses.setdefault(f"{name}_loss", []).append(value[0])
    gold = evaluation.read_gold(params.task.validation_data.input_path)
    assert len(batches) == _WINDOWS and len(gold) == _PAGES
    return {
        **evaluation.score(batches, gold),
        **{name: np.mean(values) for name, values in losses.items()},
    }


def train_on_two_devices(records, directory):
    """Trains on two logical devices; to be called in a fresh process.

    Args:
        records: directory with the small records.
        directory: where to write checkpoints.
    """
    strategy = two_device_strategy()
    params = small_experiment(records)
    with strategy.scope():
        task = experiment.NQTask(params.task)
    collected = []
    reduce_logs = task.reduce_aggregated_logs

    def reduce_and_keep(logs, global_step=None):
        collected.append(logs)
        return reduce_logs(logs, global_step)

    task.reduce_aggregated_logs = reduce_and_keep
    runner = train_lib.OrbitExperimentRunner(
        strategy, task, "train_and_eval", params, directory
    )
    logs = training.run_mode(runner, params, "train_and_post_eval")
    # 18 windows: 4 for each replica at a time. Whatever the replicas, each
    # counts once.
    (batches,) = collected
    keys, weights = (
        np.concatenate([batch[name] for batch in batches])
        for name in ("record", "weight")
    )
    assert weights.sum() == _WINDOWS and len(weights) > _WINDOWS, weights
    keys, counts = np.unique(keys[weights > 0], axis=0, return_counts=True)
    stored = [name for name, _ in tfrecords.read_examples(records)]
    expected = [stored.count(name) for name in set(stored)]
    np.testing.assert_array_equal(sorted(expected), sorted(counts))
    assert len(keys) == _PAGES, len(keys)
    # Only the paragraph of the answer names Jan, and the city is behind "in".
    assert logs["long_best_threshold_f1"] > 0.8, logs
    assert logs["average_best_threshold_f1"] > 0.7, logs
    for variable in runner.trainer.model.trainable_variables:
        first, second = (value.numpy() for value in variable.values)
        np.testing.assert_array_equal(first, second)
    # One device reads the same from the same weights.
    model = task.build_model()
    tf.train.Checkpoint(model=model).read(
        runner.checkpoint_manager.latest_checkpoint
    ).expect_partial()
    for name, value in evaluate_plainly(task, model, params).items():
        np.testing.assert_allclose(
            logs[name], value, rtol=1e-3, atol=1e-5, err_msg=name
        )


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class ExperimentsTest(tf.test.TestCase):
    def test_hyperparameters_of_the_paper(self):
        for name, preset, rate, steps in (
            # 307,373 examples in batches of 64: 5 epochs, 2 for large models.
            ("etc/nq", "base", 5e-5, 24013),
            ("etc/nq_large", "large", 3e-5, 9605),
        ):
            params = exp_factory.get_exp_config(name)
            self.assertEqual(preset, params.task.model.encoder.preset)
            encoder = params.task.model.encoder.to_etc_config()
            self.assertTrue(encoder.use_hard_g2l_mask)
            self.assertFalse(encoder.use_hard_l2g_mask)
            self.assertEqual(64, params.task.train_data.global_batch_size)
            self.assertEqual(steps, params.trainer.train_steps)
            self.assertEqual(4802, params.trainer.validation_interval)
            optimizer = params.trainer.optimizer_config
            self.assertEqual("adamw", optimizer.optimizer.type)
            self.assertEqual(0.01, optimizer.optimizer.adamw.weight_decay_rate)
            decay = optimizer.learning_rate.polynomial
            self.assertEqual(rate, decay.initial_learning_rate)
            self.assertEqual(steps, decay.decay_steps)
            self.assertEqual(steps // 10, optimizer.warmup.linear.warmup_steps)
            # Selected by the average F1 of the development set.
            self.assertEqual(
                "average_best_threshold_f1",
                params.trainer.best_checkpoint_eval_metric,
            )
            self.assertEqual(
                "higher", params.trainer.best_checkpoint_metric_comp
            )
            self.assertEqual(38, params.task.max_short_answer_words)
            self.assertEqual(0.0, params.task.null_threshold)

    def test_ablations(self):
        """Each differs from the base model in what its name says."""
        expected = {
            "etc/nq": {},
            "etc/nq_no_hard_g2l": {"use_hard_g2l_mask": False},
            "etc/nq_shared": {
                "share_qkv_projections": True,
                "share_att_output_projection": True,
            },
            "etc/nq_2x_radius": {"local_radius": 169},
            "etc/nq_2x_vocabulary": {
                "relative_pos_max_distance": 24,
                "relative_vocab_size": 64,
            },
            "etc/nq_large": {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "local_radius": 169,
                "relative_pos_max_distance": 24,
            },
        }
        self.assertEqual(set(expected), set(experiment.EXPERIMENTS))
        base = None
        for name, changes in expected.items():
            params = exp_factory.get_exp_config(name)
            values = params.task.model.encoder.to_etc_config(99).to_dict()
            base = base or values
            for key, value in changes.items():
                self.assertEqual(value, values[key], msg=f"{name} {key}")
            if name != "etc/nq_large":
                self.assertEqual({**base, **changes}, values, msg=name)
                decay = params.trainer.optimizer_config.learning_rate.polynomial
                self.assertEqual(5e-5, decay.initial_learning_rate)
        self.assertEqual(84, base["local_radius"])
        self.assertEqual(12, base["relative_pos_max_distance"])


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class NQTaskTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.records = write_small_records(directory, _PAGES, "nq")

    def test_reads_windows(self):
        """In evaluation, the last batch is filled up."""
        task = experiment.NQTask(small_experiment(self.records).task)
        self.assertEqual(32, task.long_length)
        self.assertEqual(16, task.global_length)
        batches = list(task.build_inputs(task.task_config.validation_data))
        for features, labels in batches:
            self.assertEqual([8, 32], features["long_token_ids"].shape)
            self.assertEqual([8, 16], features["global_token_ids"].shape)
            self.assertEqual([8, 32], labels["words"].shape)
            self.assertEqual([8, 2], labels["record"].shape)
            real = labels["weight"] > 0
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
        task = experiment.NQTask(small_experiment(self.records).task)
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
        self.assertAllClose(
            sum(losses.values()) / 5 + 0.75,
            task.build_losses(labels, outputs, [0.5, 0.25]),
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
        labels["weight"] = tf.zeros([3])
        self.assertEqual(0.0, task.build_losses(labels, outputs))

    def test_decoding_options(self):
        params = small_experiment(self.records).task
        params.null_threshold, params.max_short_answer_words = 1.5, 12
        self.assertEqual(
            {"null_threshold": 1.5, "max_short_answer_words": 12},
            experiment.NQTask(params).decoding_options(),
        )

    def test_trains_on_two_devices(self):
        call_in_fresh_process(
            train_on_two_devices, self.records, self.get_temp_dir()
        )

    def test_training_step_compiles(self):
        """At static shapes, as a TPU needs it."""
        params = small_experiment(self.records)
        task = experiment.NQTask(params.task)
        model = task.build_model()
        optimizer = task.create_optimizer(params.trainer.optimizer_config)
        (features, labels) = next(
            iter(task.build_inputs(params.task.train_data))
        )
        optimizer._create_all_weights(model.trainable_variables)
        expected = task.build_losses(labels, model(features))

        @tf.function(jit_compile=True, autograph=False)
        def train(*inputs):
            return task.train_step(inputs, model, optimizer)

        @tf.function(jit_compile=True, autograph=False)
        def evaluate(*inputs):
            return task.validation_step(inputs, model)

        losses = [train(features, labels)["loss"] for _ in range(9)]
        self.assertAllClose(expected, losses[0], rtol=1e-4)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(9, optimizer.iterations)
        logs = evaluate(features, labels)
        self.assertLess(logs["loss"], losses[-1])
        self.assertAllEqual(labels["record"], logs["predictions"]["record"])


if __name__ == "__main__":
    tf.test.main()
