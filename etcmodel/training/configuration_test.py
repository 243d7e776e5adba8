import importlib
import json
import os

import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.errors import UserError
from testing.keras_version import KERAS_2

if KERAS_2:
    from official.modeling import optimization

    from etcmodel.training import configuration


class ImportTest(tf.test.TestCase):
    @pytest.mark.both_kerases
    def test_error_under_keras_3(self):
        for name in ("configuration", "trainer"):
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
            config = configuration.EncoderParams(
                hidden_dropout_prob=0.0, local_radius=42, **preset
            ).to_config(vocab_size)
            self.assertEqual(expected, (config.vocab_size, config.hidden_size))
            self.assertEqual(0.0, config.hidden_dropout_prob)
            self.assertEqual(42, config.local_radius)

    def test_invalid_values(self):
        for params, message in (
            ({"preset": "huge"}, "task.model.encoder"),
            ({"config_file": "/no/such.json"}, "task.model.encoder"),
            ({"hidden_size": 10}, "task.model.encoder"),
            ({"vocab_size": 200}, "201 tokens.*has 200"),
        ):
            params = configuration.EncoderParams(**params)
            with self.assertRaisesRegex(UserError, message):
                params.to_config(201)


class ReadTwiceParamsTest(tf.test.TestCase):
    def test_preset_with_changes(self):
        params = configuration.ReadTwiceParams(
            preset="base", hidden_dropout_prob=0.0, cross_attention_top_k=100
        )
        config = params.to_config(123)
        self.assertEqual(123, config.vocab_size)
        self.assertEqual(0.0, config.hidden_dropout_prob)
        self.assertEqual(100, config.cross_attention_top_k)
        self.assertEqual("entity", config.summary_mode)
        params = configuration.ReadTwiceParams(summary_mode="words")
        with self.assertRaisesRegex(UserError, "encoder: summary_mode"):
            params.to_config()


class TrainerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("adamw", "lamb")
    def test_recipe(self, name):
        trainer = configuration.make_trainer(
            train_steps=300,
            warmup_steps=30,
            validation_interval=100,
            learning_rate=2e-4,
            optimizer=name,
            weight_decay=0.1,
            best_metric="f1",
        )
        self.assertEqual(300, trainer.train_steps)
        self.assertEqual(100, trainer.validation_interval)
        factory = optimization.OptimizerFactory(trainer.optimizer_config)
        rate = factory.build_learning_rate()
        # During 30 steps, the warm-up rises to the value that the linear decay
        # has at step 30. The decay reaches 0 at step 300.
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
        # The gradients have a norm of 130, which is clipped to 1. The first
        # moment is a tenth of the clipped gradients.
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
            configuration.make_trainer(1, 1, 1.0, "sgd", 0.1, 1, "f1")


if __name__ == "__main__":
    tf.test.main()
