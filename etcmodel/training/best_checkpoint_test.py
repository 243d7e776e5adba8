import json
import math
import os
import tempfile
import types

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.training import best_checkpoint

# For each validation of a run: metric, loss (None: not stored), and whether it
# is the best so far.
_HIGHER = [(0.5, 1.195, True), (0.5, 1.136, True), (0.5, 1.136, False)]
_CASES = {
    "tie": ("higher", _HIGHER),
    "the metric comes first": ("higher", [(0.5, 1.0, True), (0.6, 2.0, True)]),
    "a worse metric": ("higher", [(0.5, 2.0, True), (0.4, 1.0, False)]),
    "lower": (
        "lower",
        [(0.5, 2.0, True), (0.6, 1.0, False), (0.5, 1.0, True)],
    ),
    "a loss that is not known": (
        "higher",
        [(0.5, None, True), (0.5, 1.0, False), (0.6, None, True)],
    ),
    "NaN is the worst": (
        "higher",
        [(math.nan, 1.0, True), (0.5, math.nan, True), (0.5, 9.0, True)],
    ),
    "NaN is the worst, lower": (
        "lower",
        [(math.nan, 1.0, True), (0.5, 2.0, True), (math.nan, 0.5, False)],
    ),
}


class BestCheckpointTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(case=list(_CASES), is_resumed=[False, True])
    def test_best_is_kept(self, case, is_resumed):
        comparison, validations = _CASES[case]
        params = types.SimpleNamespace(
            trainer=types.SimpleNamespace(
                best_checkpoint_export_subdir="best_ckpt",
                best_checkpoint_eval_metric="f1",
                best_checkpoint_metric_comp=comparison,
            )
        )
        model_dir = self.enterContext(tempfile.TemporaryDirectory())
        folder = os.path.join(model_dir, "best_ckpt")
        step = tf.Variable(0)
        checkpoint = tf.train.Checkpoint(step=step)
        exporter, expected = None, None
        for number, (metric, loss, is_best) in enumerate(validations):
            logs = {"f1": tf.constant(metric)}
            if loss is not None:
                logs["validation_loss"] = tf.constant(loss)
            if exporter is None or is_resumed:
                exporter = best_checkpoint.make_exporter(params, model_dir)
            step.assign(number)
            expected = number if is_best else expected
            self.assertEqual(
                is_best,
                exporter.maybe_export_checkpoint(checkpoint, logs, number),
            )
            reader = tf.train.load_checkpoint(folder)
            name = "step/.ATTRIBUTES/VARIABLE_VALUE"
            self.assertEqual(expected, reader.get_tensor(name))
            with open(os.path.join(folder, "info.json")) as stream:
                note = json.load(stream)
            self.assertEqual(expected, note["best_ckpt_global_step"])

    @parameterized.parameters("export_subdir", "eval_metric")
    def test_none_is_kept(self, missing):
        names = {"export_subdir": "best_ckpt", "eval_metric": "f1"}
        names |= {missing: "", "metric_comp": "higher"}
        trainer = types.SimpleNamespace(
            **{f"best_checkpoint_{x}": value for x, value in names.items()}
        )
        params = types.SimpleNamespace(trainer=trainer)
        model_dir = self.enterContext(tempfile.TemporaryDirectory())
        self.assertIsNone(best_checkpoint.make_exporter(params, model_dir))
        self.assertEmpty(os.listdir(model_dir))


if __name__ == "__main__":
    tf.test.main()
