import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import pair_loss


class PairLossTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("float64", "float64"),
        ("float32", "float32"),
        ("mixed_bfloat16", "float32"),
    )
    def test_dense_layer(self, policy, dtype):
        loss = pair_loss.PairLoss(0.5, dtype=policy)
        dense = loss._make_dense("bilinear", 100)
        self.assertEqual((dtype, "bilinear"), (dense.compute_dtype, dense.name))
        # A normal distribution truncated at two standard deviations has 0.88 of
        # the original standard deviation.
        kernel = np.array(dense.kernel)
        self.assertAllClose(0.44, kernel.std(), rtol=0.05)
        self.assertLen(dense.trainable_weights, 1)


if __name__ == "__main__":
    tf.test.main()
