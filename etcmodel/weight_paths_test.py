import tensorflow as tf

from etcmodel.weight_paths import get_weight_paths


class _Pair(tf.keras.layers.Layer):
    """A layer with two sublayers, one of them under two attributes."""

    def __init__(self, is_hidden=False, **kwargs):
        super().__init__(**kwargs)
        self.first = tf.keras.layers.Dense(2)
        self.again = self.first
        self.others = [tf.keras.layers.Dense(1, use_bias=False)]
        if not is_hidden:
            self.others_0 = self.others[0]

    def call(self, inputs):
        return self.others[0](self.first(inputs))


class WeightPathsTest(tf.test.TestCase):
    def test_weights_by_their_attributes(self):
        layer = _Pair()
        layer(tf.zeros([1, 3]))
        paths = get_weight_paths(layer)
        self.assertEqual(
            ["first/kernel", "first/bias", "others_0/kernel"], list(paths)
        )
        self.assertIs(paths["first/bias"], layer.first.bias)
        hidden = _Pair(is_hidden=True)
        hidden(tf.zeros([1, 3]))
        with self.assertRaisesRegex(AssertionError, "2 of 3 weights"):
            get_weight_paths(hidden)


if __name__ == "__main__":
    tf.test.main()
