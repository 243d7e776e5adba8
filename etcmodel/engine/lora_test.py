"""Tests runs that train a part of the weights: LoRA, or the head alone."""

import io
import os
import shutil

import numpy as np
import tensorflow as tf

from etcmodel import checkpoints
from etcmodel import models
from etcmodel.checkpoints.files import Checkpoint
from etcmodel.engine import evaluate
from etcmodel.engine import progress
from etcmodel.engine import run_options
from etcmodel.engine import train
from etcmodel.engine import trained_model
from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from etcmodel.tasks import registry
from etcmodel.training import runs
from etcmodel.training import trainer
from etcmodel.weight_paths import get_weight_paths
from testing.models import small_records
from testing.tasks import CommandTestCase

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_ENCODER = "encoder/layer_with_weights-0/"


class LoraTest(CommandTestCase):
    """Trains two steps in bfloat16, with a validation."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.records = small_records("wikihop")
        cls.root = os.path.dirname(cls.records)
        files = tfrecords.find_files(cls.records)
        config = models.EtcConfig.from_preset(
            "tiny",
            vocab_size=tfrecords.read_metadata(files)["vocab_size"],
            num_hidden_layers=1,
        )
        encoder = models.EtcModel(config)
        checkpoints.save_etc(encoder, os.path.join(cls.root, "initial"))
        weights = get_weight_paths(encoder)
        cls.before = {x: y.numpy() for x, y in weights.items()}
        cls.run_dir = os.path.join(cls.root, "run")
        log = io.StringIO()
        train.train(cls._options(2), progress.Reporter("lines", log))
        cls.log = log.getvalue()

    @classmethod
    def _options(cls, steps, **options):
        values = {
            "experiment": "etc/wikihop",
            "model_dir": cls.run_dir,
            "train_data": cls.records,
            "validation_data": cls.records,
            "init_checkpoint": os.path.join(cls.root, "initial"),
            "batch_size": 3,
            "learning_rate": 0.01,
            "schedule": "constant",
            "seed": 1,
            "lora_rank": 2,
            "params_override": {
                "trainer.train_steps": steps,
                "runtime.mixed_precision_dtype": "bfloat16",
            },
            **options,
        }
        return train.Options(**values)

    def _read(self, model_dir):
        """Returns the variables of a run's last checkpoint by name."""
        checkpoint = Checkpoint(tf.train.latest_checkpoint(model_dir))
        return {
            name.removesuffix(_VALUE): checkpoint.read(name)
            for name in checkpoint.shapes
            if name.endswith(_VALUE)
        }

    def test_trains_only_factors_and_new_weights(self):
        saved = self._read(self.run_dir)
        for path, value in self.before.items():
            if "global_qkv_attention" in path:
                self.assertNotAllEqual(value, saved[_ENCODER + path], path)
            elif "relative_" not in path:
                # Frozen weights keep exactly the same values.
                self.assertAllEqual(value, saved[_ENCODER + path], path)
        slots = {
            x.partition("/.OPTIMIZER_SLOT")[0]
            for x in saved
            if "/.OPTIMIZER_SLOT" in x
        }
        of_encoder = {x for x in slots if x.startswith(_ENCODER)}
        self.assertGreater(len(slots), len(of_encoder))
        self.assertEqual(
            {
                "lora_kernel_a",
                "lora_kernel_b",
                "relative_emb_table",
                "relative_bias_table",
            },
            {os.path.basename(x) for x in of_encoder},
        )
        for name in of_encoder:
            if name.endswith("_b"):
                self.assertGreater(np.abs(saved[name]).max(), 0, name)
        self.assertIn(
            "Training 0.0117 of 0.03418 million weights (LoRA of rank 2).",
            self.log,
        )

    def test_merged_model_computes_the_same(self):
        spec = registry.get("wikihop")
        options = self._options(2)
        _, params = run_options.parse_params(
            options, options.experiment, progress.Reporter("quiet")
        )
        task = trainer.task_classes(spec)[0](params.task)
        # The loaded model has the whole length.
        task.metadata = {**task.metadata, "longest": {}}
        unmerged = task.build_model()
        path = runs.find_checkpoint(self.run_dir, "best")
        tf.train.Checkpoint(model=unmerged).read(
            path
        ).expect_partial().assert_existing_objects_matched()
        merged = trained_model.load(
            spec,
            self.run_dir,
            runs.read_params(self.run_dir),
            runs.find_vocabulary(self.run_dir),
        ).model
        plain = {x for x in get_weight_paths(merged) if "lora" not in x}
        self.assertEqual(plain, {*get_weight_paths(merged)})
        inputs, _ = next(iter(task.build_inputs(params.task.validation_data)))
        inputs = {name: inputs[name] for name in unmerged.input}
        self.assertAllClose(unmerged(inputs), merged(inputs), 1e-5, 1e-5)
        # The test is not vacuous: without LoRA's update, the outputs differ.
        for path, weight in get_weight_paths(unmerged).items():
            if path.endswith("lora_kernel_b"):
                weight.assign(tf.zeros_like(weight))
        first = tf.nest.flatten(unmerged(inputs))[0]
        other = tf.nest.flatten(merged(inputs))[0]
        self.assertGreater(np.abs(first - other).max(), 1e-3)

    def test_resumes(self):
        shutil.copytree(self.run_dir, run := self.path("run"))
        train.train(self._options(3, model_dir=run, mode="train"))
        before, after = self._read(self.run_dir), self._read(run)
        self.assertEqual(3, after["global_step"])
        names = [
            x
            for x in before
            if x.endswith("lora_kernel_b")
            and f"{x}/.OPTIMIZER_SLOT/optimizer/m" in before
        ]
        # Adam's steps are at most about the learning rate, 0.01.
        for name in names:
            self.assertAllClose(before[name], after[name], 0, 0.015)
        self.assertNotAllClose(before[names[0]], after[names[0]], 0, 1e-3)
        self.assertGreater(max(np.abs(after[x]).max() for x in names), 0.015)

    def test_another_rank(self):
        for rank in (None, 3):
            with self.assertRaisesRegex(UserError, "task.lora_rank is .*was 2"):
                train.train(self._options(3, lora_rank=rank))
        with self.assertRaisesRegex(UserError, "trained with task.lora_rank=2"):
            evaluate.evaluate(
                evaluate.Options(
                    model_dir=self.run_dir,
                    params_override={"task.lora_rank": 0},
                )
            )
        with self.assertRaisesRegex(UserError, "`lora_rank` is -1, but must"):
            train.train(self._options(3, lora_rank=-1))
        options = self._options(
            3,
            model_dir=self.path("new"),
            lora_rank=None,
            params_override={"task.lora_rank": -1},
        )
        with self.assertRaisesRegex(UserError, "task.lora_rank is -1, but"):
            train.train(options)

    def test_frozen_encoder(self):
        run, log = self.path("frozen"), io.StringIO()

        def options(steps, frozen, rank=None):
            return self._options(
                steps,
                model_dir=run,
                mode="train",
                lora_rank=rank,
                params_override={
                    "trainer.train_steps": steps,
                    "task.freeze_encoder": frozen,
                },
            )

        train.train(options(1, True), progress.Reporter("lines", log))
        saved = self._read(run)
        for path, value in self.before.items():
            self.assertAllEqual(value, saved[_ENCODER + path], path)
        slots = [x for x in saved if "/.OPTIMIZER_SLOT" in x]
        self.assertNotEmpty(slots)
        self.assertFalse(any(x.startswith(_ENCODER) for x in slots))
        # The head has a normalization, a feed-forward part and a linear layer:
        # 64 + 32 * 128 + 128 + 128 * 32 + 32 + 33 = 8449 weights.
        self.assertIn(
            "Training 0.00845 of 0.032 million weights (the head).",
            log.getvalue(),
        )
        with self.assertRaisesRegex(
            UserError, "task.freeze_encoder is False, but was True"
        ):
            train.train(options(2, False))
        run = self.path("new")
        with self.assertRaisesRegex(UserError, "Set only one of them"):
            train.train(options(1, True, rank=2))


if __name__ == "__main__":
    tf.test.main()
