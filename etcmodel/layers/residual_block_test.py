import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import residual_block


@tf.keras.utils.register_keras_serializable(package="wrappers_test")
class _Doubling(tf.keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs


@tf.keras.utils.register_keras_serializable(package="wrappers_test")
class _Mixing(tf.keras.layers.Layer):
    """Mixes two streams; accepts an array and non-tensor arguments."""

    def call(self, first, second, scale=None, mode="plain", training=None):
        if scale is None:
            scale = 1.0
        if training:
            scale = scale + 1.0
        if mode == "swap":
            first, second = second, first
        return [first * scale, second * scale]


class ResidualBlockTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (False, [[4.0, -2.0], [2.0, -3.0]]), (True, [[3.0, -1.0], [1.5, -1.5]])
    )
    def test_order(self, use_pre_activation_order, expected):
        block = residual_block.ResidualBlock(
            inner_layer=tf.keras.layers.ReLU(),
            normalization_layer=_Doubling(),
            use_pre_activation_order=use_pre_activation_order,
        )
        inputs = tf.constant([[1.0, -1.0], [0.5, -1.5]])
        self.assertAllClose(expected, block(inputs, training=True))

    def test_default_layers(self):
        block = residual_block.ResidualBlock(inner_intermediate_size=5)
        block.build((None, None, 3))
        self.assertEqual([5, 3], block.inner_layer.hidden_sizes)
        self.assertEqual("layer_norm", block.normalization_layers[0].name)
        self.assertEqual(1e-12, block.normalization_layers[0].epsilon)
        rng = np.random.default_rng(0)
        x = rng.normal(size=[2, 4, 3])
        w1, w2 = rng.normal(size=[3, 5]), rng.normal(size=[5, 3])
        zeros = [np.zeros(5), np.zeros(3)]
        block.inner_layer.set_weights([w1, zeros[0], w2, zeros[1]])
        y = x + np.maximum(x @ w1, 0) @ w2
        y = (y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)
        self.assertAllClose(y, block(tf.constant(x, tf.float32)), atol=1e-5)
        # Without an intermediate size the hidden layer is as wide as the input.
        block = residual_block.ResidualBlock()
        block.build((None, 3))
        self.assertEqual([3, 3], block.inner_layer.hidden_sizes)

    def test_default_inner_layer_needs_a_known_width(self):
        with self.assertRaisesRegex(ValueError, "last axis"):
            residual_block.ResidualBlock().build((None, None))

    @pytest.mark.both_kerases
    def test_streams_and_arguments_of_any_kind(self):
        block = residual_block.ResidualBlock(
            inner_layer=_Mixing(),
            normalization_layer=[_Doubling(), _Doubling()],
        )
        first, second = tf.constant([[1.0]]), tf.constant([[10.0, 20.0]])
        outputs = block([first, second], scale=tf.constant(3.0))
        self.assertIsInstance(outputs, list)
        self.assertAllClose([[8.0]], outputs[0])
        self.assertAllClose([[80.0, 160.0]], outputs[1])
        second = tf.constant([[10.0]])
        outputs = block(
            [first, second],
            scale=tf.constant(3.0),
            mode="swap",
            training=True,
        )
        # In training, the scale is 1 larger.
        self.assertAllClose([[82.0]], outputs[0])
        self.assertAllClose([[28.0]], outputs[1])

    @pytest.mark.both_kerases
    def test_text_and_tensors_in_a_functional_model(self):
        streams = [tf.keras.Input([1]), tf.keras.Input([1])]
        scale = tf.keras.Input([1])
        block = residual_block.ResidualBlock(
            inner_layer=_Mixing(),
            normalization_layer=[_Doubling(), _Doubling()],
        )
        model = tf.keras.Model(
            [*streams, scale], block(streams, scale=scale, mode="swap")
        )
        # The model's configuration includes the arguments of the call.
        model = tf.keras.Model.from_config(
            model.get_config(), {"ResidualBlock": residual_block.ResidualBlock}
        )
        outputs = model([tf.constant([[x]]) for x in (1.0, 10.0, 3.0)])
        self.assertAllClose([[62.0]], outputs[0])
        self.assertAllClose([[26.0]], outputs[1])

    @pytest.mark.both_kerases
    def test_inner_layer_that_builds_itself_from_several_shapes(self):
        block = residual_block.ResidualBlock(
            inner_layer=tf.keras.layers.MultiHeadAttention(2, 4)
        )
        x = tf.constant(np.random.default_rng(0).random([2, 3, 6]), tf.float32)
        expected = block.inner_layer(x, x) + x
        expected -= tf.reduce_mean(expected, axis=-1, keepdims=True)
        expected /= tf.math.reduce_std(expected, axis=-1, keepdims=True)
        self.assertAllClose(expected, block(x, value=x), 1e-4, 1e-4)
        block = residual_block.ResidualBlock(
            inner_layer=tf.keras.layers.MultiHeadAttention(2, 4)
        )
        block(x, value=x)
        self.assertLen(block.trainable_variables, 8 + 2)

    def test_wrong_number_of_streams(self):
        block = residual_block.ResidualBlock(
            inner_layer=_Mixing(), normalization_layer=_Doubling()
        )
        with self.assertRaisesRegex(ValueError, "number of input"):
            block([tf.ones([1, 1]), tf.ones([1, 1])])

    def test_streams_have_separate_dropout(self):
        block = residual_block.ResidualBlock(
            inner_layer=_Mixing(),
            normalization_layer=[_Doubling(), _Doubling()],
            dropout_probability=0.5,
        )
        self.assertLen(block.dropout_layers, 2)
        x = tf.ones([200, 1])
        first, second = block([x, x], training=True)
        # The inner output 2 is dropped or doubled. The norm doubles the sum:
        # 2 * (1 + 0) or 2 * (1 + 4).
        self.assertAllInSet(first, [2.0, 10.0])
        self.assertNotAllEqual(first, second)
        first, second = block([x, x], training=False)
        self.assertAllEqual(4 * x, first)
        self.assertAllEqual(4 * x, second)


if __name__ == "__main__":
    tf.test.main()
