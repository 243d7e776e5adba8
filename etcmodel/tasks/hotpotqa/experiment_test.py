import os
import shutil
import tempfile
import unittest
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.commands import training
from etcmodel.tasks.experiment_lib_test import KERAS_2
from etcmodel.tasks.task_testing import write_small_records
from etcmodel.testing import call_in_fresh_process
from etcmodel.testing import two_device_strategy

if KERAS_2:
    from official.core import exp_factory
    from official.core import train_lib

    from etcmodel.tasks.hotpotqa import evaluation
    from etcmodel.tasks.hotpotqa import experiment

_METRICS = [
    f"{prefix}{name}"
    for prefix in ("", "sp_", "joint_")
    for name in ("em", "f1", "prec", "recall")
]


def small_experiment(path, steps=120, **options):
    """An experiment with a tiny model on tiny records."""
    params = experiment.hotpotqa_experiment(preset="tiny", **options)
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
                "train_steps": steps,
                "validation_interval": steps // 2,
                "steps_per_loop": steps // 2,
                "summary_interval": steps // 2,
                "checkpoint_interval": steps // 2,
                "optimizer_config": {
                    "learning_rate": {
                        "polynomial": {
                            "initial_learning_rate": 0.01,
                            "decay_steps": steps,
                        }
                    },
                    "warmup": {"linear": {"warmup_steps": 5}},
                },
            },
        }
    )
    return params


def evaluate_on_one_device(task, model, data):
    """The metrics of an evaluation without the Model Garden's loops."""
    means = task.build_metrics(training=False)
    state = None

    @tf.function
    def step(*inputs):
        return task.validation_step(inputs, model, means)

    for batch in task.build_inputs(data):
        outputs = step(*batch)
        # As a strategy gives them: a tuple of replicas.
        outputs = tf.nest.map_structure(lambda x: (x,), outputs)
        state = task.aggregate_logs(state, outputs)
    logs = task.reduce_aggregated_logs(state)
    return {**logs, **{x.name: float(x.result()) for x in means}}


def train_on_two_devices(records, directory):
    """Trains on two logical devices; to be called in a fresh process.

    Args:
        records: directory with 9 small records.
        directory: where to write checkpoints.
    """
    strategy = two_device_strategy()
    params = small_experiment(records, steps=100)
    with strategy.scope():
        task = experiment.HotpotQATask(params.task)
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
    # Every record once, whatever the replicas: nine, in batches of four.
    (batches,) = collected
    keys = [
        tuple(key)
        for batch in batches
        for key, weight in zip(batch["record"], batch["weight"], strict=True)
        if weight
    ]
    assert len(keys) == 9, len(keys)
    assert set(keys) == set(evaluation.read_gold(records))
    for name in ("em", "sp_em", "joint_em", "answer_type_accuracy"):
        ninths = 9 * logs[name]
        np.testing.assert_allclose(ninths, round(ninths), atol=1e-5)
    assert logs["sp_f1"] > 0.9, logs
    for variable in runner.trainer.model.trainable_variables:
        first, second = (value.numpy() for value in variable.values)
        np.testing.assert_array_equal(first, second)
    # One device reads the same from the same weights.
    model = task.build_model()
    tf.train.Checkpoint(model=model).read(
        runner.checkpoint_manager.latest_checkpoint
    ).expect_partial()
    expected = evaluate_on_one_device(task, model, params.task.validation_data)
    for name, value in expected.items():
        np.testing.assert_allclose(logs[name], value, rtol=1e-3, err_msg=name)


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class ExperimentsTest(tf.test.TestCase):
    def _check_recipe(self, params, steps, batch_size, learning_rate):
        self.assertEqual(batch_size, params.task.train_data.global_batch_size)
        trainer = params.trainer
        self.assertEqual(steps, trainer.train_steps)
        self.assertEqual("joint_f1", trainer.best_checkpoint_eval_metric)
        self.assertEqual("higher", trainer.best_checkpoint_metric_comp)
        optimizer = trainer.optimizer_config
        self.assertEqual("adamw", optimizer.optimizer.type)
        self.assertEqual(0.01, optimizer.optimizer.adamw.weight_decay_rate)
        decay = optimizer.learning_rate.polynomial
        self.assertEqual(learning_rate, decay.initial_learning_rate)
        self.assertEqual(steps, decay.decay_steps)
        self.assertEqual(steps // 10, optimizer.warmup.linear.warmup_steps)

    def test_hyperparameters_of_the_paper(self):
        params = exp_factory.get_exp_config("etc/hotpotqa")
        self.assertEqual("base", params.task.model.encoder.preset)
        self.assertEqual("span", params.task.model.answer_encoding)
        self.assertEqual(30, params.task.max_answer_length)
        encoder = params.task.model.encoder.to_etc_config()
        self.assertEqual(84, encoder.local_radius)
        self.assertEqual(12, encoder.relative_pos_max_distance)
        # 90,431 records, 9 epochs of batches of 64.
        self._check_recipe(params, 12716, 64, 5e-5)
        params = exp_factory.get_exp_config("etc/hotpotqa_large")
        # 5 epochs of batches of 32.
        self._check_recipe(params, 14129, 32, 3e-5)
        encoder = params.task.model.encoder.to_etc_config()
        self.assertEqual(24, encoder.num_hidden_layers)
        self.assertEqual(169, encoder.local_radius)
        self.assertEqual(24, encoder.relative_pos_max_distance)

    def test_variants(self):
        """Each differs from the baseline in what its name says."""
        for name in experiment.EXPERIMENTS:
            params = exp_factory.get_exp_config(name)
            model = params.task.model
            encoder = model.encoder.to_etc_config()
            large = "large" in name
            self.assertEqual(24 if large else 12, encoder.num_hidden_layers)
            self.assertEqual(int(large), encoder.grad_checkpointing_period)
            self.assertEqual("shared" in name, encoder.share_qkv_projections)
            self.assertEqual("flat" in name, model.flat_sequence)
            self.assertEqual(
                "bio" if "bio" in name else "span", model.answer_encoding
            )
            self.assertEqual(
                "no_hard_g2l" not in name, encoder.use_hard_g2l_mask
            )
            self.assertFalse(encoder.use_hard_l2g_mask)
            self.assertEqual(
                169 if "radius" in name or large else 84, encoder.local_radius
            )
            self.assertEqual(
                24 if "2x_vocabulary" in name or large else 12,
                encoder.relative_pos_max_distance,
            )
            # Labels of 2k + 1 distances and three more.
            self.assertGreaterEqual(
                encoder.relative_vocab_size,
                2 * encoder.relative_pos_max_distance + 4,
            )


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class HotpotQATaskTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.records = write_small_records(directory, 9, "hotpotqa")

    def _task(self, **options):
        return experiment.HotpotQATask(
            small_experiment(self.records, **options).task
        )

    @parameterized.parameters("span", "bio")
    def test_labels(self, encoding):
        # Of "[CLS] where is jan ? | jan | jan is here . | he is in paris .".
        task = self._task(answer_encoding=encoding)
        data = task.task_config.validation_data
        self.assertEqual((32, 16), (task.long_length, task.global_length))
        batches = list(task.build_inputs(data))
        self.assertLen(batches, 3)
        weights = tf.concat([labels["weight"] for _, labels in batches], 0)
        self.assertAllEqual([1.0] * 9 + [0.0] * 3, weights)
        _, labels = batches[0]
        self.assertEqual([4, 16], labels["supporting_facts"].shape)
        # CLS, four of the question, a paragraph, a title, two sentences.
        self.assertAllEqual(
            [-1] * 5 + [1, 1, 0, 1] + [-1] * 7, labels["supporting_facts"][0]
        )
        self.assertAllEqual(
            [-1] * 6 + [0, 1, 2] + [-1] * 7, labels["global_segments"][0]
        )
        self.assertEqual(0, labels["answer_type"][0])
        # The fourth token of the last sentence.
        position = 1 + 4 + 1 + 4 + 3
        self.assertEqual(10, labels["long_starts"][0, position])
        self.assertEqual(15, labels["long_ends"][0, position])
        if encoding == "bio":
            expected = np.full([32], 2)
            expected[position] = 0
            self.assertAllEqual(expected, labels["answer_bio"][0])
            is_text = np.zeros([32], bool)
            is_text[5:15] = True
            self.assertAllEqual(is_text, labels["is_answer_token"][0])
        else:
            self.assertEqual(position, labels["answer_begin"][0])
            self.assertEqual(position, labels["answer_end"][0])

    def test_losses_and_padding(self):
        task = self._task()
        data = task.task_config.validation_data
        *_, (_, labels) = task.build_inputs(data)
        # One record and three of padding; logits of 0 all over.
        self.assertAllEqual([1.0, 0.0, 0.0, 0.0], labels["weight"])
        outputs = {
            "supporting_fact_logits": tf.zeros([4, 16]),
            "answer_type_logits": tf.zeros([4, 3]),
            "answer_begin_logits": tf.zeros([4, 32]),
            "answer_end_logits": tf.zeros([4, 32]),
        }
        facts = (labels["supporting_facts"][0].numpy() >= 0).sum()
        is_span = int(labels["answer_type"][0]) == 0
        expected = {
            "supporting_facts_loss": facts * np.log(2),
            "answer_type_loss": np.log(3),
            "answer_begin_loss": is_span * np.log(32),
            "answer_end_loss": is_span * np.log(32),
        }
        loss = np.mean(list(expected.values()))
        self.assertAllClose(loss, task.build_losses(labels, outputs), rtol=1e-4)
        self.assertAllClose(
            loss + 2.0,
            task.build_losses(labels, outputs, [tf.constant(2.0)]),
            rtol=1e-4,
        )
        metrics = task.build_metrics()
        task.process_metrics(metrics, labels, outputs)
        self.assertAllClose(
            {**expected, "answer_type_accuracy": float(is_span)},
            {metric.name: metric.result() for metric in metrics},
        )

    def test_trains_through_the_model_garden(self):
        """With labels of tokens; two devices learn spans below."""
        directory = self.get_temp_dir()
        params = small_experiment(self.records, answer_encoding="bio")
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        with strategy.scope():
            task = experiment.HotpotQATask(params.task)
        runner = train_lib.OrbitExperimentRunner(
            strategy, task, "train_and_eval", params, directory
        )
        logs = training.run_mode(runner, params, "train_and_post_eval")
        self.assertContainsSubset(
            [*_METRICS, "supporting_fact_threshold", "answer_type_loss"], logs
        )
        self.assertGreater(logs["joint_f1"], 0.8)
        for name in ("checkpoint", "train", "validation", "best_ckpt"):
            self.assertIn(name, os.listdir(directory))
        best = os.path.join(directory, "best_ckpt")
        self.assertIsNotNone(tf.train.latest_checkpoint(best))

    def test_trains_on_two_devices(self):
        call_in_fresh_process(
            train_on_two_devices, self.records, self.get_temp_dir()
        )

    def test_steps_compile(self):
        """The whole of training and of evaluation, as a TPU needs it."""
        task = self._task()
        data = task.task_config.validation_data
        model = task.build_model()
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
        features, labels = next(iter(task.build_inputs(data)))
        expected = task.build_losses(labels, model(features))

        @tf.function(jit_compile=True, autograph=False)
        def train(*inputs):
            return task.train_step(inputs, model, optimizer)

        @tf.function(jit_compile=True, autograph=False)
        def evaluate(*inputs):
            return task.validation_step(inputs, model)

        losses = [train(features, labels)["loss"] for _ in range(2)]
        self.assertAllClose(expected, losses[0], rtol=1e-4)
        self.assertLess(losses[1], losses[0])
        logs = evaluate(features, labels)
        self.assertLess(logs["loss"], losses[1])
        self.assertAllEqual(labels["record"], logs["predictions"]["record"])

    def test_options_reach_the_model(self):
        params = small_experiment(
            self.records,
            use_hard_g2l_mask=False,
            flat_sequence=True,
            answer_encoding="bio",
        )
        params.task.model.cls_ignores_hard_g2l = False
        task = experiment.HotpotQATask(params.task)
        with mock.patch.object(
            experiment.model_lib, "build_hotpotqa_model"
        ) as build:
            task.build_model()
        (config,), options = build.call_args
        self.assertFalse(config.use_hard_g2l_mask)
        for name, expected in {
            "answer_encoding": "bio",
            "cls_ignores_hard_g2l": False,
            "flat_sequence": True,
            "long_length": 32,
            "global_length": 16,
        }.items():
            self.assertEqual(expected, options[name])

    def test_decoding_options(self):
        params = small_experiment(self.records)
        params.task.supporting_fact_threshold = 0.4
        params.task.max_answer_length = 5
        self.assertEqual(
            {"supporting_fact_threshold": 0.4, "max_answer_length": 5},
            experiment.HotpotQATask(params.task).decoding_options(),
        )


if __name__ == "__main__":
    tf.test.main()
