import numpy as np
import tensorflow as tf

from etcmodel.layers import initializers


class InitializersTest(tf.test.TestCase):
    def test_clones_draw_other_values(self):
        original = tf.keras.initializers.TruncatedNormal(stddev=0.3)
        first = initializers.clone(original)
        second = initializers.clone(original)
        self.assertEqual(original.get_config(), first.get_config())
        self.assertNotAllClose(first([20, 20]), second([20, 20]))

    def test_a_given_seed_is_kept(self):
        original = tf.keras.initializers.TruncatedNormal(stddev=0.3, seed=4)
        self.assertAllClose(
            original([3, 3]), initializers.clone(original)([3, 3])
        )

    def test_names_and_none(self):
        self.assertIsNone(initializers.clone(None))
        self.assertAllEqual(
            np.ones([2]), initializers.clone("ones")([2], dtype="float32")
        )

    def test_kernels_have_a_default(self):
        self.assertEqual("glorot_uniform", initializers.clone_kernel(None))
        self.assertAllEqual(
            np.ones([2]),
            initializers.clone_kernel("ones")([2], dtype="float32"),
        )

    def test_serialize(self):
        self.assertIsNone(initializers.serialize(None))
        config = initializers.serialize(
            tf.keras.initializers.TruncatedNormal(stddev=0.3)
        )
        other = tf.keras.initializers.get(config)
        self.assertEqual(0.3, other.stddev)


if __name__ == "__main__":
    tf.test.main()
