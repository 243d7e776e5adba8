import os

import numpy as np
import tensorflow as tf

from testing import models


class ModelTestingTest(tf.test.TestCase):
    """What the tests of the tasks do not see of their helpers."""

    def test_records_are_written_once(self):
        path = models.small_records()
        self.assertIn("preprocessing_config.json", os.listdir(path))
        self.assertEqual(path, models.small_records())

    def test_random_weights(self):
        layer = tf.keras.layers.Dense(3)
        layer.build([None, 4])
        weights = []
        for seed in (0, 0, 1):
            models.set_random_weights(layer, 0.1, seed)
            kernel, bias = layer.get_weights()
            weights.append(kernel)
            layer.set_weights([kernel, np.zeros_like(bias)])
        self.assertAllEqual(weights[0], weights[1])
        self.assertNotAllClose(weights[0], weights[2])


if __name__ == "__main__":
    tf.test.main()
