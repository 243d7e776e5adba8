import pytest
import tensorflow as tf

from etcmodel import layers
from etcmodel.layers import keras_compat


class _Around(tf.keras.layers.Layer):
    """Builds its sublayers, except those that need several shapes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inside = tf.keras.layers.Dense(2, name="inside")
        self.parts = [tf.keras.layers.Dense(2, name="part")]
        keras_compat.track_layers(self, "parts")

    def build(self, input_shape):
        for layer in (self.inside, self.parts[0]):
            keras_compat.build_once(layer, input_shape)
        super().build(input_shape)

    def call(self, inputs):
        return self.inside(inputs)


@pytest.mark.both_kerases
class MaskTest(tf.test.TestCase):
    def test_incoming_masks_are_passed_on(self):
        ids = tf.constant([[3, 4, 0]])
        embedded = tf.keras.layers.Embedding(5, 4, mask_zero=True)(ids)
        for layer in (
            layers.DenseLayers([2]),
            layers.ResidualBlock(),
            layers.ResidualBlock(layers.RelativeAttention(4, 2)),
            layers.RelativeTransformerLayers(4, 1, 2),
            layers.TransformerWithSideInputLayers(4, 1, 2),
        ):
            mask = layer(embedded)._keras_mask
            self.assertAllEqual(mask, [[True, True, False]], layer.name)


@pytest.mark.both_kerases
class BuildingTest(tf.test.TestCase):
    def test_weights_are_named_after_their_layers(self):
        layer = _Around(name="around")
        layer(tf.zeros([1, 3]))
        names = [
            getattr(x, "path", x.name).split(":")[0] for x in layer.weights
        ]
        self.assertEqual(
            [
                "around/inside/kernel",
                "around/inside/bias",
                "around/part/kernel",
                "around/part/bias",
            ],
            names,
        )

    def test_layers_of_lists_have_attributes(self):
        layer = _Around()
        self.assertIs(layer.parts_0, layer.parts[0])

    def test_builds_once(self):
        dense = tf.keras.layers.Dense(2)
        keras_compat.build_once(dense, (None, 3))
        kernel = dense.kernel
        keras_compat.build_once(dense, (None, 5))
        self.assertIs(kernel, dense.kernel)

    def test_default_names(self):
        self.assertEqual("mine", keras_compat.default_name("mine", "its_base"))
        names = [keras_compat.default_name(None, "its_base") for _ in range(3)]
        self.assertEqual(["its_base", "its_base_1", "its_base_2"], names)


if __name__ == "__main__":
    tf.test.main()
