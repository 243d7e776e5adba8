import numpy as np
import tensorflow as tf

from etcmodel.checkpoints import lora_factors


class LoraFactorsTest(tf.test.TestCase):
    """object_graph_test.py merges factors of a checkpoint."""

    def test_split(self):
        weights = {
            "x/kernel": 1,
            "x/bias": 2,
            "x/lora_kernel_a": 3,
            "x/lora_kernel_b": 4,
            "y/kernel": 5,
        }
        plain, factors = lora_factors.split(weights)
        self.assertEqual({"x/kernel": 1, "x/bias": 2, "y/kernel": 5}, plain)
        self.assertEqual({"x/kernel": [3, 4]}, factors)

    def test_merge(self):
        kernel = np.array([[1.0, 2.0]])
        self.assertAllEqual(kernel, lora_factors.merge(kernel))
        a, b = np.array([[3.0, 1.0]]), np.array([[1.0, 0.0], [2.0, 5.0]])
        self.assertAllEqual([[6, 7]], lora_factors.merge(kernel, a, b))

    def test_rank(self):
        name = "x/lora_kernel_a"
        shapes = {
            "x/kernel/.ATTRIBUTES/VARIABLE_VALUE": [5, 7],
            f"{name}/.OPTIMIZER_SLOT/m/.ATTRIBUTES/VARIABLE_VALUE": [5, 2],
        }
        self.assertEqual(0, lora_factors.rank_of(shapes))
        shapes[f"{name}/.ATTRIBUTES/VARIABLE_VALUE"] = [5, 2]
        self.assertEqual(2, lora_factors.rank_of(shapes))


if __name__ == "__main__":
    tf.test.main()
