"""Tests the experiments of all tasks: hyperparameters, steps, warm starts."""

import json
import math
import os

import tensorflow as tf
from absl.testing import parameterized
from official.core import exp_factory

from etcmodel import checkpoints
from etcmodel.errors import UserError
from etcmodel.tasks import registry
from etcmodel.training import trainer
from testing.models import shrink_experiment
from testing.models import small_records

_NQ_METRIC = "average_best_threshold_f1"


def _small_task(name, **options):
    """Returns a tiny experiment on nine tiny records, and its task."""
    spec = registry.get(name)
    params = trainer.configure(spec, **spec.recipe, **options)
    shrink_experiment(params, small_records(name), 8 if name == "nq" else 4)
    return params, trainer.task_classes(spec)[0](params.task)


class ExperimentsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # Steps are records * epochs / batch size. Source: ETC paper, section
        # 4.1 and Appendix C.
        ("etc/wikihop", 43_738 * 15 / 64, 64, 4e-5, 0.1, "accuracy"),
        ("etc/hotpotqa", 90_431 * 9 / 64, 64, 5e-5, 0.01, "joint_f1"),
        ("etc/hotpotqa_large", 90_431 * 5 / 32, 32, 3e-5, 0.01, "joint_f1"),
        ("etc/nq", 307_373 * 5 / 64, 64, 5e-5, 0.01, _NQ_METRIC),
        ("etc/nq_large", 307_373 * 2 / 64, 64, 3e-5, 0.01, _NQ_METRIC),
        ("etc/openkp", 133_374 * 3 / 64, 64, 5e-5, 0.01, "f1_at_3"),
        ("etc/openkp_large", 133_374 * 2 / 64, 64, 3e-5, 0.01, "f1_at_3"),
        ("etc/pretrain", 63_000, 512, math.sqrt(8) / 1e3, None, "mlm_accuracy"),
        # Steps are questions * segments per question * epochs / batch size in
        # segments. Source: ReadTwice paper, sections 4.1 and 4.2 and Appendix
        # C.
        ("read_twice/pretrain", 1e6, 512, 1e-4, None, "mlm_accuracy"),
        ("read_twice/hotpotqa", 90_447 * 10 * 6 / 128, 128, 3e-5, 0.01, "f1"),
        ("read_twice/triviaqa", 61_888 * 10 * 6 / 128, 128, 1e-5, 0.01, "f1"),
        (
            "read_twice/narrativeqa",
            32_747 * 200 * 6 / 128,
            *(128, 5e-6, 0.01, "rouge_l"),
        ),
    )
    def test_hyperparameters_of_the_papers(
        self, name, steps, batch_size, rate, weight_decay, metric
    ):
        registry.register_experiments(registry.task_of_experiment(name).name)
        params = exp_factory.get_exp_config(name)
        trainer, schedule = params.trainer, params.trainer.optimizer_config
        optimizer = schedule.optimizer
        self.assertEqual(
            {
                "steps": int(steps),
                "batch": batch_size,
                "rate": rate,
                "optimizer": "lamb" if weight_decay is None else "adamw",
                "metric": metric,
            },
            {
                "steps": trainer.train_steps,
                "batch": params.task.train_data.global_batch_size,
                "rate": schedule.learning_rate.polynomial.initial_learning_rate,
                "optimizer": optimizer.type,
                "metric": trainer.best_checkpoint_eval_metric,
            },
        )
        if weight_decay:
            self.assertEqual(weight_decay, optimizer.adamw.weight_decay_rate)

    @parameterized.parameters(*registry.tasks())
    def test_names_describe_experiments(self, task):
        registry.register_experiments(task)
        for name in registry.get(task).experiments:
            params = exp_factory.get_exp_config(name)
            config = params.task.model.encoder.to_config(99)
            large, less = "large" in name, "10_layers" in name
            layers = 24 if large else 10 if less else 12
            self.assertEqual(layers, config.num_hidden_layers)
            lamb = params.trainer.optimizer_config.optimizer.type == "lamb"
            self.assertEqual("lamb" in name or "pretrain" in name, lamb)
            if name.startswith("etc/"):
                self.assertEqual(int(large), config.grad_checkpointing_period)
                self.assertEqual("shared" in name, config.share_qkv_projections)
                # Relative labels: one for each of 2k + 1 distances, and three
                # more.
                distance = config.relative_pos_max_distance
                self.assertGreaterEqual(
                    config.relative_vocab_size, 2 * distance + 4
                )

    def test_sizes_of_the_papers(self):
        for task, sizes in {
            "hotpotqa": {"long_length": 4096, "global_length": 256},
            "nq": {"long_length": 4096, "global_length": 230, "stride": 2048},
            "openkp": {"long_length": 4096, "global_length": 512},
            "pretrain": {"long_length": 4096, "min_sentences": 7},
            "wikihop": {"global_length": 430, "max_num_sentences": 200},
        }.items():
            config = registry.get(task).make_preprocessing_config({})
            self.assertEqual(
                sizes, {name: getattr(config, name) for name in sizes}
            )

    @parameterized.parameters(
        ("hotpotqa", {}), ("nq", {}), ("openkp", {"max_loss": True})
    )
    def test_steps_compile(self, name, options):
        """Compiles whole training and evaluation steps, as for a TPU."""
        params, task = _small_task(name, **options)
        model = task.build_model()
        optimizer = task.create_optimizer(params.trainer.optimizer_config)
        batches = task.build_inputs(params.task.validation_data)
        features, labels = next(iter(batches))
        optimizer._create_all_weights(model.trainable_variables)
        expected = task.build_losses(labels, model(features))

        @tf.function(jit_compile=True, autograph=False)
        def train(*inputs):
            return task.train_step(inputs, model, optimizer)

        @tf.function(jit_compile=True, autograph=False)
        def evaluate(*inputs):
            return task.validation_step(inputs, model)

        losses = [train(features, labels)["loss"] for _ in range(3)]
        self.assertAllClose(expected, losses[0], rtol=1e-4)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(3, optimizer.iterations)
        chosen = evaluate(features, labels)["candidates"]
        expected = task.validation_step((features, labels), model)["candidates"]
        self.assertAllEqual(labels["record"], chosen["record"])
        self.assertAllClose(expected, chosen, rtol=1e-4, atol=1e-4)

    def test_loads_the_encoder_of_another_run(self):
        params, task = _small_task("wikihop")
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

    @parameterized.parameters("nq", "openkp", "read_twice_hotpotqa", "wikihop")
    def test_continues_a_run_of_the_same_task(self, name):
        """Loads the weights of the encoder and of the heads."""
        params, task = _small_task(name)
        run = self.get_temp_dir()
        model = task.build_model()
        params.task.init_checkpoint = tf.train.Checkpoint(model=model).write(
            os.path.join(run, "ckpt")
        )
        expected = model.get_weights()
        for weight in model.weights:
            weight.assign(tf.zeros_like(weight))
        note = {"task": name, "experiment": f"etc/{name}"}
        with open(os.path.join(run, "etcmodel.json"), "w") as stream:
            json.dump(note, stream)
        task.initialize(model)
        for weight, value in zip(model.weights, expected, strict=True):
            self.assertAllEqual(value, weight, weight.name)

    def test_loads_a_published_encoder(self):
        params, task = _small_task("wikihop")
        model = task.build_model()
        encoder = model.get_layer("etc_encoder")
        path = os.path.join(self.get_temp_dir(), "published")
        checkpoints.save_etc(model, path)
        expected = encoder.get_weights()
        for weight in model.weights:
            weight.assign(tf.zeros_like(weight))
        params.task.init_checkpoint = path
        task.initialize(model)
        for weight, value in zip(encoder.weights, expected, strict=True):
            self.assertAllEqual(value, weight)
        params.task.init_checkpoint = self.get_temp_dir()
        with self.assertRaisesRegex(UserError, "task.init_checkpoint: .*no T"):
            task.initialize(model)


if __name__ == "__main__":
    tf.test.main()
