import numpy as np
import tensorflow as tf

from etcmodel.ops import collectives
from testing.helpers import call_in_fresh_process
from testing.helpers import call_on_two_workers
from testing.helpers import two_device_strategy


class CrossReplicaTest(tf.test.TestCase):
    def test_one_replica(self):
        x = tf.constant([[1.0, 2.0]])
        self.assertEqual(1, collectives.num_replicas())
        self.assertEqual(0, collectives.replica_id())
        self.assertIs(x, collectives.all_gather(x))
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = collectives.all_sum(x)
        self.assertAllEqual(x, total)
        self.assertIsNone(tape.gradient(total, x))

    def test_one_replica_in_a_scope(self):
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            self.assertEqual(1, collectives.num_replicas())

    def test_two_replicas(self):
        results = call_in_fresh_process(_run_on_two_replicas)
        # Replica r has the row [r, r + 10]; each gets both rows, in order.
        for replica in range(2):
            self.assertAllEqual(
                [[0, 10], [1, 11]], results["gathered"][replica]
            )
        self.assertAllEqual([0, 1], results["ids"])
        self.assertAllEqual([2, 2], results["numbers"])
        self.assertAllEqual([[[1, 21]]] * 2, results["sums"])
        # The loss of replica r is (r + 1) times the sum of [[1, 2], [3, 4]]
        # times the rows. A row's gradient is the sum over both replicas.
        self.assertAllEqual([[[3, 6]], [[9, 12]]], results["gradients"])

    def test_two_hosts_gather_their_inputs(self):
        for gathered in call_on_two_workers(_read_on_worker):
            self.assertAllEqual([0, 1, 10, 11], gathered)


def _read_on_worker():
    """Runs one of two hosts; one reads 0 and 1, the other 10 and 11."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def read(context):
        start = 10 * context.input_pipeline_id
        return tf.data.Dataset.range(start, start + 2).batch(2)

    @tf.function
    def step(iterator):
        return strategy.run(collectives.all_gather, args=(next(iterator),))

    values = iter(strategy.distribute_datasets_from_function(read))
    return strategy.experimental_local_results(step(values))[0].numpy()


def _run_on_two_replicas():
    """Gathers and sums on two replicas; returns each replica's results."""
    strategy = two_device_strategy()

    @tf.function
    def step():
        replica = collectives.replica_id()
        # [1, 2]
        x = tf.cast([[replica, replica + 10]], tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            # [2, 2]
            gathered = collectives.all_gather(x)
            assert gathered.shape == [2, 2]
            loss = tf.reduce_sum(gathered * [[1.0, 2.0], [3.0, 4.0]])
            loss *= tf.cast(replica + 1, tf.float32)
        return {
            "gathered": gathered,
            "ids": replica,
            "numbers": tf.constant(collectives.num_replicas()),
            "sums": collectives.all_sum(x),
            "gradients": tape.gradient(loss, x),
        }

    return {
        name: np.stack(strategy.experimental_local_results(value))
        for name, value in strategy.run(step).items()
    }


if __name__ == "__main__":
    tf.test.main()
