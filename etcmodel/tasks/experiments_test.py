"""What the experiments of the ETC paper's tasks have in common."""

import json
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


def _small_task(name, **options):
    """A tiny experiment on nine tiny records, and its task."""
    spec = registry.get(name)
    params = trainer.configure(spec, **spec.recipe, **options)
    shrink_experiment(params, small_records(name), 8 if name == "nq" else 4)
    return params, trainer.task_classes(spec)[0](params.task)


class ExperimentsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # 43,738 records, 15 epochs of batches of 64.
        ("wikihop", "base", 64, 10251, 4e-5, 0.1, "accuracy"),
        # 90,431 records, 9 epochs of batches of 64; 5 epochs of batches of 32.
        ("hotpotqa", "base", 64, 12716, 5e-5, 0.01, "joint_f1"),
        ("hotpotqa_large", "large", 32, 14129, 3e-5, 0.01, "joint_f1"),
        # 307,373 examples in batches of 64: 5 epochs, 2 for large models.
        ("nq", "base", 64, 24013, 5e-5, 0.01, "average_best_threshold_f1"),
        (
            "nq_large",
            "large",
            64,
            9605,
            3e-5,
            0.01,
            "average_best_threshold_f1",
        ),
        # 133,374 pages in batches of 64: 3 epochs, 2 for large models.
        ("openkp", "base", 64, 6251, 5e-5, 0.01, "f1_at_3"),
        ("openkp_large", "large", 64, 4167, 3e-5, 0.01, "f1_at_3"),
    )
    def test_hyperparameters_of_the_paper(
        self, name, preset, batch_size, steps, rate, weight_decay, metric
    ):
        registry.register_experiments(name.removesuffix("_large"))
        params = exp_factory.get_exp_config(f"etc/{name}")
        trainer, optimizer = params.trainer, params.trainer.optimizer_config
        decay = optimizer.learning_rate.polynomial
        self.assertEqual(
            {
                "preset": preset,
                "batch": batch_size,
                "steps": (steps, steps),
                "warmup": steps // 10,
                "rate": rate,
                "optimizer": ("adamw", weight_decay),
                "best": (metric, "higher"),
            },
            {
                "preset": params.task.model.encoder.preset,
                "batch": params.task.train_data.global_batch_size,
                "steps": (trainer.train_steps, decay.decay_steps),
                "warmup": optimizer.warmup.linear.warmup_steps,
                "rate": decay.initial_learning_rate,
                "optimizer": (
                    optimizer.optimizer.type,
                    optimizer.optimizer.adamw.weight_decay_rate,
                ),
                "best": (
                    trainer.best_checkpoint_eval_metric,
                    trainer.best_checkpoint_metric_comp,
                ),
            },
        )
        encoder = params.task.model.encoder.to_config()
        self.assertEqual(name != "wikihop", encoder.use_hard_g2l_mask)
        self.assertFalse(encoder.use_hard_l2g_mask)
        self.assertEqual(
            (169, 24, 24) if preset == "large" else (84, 12, 12),
            (
                encoder.local_radius,
                encoder.relative_pos_max_distance,
                encoder.num_hidden_layers,
            ),
        )

    @parameterized.parameters(
        ("hotpotqa", {}), ("nq", {}), ("openkp", {"max_loss": True})
    )
    def test_steps_compile(self, name, options):
        """The whole of training and of evaluation, as a TPU needs it."""
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
        """Heads are loaded, too, not the encoder alone."""
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
