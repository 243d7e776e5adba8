import importlib
import json
import os

import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords

KERAS_2 = tf.keras.layers.Layer.__module__.startswith("tf_keras")
if KERAS_2:
    from official.core import config_definitions as cfg
    from official.modeling import optimization

    from etcmodel.training import experiments


class ImportTest(tf.test.TestCase):
    @pytest.mark.both_kerases
    def test_says_what_to_do_under_keras_3(self):
        for name in ("experiments", "trainer"):
            name = f"etcmodel.training.{name}"
            if KERAS_2:
                self.assertEqual(name, importlib.import_module(name).__name__)
                continue
            with self.assertRaisesRegex(ImportError, "TF_USE_LEGACY_KERAS=1"):
                importlib.import_module(name)


class EncoderParamsTest(tf.test.TestCase):
    def test_preset_or_file_with_changes(self):
        path = os.path.join(self.get_temp_dir(), "etc_config.json")
        sizes = {"vocab_size": 50, "hidden_size": 24, "num_attention_heads": 3}
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(sizes, stream)
        for preset, vocab_size, expected in (
            ({"preset": "base"}, None, (30522, 768)),
            ({"preset": "base"}, 123, (123, 768)),
            ({"preset": "base", "vocab_size": 200}, 123, (200, 768)),
            ({"config_file": path}, 40, (50, 24)),
        ):
            config = experiments.EncoderParams(
                hidden_dropout_prob=0.0, local_radius=42, **preset
            ).to_config(vocab_size)
            self.assertEqual(expected, (config.vocab_size, config.hidden_size))
            self.assertEqual(0.0, config.hidden_dropout_prob)
            self.assertEqual(42, config.local_radius)

    def test_mistakes(self):
        for params, message in (
            ({"preset": "huge"}, "task.model.encoder"),
            ({"config_file": "/no/such.json"}, "task.model.encoder"),
            ({"hidden_size": 10}, "task.model.encoder"),
            ({"vocab_size": 200}, "201 tokens.*has 200"),
        ):
            params = experiments.EncoderParams(**params)
            with self.assertRaisesRegex(UserError, message):
                params.to_config(201)


class ReadBatchesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.get_temp_dir()
        with tfrecords.ShardedWriter(self.path, "x", 2) as writer:
            for i in range(1, 6):
                writer.write(b"%d" % i)

    def _parse(self, serialized):
        value = tf.strings.to_number(serialized, tf.int32)
        # [batch, 2]
        pair = tf.stack([value, value], axis=1)
        return {"pair": pair}, {"weight": tf.ones_like(value, tf.float32)}

    def _read(self, context=None, **kwargs):
        params = cfg.DataConfig(
            input_path=self.path, global_batch_size=4, **kwargs
        )
        return experiments.read_batches(params, self._parse, context)

    def test_evaluation_reads_every_record_once(self):
        dataset = self._read(is_training=False)
        features, labels = dataset.element_spec
        self.assertEqual([4, 2], features["pair"].shape)
        self.assertEqual([4], labels["weight"].shape)
        values, weights = [], []
        for features, labels in dataset.as_numpy_iterator():
            values.extend(features["pair"][:, 1])
            weights.extend(labels["weight"])
        self.assertAllEqual([1] * 5 + [0] * 3, weights)
        self.assertCountEqual([1, 2, 3, 4, 5], values[:5])

    def test_every_replica_has_a_batch(self):
        context = tf.distribute.InputContext(num_replicas_in_sync=4)
        batches = list(self._read(context, is_training=False))
        # 5 records, one a replica: 8 batches are the next multiple of 4.
        self.assertGreaterEqual(len(batches) - len(batches) % 4, 5)
        weights = tf.concat([labels["weight"] for _, labels in batches], 0)
        self.assertEqual(5.0, tf.reduce_sum(weights))
        self.assertAllEqual([1.0] * 5, weights[:5])

    def test_training_repeats(self):
        dataset = self._read(is_training=True).take(10)
        seen = set()
        for features, labels in dataset.as_numpy_iterator():
            self.assertAllEqual([1, 1, 1, 1], labels["weight"])
            seen.update(features["pair"][:, 0].tolist())
        self.assertEqual({1, 2, 3, 4, 5}, seen)

    def test_no_tuning_thread_keeps_iterators_alive(self):
        for is_training in (False, True):
            options = self._read(is_training=is_training).options()
            self.assertIs(False, options.autotune.enabled)


class TrainerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("adamw", "lamb")
    def test_recipe(self, name):
        trainer = experiments.fine_tuning_trainer(
            num_examples=1000,
            batch_size=10,
            epochs=3,
            learning_rate=2e-4,
            optimizer=name,
            weight_decay=0.1,
            best_metric="f1",
        )
        self.assertEqual(300, trainer.train_steps)
        self.assertEqual(100, trainer.validation_interval)
        factory = optimization.OptimizerFactory(trainer.optimizer_config)
        rate = factory.build_learning_rate()
        # Up to the line of the decay in 30 steps, down to 0 at the end.
        self.assertAllClose(
            [0.0, 0.9e-4, 1.8e-4, 0.9e-4, 0.0],
            [rate(step) for step in (0, 15, 30, 165, 300)],
            rtol=1e-5,
            atol=1e-9,
        )
        optimizer = factory.build_optimizer(rate)
        config = optimizer.get_config()
        self.assertAllClose(0.1, config["weight_decay_rate"])
        self.assertAllClose(1e-6, config["epsilon"])
        self.assertEqual(1.0, optimizer.global_clipnorm)
        if name == "adamw":
            self.assertEqual(0.0, optimizer.gradient_clip_norm)
        # Gradients of a norm of 130 are clipped to 1; the mean of them takes a
        # tenth.
        variables = [tf.Variable([1.0, 1.0]), tf.Variable([1.0])]
        gradients = [tf.constant([30.0, 40.0]), tf.constant([120.0])]
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        for variable, gradient in zip(variables, gradients, strict=True):
            self.assertAllClose(
                0.1 * gradient / 130, optimizer.get_slot(variable, "m")
            )
        names = "layer/kernel embedding_table relative_emb_table"
        others = "relative_bias_table dense/bias gamma beta"
        for name in f"{names} {others}".split():
            self.assertEqual(
                name in names.split(),
                optimizer._do_use_weight_decay(f"{name}:0"),
                name,
            )

    def test_unknown_optimizer(self):
        with self.assertRaisesRegex(ValueError, "sgd"):
            experiments.fine_tuning_trainer(1, 1, 1, 1.0, "sgd", 0.1, "f1")


if __name__ == "__main__":
    tf.test.main()
