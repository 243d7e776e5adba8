"""Tests training on two devices and evaluation on two hosts.

One process with two devices trains all tasks.
"""

import functools
import os
import tempfile
import traceback

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from official.core import train_lib

from etcmodel.engine import runner as runner_lib
from etcmodel.pipeline import tfrecords
from etcmodel.tasks import registry
from etcmodel.training import trainer
from testing.helpers import call_in_fresh_process
from testing.helpers import call_on_two_workers
from testing.helpers import two_device_strategy
from testing.models import shrink_experiment
from testing.pretraining import BLOCKS
from testing.pretraining import SEGMENT_LENGTH
from testing.tasks import write_small_records


def _make(name, records, batch_size=4, **options):
    """Returns the task's class and a tiny experiment."""
    spec = registry.get(name)
    params = trainer.configure(spec, **{**spec.recipe, **options})
    shrink_experiment(params, records, batch_size)
    return trainer.task_classes(spec)[0], params


# Name -> number of small records, experiment, and metrics that are counts
# divided by the number of records or windows.
_TASKS = {
    # Uses LAMB; other tests use AdamW.
    "wikihop": (
        9,
        functools.partial(_make, "wikihop", optimizer="lamb"),
        ["accuracy"],
    ),
    # Learns token labels; other tests learn spans.
    "hotpotqa": (
        9,
        functools.partial(_make, "hotpotqa", answer_encoding="bio"),
        ["em", "sp_em", "answer_type_accuracy"],
    ),
    "nq": (
        9,
        functools.partial(_make, "nq", batch_size=8),
        ["answer_type_accuracy"],
    ),
    # CPC compares the sentences of all replicas.
    "pretrain": (19, functools.partial(_make, "pretrain"), []),
    # Each replica gets half an example, so that documents are split.
    "read_twice_pretrain": (
        40,
        functools.partial(
            _make,
            "read_twice_pretrain",
            batch_size=BLOCKS,
            max_predictions_per_block=SEGMENT_LENGTH,
        ),
        [],
    ),
    # Each replica gets half an example. The task has losses of spans and of
    # answer types.
    "read_twice_hotpotqa": (
        9,
        functools.partial(
            _make,
            "read_twice_hotpotqa",
            batch_size=8,
        ),
        ["em"],
    ),
}


# Tasks whose loss depends on the data of all replicas.
_TOGETHER = ("pretrain", "read_twice_pretrain", "read_twice_hotpotqa")


def _measure_on_one_device(task, runner, data):
    """Computes all metrics on one device, without the Model Garden's loops."""
    model = task.build_model()
    tf.train.Checkpoint(model=model).read(
        runner.checkpoint_manager.latest_checkpoint
    ).expect_partial()
    means = task.build_metrics(training=False)
    state, losses = None, []

    @tf.function
    def step(*inputs):
        return task.validation_step(inputs, model, means)

    for batch in task.build_inputs(data):
        outputs = step(*batch)
        losses.append(outputs.get("loss"))
        # A strategy returns tuples with one value per replica.
        outputs = tf.nest.map_structure(lambda x: (x,), outputs)
        state = task.aggregate_logs(state, outputs)
    logs = {x.name: float(x.result()) for x in means}
    if state is not None:
        return {**logs, **task.reduce_aggregated_logs(state)}
    return {**logs, "validation_loss": np.mean(losses)}


def _check_all_are_collected(collected, records, num_records):
    """Checks that evaluation collects every record or window once."""
    (batches,) = collected
    keys, weights = (
        np.concatenate([batch[name] for batch in batches])
        for name in ("record", "weight")
    )
    stored = [name for name, *_ in tfrecords.read_examples(records)]
    assert abs(weights.sum() - len(stored)) < 1e-3, weights
    assert len(weights) > np.count_nonzero(weights), weights
    weights, keys = weights[weights > 0], keys[weights > 0]
    keys, rows = np.unique(keys, axis=0, return_inverse=True)
    # The segments of a document have a total weight of 1.
    counts = np.bincount(rows.reshape(-1), weights)
    expected = [stored.count(name) for name in set(stored)]
    np.testing.assert_allclose(sorted(expected), sorted(counts), 1e-6)
    assert len(keys) == num_records, keys


def _check_task(strategy, name, directory):
    """Trains and evaluates a task on both devices."""
    num_records, make, counts = _TASKS[name]
    records = write_small_records(directory, num_records, name)
    task_class, params = make(records)
    with strategy.scope():
        task = task_class(params.task)
    collected = []
    reduce_logs = task.reduce_aggregated_logs

    def reduce_and_keep(logs, global_step=None):
        collected.append(logs)
        return reduce_logs(logs, global_step)

    task.reduce_aggregated_logs = reduce_and_keep
    model_dir = os.path.join(directory, "run")
    runner = train_lib.OrbitExperimentRunner(
        strategy, task, "train_and_eval", params, model_dir
    )
    before = [x.numpy() for x in runner.trainer.model.trainable_variables]
    runner_lib.run_mode(runner, params, "train")
    logs = runner_lib.run_mode(runner, params, "eval")
    # Weights are equal on both replicas, and training changed most of them.
    changed = []
    for variable, old in zip(
        runner.trainer.model.trainable_variables, before, strict=True
    ):
        first, second = (value.numpy() for value in variable.values)
        np.testing.assert_array_equal(first, second)
        assert np.isfinite(first).all(), variable.name
        changed.append((first != old).any())
    assert np.mean(changed) > 0.5, changed
    if counts:
        stored = len(list(tfrecords.read_examples(records)))
        for count in counts:
            value = stored * logs[count]
            np.testing.assert_allclose(value, round(value), atol=1e-4)
    if collected:
        _check_all_are_collected(collected, records, num_records)
    # One device gets the same metrics.
    expected = _measure_on_one_device(task, runner, params.task.validation_data)
    for metric, value in expected.items():
        np.testing.assert_allclose(
            logs[metric], value, rtol=1e-3, atol=1e-5, err_msg=metric
        )
    best = os.path.join(model_dir, "best_ckpt")
    assert tf.train.latest_checkpoint(best), os.listdir(model_dir)
    assert params.trainer.best_checkpoint_eval_metric in logs, logs
    return logs


def _gradients(task, model, features, labels):
    """Returns the loss of a batch, or a replica's part, and its gradients."""
    with tf.GradientTape() as tape:
        outputs = model(features, training=False)
        loss = task.build_losses(labels, outputs)
    gradients = tape.gradient(loss, model.trainable_variables)
    return loss, [tf.convert_to_tensor(x) for x in gradients]


def check_gradients(directory, name, strategy):
    """Checks that two replicas get the gradients of one; returns the loss."""
    task_class, params = _TASKS[name][1](os.path.join(directory, "records"))
    task = task_class(params.task)
    # Validation data are used because their masks do not change.
    data = task.build_inputs(params.task.validation_data)
    batch = next(iter(data))
    weights = tf.train.latest_checkpoint(os.path.join(directory, "run"))

    def make():
        model = task.build_model()
        tf.train.Checkpoint(model=model).read(weights).expect_partial()
        if name == "pretrain":
            # Initial gradients of CPC are too small to compare; large scores
            # amplify rounding.
            kernel = model.contrast.bilinear.kernel
            kernel.assign(
                tf.random.stateless_normal(kernel.shape, [1, 2], stddev=0.3)
            )
        return model

    expected = _gradients(task, make(), *batch)
    with strategy.scope():
        model = make()

    @tf.function
    def step(parts):
        found = strategy.run(
            functools.partial(_gradients, task, model), args=parts
        )
        return tf.nest.map_structure(
            lambda x: strategy.reduce("MEAN", x, axis=None), found
        )

    def part(value):
        # Each replica gets every other row, so a document's segments are split.
        return strategy.experimental_distribute_values_from_function(
            lambda x: value[x.replica_id_in_sync_group :: 2]
        )

    actual = step(tf.nest.map_structure(part, batch))
    for x, y in zip(
        tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True
    ):
        np.testing.assert_allclose(x, y, 1e-3, 1e-5)
    return float(expected[0])


def check_all_tasks(directory):
    """Checks all tasks; must run in a fresh process.

    Returns the metrics and the error (or "") of each task.
    """
    strategy = two_device_strategy()
    logs, errors = {}, dict.fromkeys(_TASKS, "")
    for name in _TASKS:
        folder = os.path.join(directory, name)
        os.mkdir(folder)
        try:
            logs[name] = _check_task(strategy, name, folder)
            if name in _TOGETHER:
                check_gradients(folder, name, strategy)
        except Exception:  # Reported at the end, after the other tasks.
            errors[name] = traceback.format_exc()
    return logs, errors


def evaluate_on_worker(directory, name):
    """Evaluates a trained task as one of two hosts; returns the metrics."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    task_class, params = _TASKS[name][1](os.path.join(directory, "records"))
    with strategy.scope():
        task = task_class(params.task)
    model_dir = os.path.join(directory, "run")
    runner = train_lib.OrbitExperimentRunner(
        strategy, task, "eval", params, model_dir
    )
    runner.controller.restore_checkpoint(tf.train.latest_checkpoint(model_dir))
    return runner_lib.run_mode(runner, params, "eval")


def gradients_on_worker(directory, name):
    """Calls `check_gradients` as one of two hosts."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return check_gradients(directory, name, strategy)


class TwoDevicesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = directory.name
        cls.logs, cls.errors = call_in_fresh_process(
            check_all_tasks, cls.directory
        )

    @parameterized.parameters(*_TASKS)
    def test_trains_and_evaluates(self, task):
        self.assertEqual("", self.errors[task])

    def test_two_hosts_measure_the_same(self):
        """Each host reads a part of the files, and scores all answers."""
        self.assertEqual("", self.errors["nq"])
        expected = self.logs["nq"]
        self.assertIn("long_best_threshold_f1", expected)
        for logs in call_on_two_workers(
            evaluate_on_worker, os.path.join(self.directory, "nq"), "nq"
        ):
            self.assertAllClose(expected, logs, 1e-3, 1e-5)

    @parameterized.parameters("pretrain", "read_twice_hotpotqa")
    def test_two_hosts_have_the_gradients_of_one(self, task):
        """Each host's loss needs sentences or memories of the other host."""
        self.assertEqual("", self.errors[task])
        directory = os.path.join(self.directory, task)
        first, second = call_on_two_workers(
            gradients_on_worker, directory, task
        )
        self.assertEqual(first, second)


if __name__ == "__main__":
    tf.test.main()
