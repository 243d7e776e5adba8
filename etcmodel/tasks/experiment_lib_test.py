import os
import unittest

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks import tfrecords
from etcmodel.tasks.errors import UserError

KERAS_2 = tf.keras.layers.Layer.__module__.startswith("tf_keras")
if KERAS_2:
    from official.core import config_definitions as cfg
    from official.modeling import optimization

    from etcmodel.tasks import experiment_lib


@unittest.skipIf(KERAS_2, "this is about Keras 3")
class Keras3Test(tf.test.TestCase):
    def test_import_says_what_to_do(self):
        with self.assertRaisesRegex(ImportError, "TF_USE_LEGACY_KERAS=1"):
            from etcmodel.tasks import experiment_lib  # noqa: F401
        with self.assertRaisesRegex(ImportError, "TF_USE_LEGACY_KERAS=1"):
            from etcmodel.tasks.wikihop import experiment  # noqa: F401


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class EncoderParamsTest(tf.test.TestCase):
    def test_preset_with_changes(self):
        params = experiment_lib.EncoderParams(
            preset="base", hidden_dropout_prob=0.0, local_radius=42
        )
        config = params.to_etc_config()
        self.assertEqual(30522, config.vocab_size)
        self.assertEqual(768, config.hidden_size)
        self.assertEqual(0.0, config.hidden_dropout_prob)
        self.assertEqual(42, config.local_radius)

    def test_vocabulary_of_the_records(self):
        params = experiment_lib.EncoderParams(preset="tiny")
        self.assertEqual(123, params.to_etc_config(123).vocab_size)
        params.vocab_size = 200
        self.assertEqual(200, params.to_etc_config(123).vocab_size)
        with self.assertRaisesRegex(UserError, "201 tokens.*has 200"):
            params.to_etc_config(201)

    def test_config_file(self):
        path = os.path.join(self.get_temp_dir(), "etc_config.json")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write('{"vocab_size": 50, "hidden_size": 24, ')
            stream.write('"num_attention_heads": 3}')
        params = experiment_lib.EncoderParams(
            config_file=path, num_hidden_layers=1
        )
        config = params.to_etc_config(40)
        self.assertEqual(50, config.vocab_size)
        self.assertEqual(24, config.hidden_size)
        self.assertEqual(1, config.num_hidden_layers)

    def test_mistakes(self):
        for params in (
            experiment_lib.EncoderParams(preset="huge"),
            experiment_lib.EncoderParams(config_file="/no/such.json"),
            experiment_lib.EncoderParams(hidden_size=10),
        ):
            with self.assertRaisesRegex(UserError, "task.model.encoder"):
                params.to_etc_config()


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
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
        return experiment_lib.read_batches(params, self._parse, context)

    def test_evaluation_reads_every_record_once(self):
        dataset = self._read(is_training=False)
        features, labels = dataset.element_spec
        self.assertEqual([4, 2], features["pair"].shape)
        self.assertEqual([4], labels["weight"].shape)
        values, weights = [], []
        for features, labels in dataset.as_numpy_iterator():
            values.extend(features["pair"][:, 1])
            weights.extend(labels["weight"])
        self.assertLen(values, 8)
        self.assertEqual(
            [1, 2, 3, 4, 5],
            sorted(v for v, w in zip(values, weights, strict=True) if w),
        )

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


@unittest.skipUnless(KERAS_2, "the Model Garden needs Keras 2")
class TrainerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("adamw", "lamb")
    def test_recipe(self, name):
        trainer = experiment_lib.fine_tuning_trainer(
            num_examples=1000,
            batch_size=10,
            epochs=3,
            learning_rate=2e-4,
            optimizer=name,
        )
        self.assertEqual(300, trainer.train_steps)
        self.assertEqual(100, trainer.validation_interval)
        factory = optimization.OptimizerFactory(trainer.optimizer_config)
        rate = factory.build_learning_rate()
        # Up to the line of the decay in 30 steps, down to 0 at the end.
        for step, expected in (
            (0, 0.0),
            (15, 0.45),
            (30, 0.9),
            (165, 0.45),
            (300, 0.0),
        ):
            self.assertAllClose(
                2e-4 * expected, rate(step), rtol=1e-5, atol=1e-9
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
        for variable, decayed in (
            ("layer/kernel:0", True),
            ("embedding_table:0", True),
            ("relative_emb_table:0", True),
            ("relative_bias_table:0", False),
            ("dense/bias:0", False),
            ("gamma:0", False),
            ("beta:0", False),
        ):
            self.assertEqual(
                decayed, optimizer._do_use_weight_decay(variable), variable
            )

    def test_unknown_optimizer(self):
        with self.assertRaisesRegex(ValueError, "sgd"):
            experiment_lib.fine_tuning_trainer(1, 1, 1, 1.0, optimizer="sgd")


if __name__ == "__main__":
    tf.test.main()
