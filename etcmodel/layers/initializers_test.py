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
        config = initializers.serialize(original)
        self.assertEqual(0.3, tf.keras.initializers.get(config).stddev)

    def test_names_and_defaults(self):
        self.assertIsNone(initializers.clone(None))
        self.assertIsNone(initializers.serialize(None))
        self.assertEqual("glorot_uniform", initializers.clone_kernel(None))
        for clone in (initializers.clone, initializers.clone_kernel):
            self.assertAllEqual([1, 1], clone("ones")([2], dtype="float32"))


if __name__ == "__main__":
    tf.test.main()
