"""A document whose segments are on several replicas.

The same batch is read on one device, on two logical CPU devices and by two
processes. This file runs itself for the last two: TensorFlow must be set up
before it starts.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from etcmodel import cross_replica
from etcmodel.models import coreference_loss
from etcmodel.models import read_twice_model_test as model_test
from etcmodel.testing import two_device_strategy

_NAMES = ("loss", "outputs", "memories", "gradients")


def make_batch():
    """Eight segments: documents 1 and 2 are on both replicas, 3 on one."""
    parts = [model_test.make_batch(seed) for seed in (1, 2)]
    batch = {
        name: tf.concat([part[name] for part in parts], axis=0)[:8]
        for name in parts[0]
    }
    return batch | dict(
        block_ids=tf.constant([1, 1, 2, 1, 2, 1, 3, 0]),
        block_pos=tf.constant([1, 2, 1, 3, 2, 4, 1, 0]),
    )


def run(strategy, weights):
    """One training step of SGD.

    Args:
        strategy: where to run.
        weights: arrays to start with.

    Returns:
        Name -> array, or list of arrays, as in `_NAMES`.
    """
    with strategy.scope():
        model = model_test.make_model(
            **model_test.PAPER, **model_test.NO_DROPOUT
        )
        model.set_weights(weights)
        coreference = coreference_loss.BatchCoreferenceResolutionLoss()
        coreference.build((None, 8))
    number = strategy.num_replicas_in_sync

    def shard(context):
        """The rows of one replica."""
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
            # No symmetric function, as the outputs are normalized.
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

    @tf.function
    def step(inputs):
        return strategy.run(replica_step, args=(inputs,))

    results = tf.nest.map_structure(
        lambda x: strategy.experimental_local_results(x)[0].numpy(),
        step(inputs),
    )
    return dict(zip(_NAMES, results, strict=True))


def _main(kind, weights_path, output_path):
    """Runs with one of the strategies and writes what it gave."""
    if kind == "mirrored":
        strategy = two_device_strategy()
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # Half precision is gathered, too.
    for dtype in (tf.float16, tf.bfloat16):
        gathered = strategy.run(
            lambda dtype=dtype: cross_replica.all_gather(tf.ones([3, 2], dtype))
        )
        for x in strategy.experimental_local_results(gathered):
            assert (x.dtype, x.shape) == (dtype, [6, 2])
    with np.load(weights_path) as weights:
        results = run(strategy, list(weights.values()))
    gradients = results.pop("gradients")
    np.savez(
        output_path,
        **results,
        **{f"gradient_{i}": x for i, x in enumerate(gradients)},
    )


def _start(kind, weights_path, output_path, **environment):
    path = os.pathsep.join(sys.path)
    with open(f"{output_path}.log", "w", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, __file__, kind, weights_path, output_path],
            env=dict(
                os.environ,
                CUDA_VISIBLE_DEVICES="",
                PYTHONPATH=path,
                **environment,
            ),
            stdout=log,
            stderr=log,
        )


def _free_ports(number):
    """Ports that nobody listens to."""
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class ReadTwiceDistributionTest(tf.test.TestCase):
    def test_replicas_give_what_one_device_gives(self):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        weights = model_test.make_model(**model_test.PAPER).get_weights()
        weights_path = os.path.join(directory, "weights.npz")
        np.savez(weights_path, *weights)

        def output_path(name):
            return os.path.join(directory, f"{name}.npz")

        addresses = [f"localhost:{port}" for port in _free_ports(2)]
        processes = {
            "mirrored": _start(
                "mirrored", weights_path, output_path("mirrored")
            )
        }
        for index in range(2):
            name = f"worker_{index}"
            processes[name] = _start(
                "workers",
                weights_path,
                output_path(name),
                TF_CONFIG=json.dumps(
                    {
                        "cluster": {"worker": addresses},
                        "task": {"type": "worker", "index": index},
                    }
                ),
            )
        for process in processes.values():
            self.addCleanup(process.kill)
        expected = run(tf.distribute.get_strategy(), weights)
        # Document 1 learns from all of its segments, wherever they are.
        self.assertEqual((8, model_test.LENGTH, 8), expected["outputs"].shape)
        for name, process in processes.items():
            process.wait(timeout=300)
            with open(f"{output_path(name)}.log", encoding="utf-8") as log:
                self.assertEqual(0, process.returncode, log.read()[-4000:])
            with np.load(output_path(name)) as actual:
                for key in ("loss", "outputs", "memories"):
                    self.assertAllClose(
                        expected[key], actual[key], 1e-4, 1e-4, msg=name
                    )
                for i, gradient in enumerate(expected["gradients"]):
                    self.assertAllClose(
                        gradient, actual[f"gradient_{i}"], 1e-4, 1e-4, msg=name
                    )


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _main(*sys.argv[1:])
    else:
        tf.test.main()
