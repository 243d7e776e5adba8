import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.classify import standardization
from testing.helpers import call_in_fresh_process
from testing.helpers import two_device_strategy


class RunningStandardizationTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self._layer = standardization.RunningStandardization()

    @parameterized.parameters(bool, tf.constant)
    def test_statistics_by_hand(self, make):
        training = make(True)
        first = np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)
        found = tf.function(self._layer)(first, training=training)
        # An element that never varies is 0.
        self.assertAllClose([[-1, 0], [1, 0]], found)
        # The mean of all steps becomes (2 + 6) / 2. The second batch's mean
        # square from it is 4; with the first batch's variance of 1, the mean is
        # 2.5.
        second = np.array([[6.0, 5.0]], np.float32)
        found = self._layer(second, training=training)
        self.assertAllClose([[2 / 2.5**0.5, 0]], found, atol=1e-5)

    @parameterized.parameters(bool, tf.constant)
    def test_inference_changes_nothing(self, make):
        x = np.array([[1.0], [3.0]], np.float32)
        self._layer(x, training=True)
        before = [x.numpy() for x in self._layer.weights]
        values = np.array([[2.5], [99]], np.float32)
        found = self._layer(values, training=make(False))
        # Results have at most 5 deviations.
        self.assertAllClose([[0.5], [5]], found, atol=1e-5)
        self.assertAllClose(before, [x.numpy() for x in self._layer.weights])
        self.assertEmpty(self._layer.trainable_weights)

    def test_unknown_documents_do_not_count(self):
        x = np.array([[1.0], [3.0], [99.0]], np.float32)
        found = self._layer(x, np.array([True, True, False]), training=True)
        self.assertAllClose([[-1], [1], [0]], found)
        # A batch without any known document leaves the statistics alone.
        self._layer(x, np.array([False] * 3), training=True)
        self.assertAllClose([[-1], [1], [5]], self._layer(x))

    def test_old_steps_are_forgotten(self):
        x = np.array([[1.0]], np.float32)
        for _ in range(3):
            self._layer(x, training=True)
        self._layer.count.assign(500.0)
        self._layer(x + 100, training=True)
        self.assertAllClose([2.0], self._layer.mean)

    def test_gradient_is_that_of_a_linear_function(self):
        x = tf.constant([[1.0], [3.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(self._layer(x, training=True))
        self.assertAllClose([[1], [1]], tape.gradient(y, x))

    def test_replicas_share_statistics(self):
        # Each replica sees one document; the values are 1 and 5.
        found = call_in_fresh_process(_train_on_two_replicas)
        self.assertAllClose({"mean": [3.0], "variance": [4.0]}, found)


def _train_on_two_replicas():
    """Runs a step on two replicas; returns the statistics."""
    strategy = two_device_strategy()
    with strategy.scope():
        layer = standardization.RunningStandardization()
        layer.build([None, 1])

    @tf.function
    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        value = 1.0 + 4.0 * tf.cast(replica, tf.float32)
        layer(tf.reshape(value, [1, 1]), training=True)

    strategy.run(step)
    return {x: getattr(layer, x).numpy() for x in ("mean", "variance")}


if __name__ == "__main__":
    tf.test.main()
