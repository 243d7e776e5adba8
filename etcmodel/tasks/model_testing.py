"""Helpers shared by the tests of the tasks' models: runs and SavedModels."""

import atexit
import functools
import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel.tasks import export_lib
from etcmodel.tasks import serving_warmup_test
from etcmodel.tasks.task_testing import write_small_records
from etcmodel.testing import call_in_fresh_process
from etcmodel.testing import serve_elsewhere


@functools.cache
def small_records(task: str = "wikihop") -> str:
    """Directory of nine tiny records, written once; they are read only.

    Args:
        task: as for `write_small_records`.

    Returns:
        Directory of the TFRecords.
    """
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return write_small_records(directory, 9, task)


def shrink_experiment(params, records: str, batch_size: int = 4, **task):
    """Makes an experiment a tiny one on tiny records: one layer, four steps.

    Args:
        params: the `ExperimentConfig`, which is changed.
        records: directory of the TFRecords to train and to evaluate with.
        batch_size: examples at a time.
        **task: more of the task's configuration.

    Returns:
        The same configuration.
    """
    steps = 4
    data = {"input_path": records, "global_batch_size": batch_size}
    encoder = {
        "preset": "tiny",
        "num_hidden_layers": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    params.override(
        {
            "task": {
                "train_data": data,
                "validation_data": data,
                "model": {"encoder": encoder},
                **task,
            },
            "trainer": {
                "train_steps": steps,
                "validation_interval": steps,
                "steps_per_loop": steps,
                "summary_interval": steps,
                "checkpoint_interval": steps,
                "optimizer_config": {
                    "learning_rate": {
                        "polynomial": {
                            "initial_learning_rate": 0.01,
                            "decay_steps": 10 * steps,
                        }
                    },
                    "warmup": {"linear": {"warmup_steps": 1}},
                },
            },
        }
    )
    return params


def set_random_weights(model, scale: float, seed: int = 0) -> None:
    """Gives a model weights of its own, the same each time.

    Args:
        model: the model or layer.
        scale: standard deviation of matrices, and of what is added to vectors.
        seed: another one gives other weights.
    """
    rng = np.random.default_rng(seed)
    model.set_weights(
        [
            scale * rng.normal(size=x.shape) + (x if x.ndim < 2 else 0.0)
            for x in model.get_weights()
        ]
    )


class SavedModelTestCase(tf.test.TestCase):
    """An exported task; what the SavedModels of all tasks have to do.

    A class of it sets these.

    Attributes:
        answers: names of the answers.
        path: directory of the SavedModel.
        signatures: its signatures.
        inputs: a batch of raw text, name -> tensor.
        features: the EtcFeatures of it.
        logits: what the model makes of them.
        expected: the answers.
    """

    rtol = 1e-5
    atol = 1e-4

    @classmethod
    def export(cls, task: str, module: export_lib.ServingModule, warmup):
        """Writes the SavedModel and loads it."""
        directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.path = os.path.join(directory, "saved_model")
        export_lib.export_saved_model(
            module,
            cls.path,
            model_name=task,
            metadata={"task": task},
            warmup_inputs=warmup,
        )
        cls.signatures = tf.saved_model.load(cls.path).signatures

    def serve(self, signature="serving_default", **inputs):
        """The outputs of a signature."""
        return self.signatures[signature](**inputs)

    def check(self, outputs, expected=None):
        """All answers are the expected ones; logits may stand beside them."""
        expected = expected or self.expected
        self.assertEqual(self.answers, set(outputs) - set(self.logits))
        for name in self.answers:
            value = np.asarray(expected[name])
            if value.dtype.kind == "f":
                self.assertAllClose(
                    value, outputs[name], self.rtol, self.atol, name
                )
            else:
                self.assertAllEqual(value, outputs[name], name)

    def check_logits(self, outputs):
        """All logits are the model's."""
        for name, value in self.logits.items():
            self.assertAllClose(
                value, outputs[name], self.rtol, self.atol, name
            )

    def test_features(self):
        """The model alone."""
        outputs = self.serve(
            "features",
            **{name: tf.cast(x, tf.int64) for name, x in self.features.items()},
        )
        self.assertEqual(set(self.logits), set(outputs))
        self.check_logits(outputs)

    def test_without_this_package(self):
        """It answers other programs, and has no op of Python's."""
        loaded, served, ops = call_in_fresh_process(
            serve_elsewhere,
            self.path,
            {name: x.numpy() for name, x in self.inputs.items()},
        )
        self.check(loaded)
        self.check(served)
        # Few and common ones: a server links those of its own version.
        self.assertEqual(
            ["FastBertNormalize", "FastWordpieceTokenizeWithOffsets"],
            sorted(op for op in ops if not hasattr(tf.raw_ops, op)),
        )
        for op in ops:
            self.assertNotIn("PyFunc", op)

    def test_warmup_requests(self):
        """All are the same request, with the same answers."""
        requests = dict(serving_warmup_test.read_warmup_requests(self.path))
        self.assertEqual(
            {"serving_default", "serialized_examples", "features"},
            set(requests),
        )
        outputs = {
            name: self.serve(name, **{k: tf.constant(v) for k, v in x.items()})
            for name, x in requests.items()
        }
        answers = outputs["serving_default"]
        self.check(outputs["serialized_examples"], answers)
        self.assertEqual(set(self.logits), set(outputs["features"]))
        for name, value in outputs["features"].items():
            self.assertTrue(np.isfinite(value).all(), name)
            self.assertAllClose(
                value, outputs["serialized_examples"][name], 1e-4, 1e-4
            )
