"""Tests a document whose segments are on several replicas.

Trains on the same batch on one device, on two logical CPU devices and in two
processes.
"""

import pytest
import tensorflow as tf

from etcmodel.models.read_twice import coreference_loss
from etcmodel.ops import collectives
from testing import small_read_twice
from testing.helpers import call_in_fresh_process
from testing.helpers import call_on_two_workers
from testing.helpers import two_device_strategy


def make_batch():
    """Returns eight segments: documents 1 and 2 span both replicas."""
    parts = [small_read_twice.make_batch(seed) for seed in (1, 2)]
    batch = {
        name: tf.concat([part[name] for part in parts], axis=0)[:8]
        for name in parts[0]
    }
    return batch | dict(
        block_ids=tf.constant([1, 1, 2, 1, 2, 1, 3, 0]),
        block_pos=tf.constant([1, 2, 1, 3, 2, 4, 1, 0]),
    )


def run(strategy, weights, is_graph):
    """Runs one training step of SGD.

    Args:
        strategy: the distribution strategy.
        weights: arrays to start with.
        is_graph: whether the step is a `tf.function`.

    Returns:
        The loss, outputs, memories, and the gradients of all weights.
    """
    with strategy.scope():
        model = small_read_twice.make_model(
            **small_read_twice.PAPER, **small_read_twice.NO_DROPOUT
        )
        model.set_weights(weights)
        coreference = coreference_loss.BatchCoreferenceResolutionLoss()
        coreference.build((None, 8))
    number = strategy.num_replicas_in_sync

    def shard(context):
        """Returns the rows of one replica."""
        index, size = context.replica_id_in_sync_group, 8 // number
        return {
            name: x[index * size : (index + 1) * size]
            for name, x in make_batch().items()
        }

    inputs = {
        name: strategy.experimental_distribute_values_from_function(
            lambda context, name=name: shard(context)[name]
        )
        for name in make_batch()
    }

    def replica_step(inputs):
        with tf.GradientTape() as tape:
            output = model(**inputs, training=True)
            hidden = output.final_hidden_states
            # The outputs are normalized, so a sum of squares would be constant.
            loss = tf.reduce_sum(tf.sin(hidden) * hidden[..., ::-1])
            local, everywhere = output.local_summary, output.global_summary
            loss += tf.reduce_sum(
                coreference(
                    local.states,
                    local.labels,
                    everywhere.states,
                    everywhere.labels,
                )
            )
        variables = model.trainable_variables + coreference.trainable_variables
        gradients = [
            tf.convert_to_tensor(x) for x in tape.gradient(loss, variables)
        ]
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        loss = context.all_reduce(tf.distribute.ReduceOp.SUM, loss)
        outputs = context.all_gather(hidden, axis=0)
        return loss, outputs, output.global_summary.states, gradients

    def step(inputs):
        return strategy.run(replica_step, args=(inputs,))

    if is_graph:
        step = tf.function(step)
    return [
        strategy.experimental_local_results(x)[0].numpy()
        for x in tf.nest.flatten(step(inputs))
    ]


def _run_with_all_dtypes(strategy, weights, is_graph):
    """Checks gathering in half precision; returns the results of `run`."""
    for dtype in (tf.float16, tf.bfloat16):
        gathered = strategy.run(
            lambda dtype=dtype: collectives.all_gather(tf.ones([3, 2], dtype))
        )
        for x in strategy.experimental_local_results(gathered):
            assert (x.dtype, x.shape) == (dtype, [6, 2])
    return run(strategy, weights, is_graph)


def run_on_two_devices(weights):
    """Runs on two logical devices, in a separate process."""
    return _run_with_all_dtypes(two_device_strategy(), weights, False)


def run_on_two_workers(weights):
    """Runs one of two workers, each in a separate process."""
    return _run_with_all_dtypes(
        tf.distribute.MultiWorkerMirroredStrategy(), weights, True
    )


class ReadTwiceDistributionTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.weights = small_read_twice.make_model(
            **small_read_twice.PAPER
        ).get_weights()
        cls.expected = run(tf.distribute.get_strategy(), cls.weights, False)

    def check(self, actual):
        """Compares a distributed run's result with that of one device."""
        # Document 1 gets gradients from all its segments, on any replica.
        self.assertEqual(
            (8, small_read_twice.LENGTH, 8), self.expected[1].shape
        )
        for expected, x in zip(self.expected, actual, strict=True):
            self.assertAllClose(expected, x, 1e-4, 1e-4)

    @pytest.mark.both_kerases
    def test_two_devices(self):
        self.check(call_in_fresh_process(run_on_two_devices, self.weights))

    def test_two_processes(self):
        for result in call_on_two_workers(run_on_two_workers, self.weights):
            self.check(result)


if __name__ == "__main__":
    tf.test.main()
