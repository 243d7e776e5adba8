import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import relative_transformer
from testing import layer_checks
from testing import references

_HIDDEN, _LABELS = 8, 5


def _make_layer(**kwargs):
    arguments = dict(
        hidden_size=_HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        relative_vocab_size=_LABELS,
        dtype="float64",
    )
    layer = relative_transformer.RelativeTransformerLayers(
        **(arguments | kwargs)
    )
    layer.build((None, None, _HIDDEN))
    return layer


class RelativeTransformerLayersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_equals_the_reference_with_gradients(self, pre):
        layer = _make_layer(use_pre_activation_order=pre)
        layer_checks.randomize(layer)
        rng = np.random.default_rng(0)
        mask = rng.binomial(1, 0.7, size=[2, 6, 6])
        ids = rng.integers(0, _LABELS, size=[2, 6, 6])
        inputs = rng.normal(size=[2, 6, _HIDDEN])

        def attend(inner, x):
            return references.relative_attention(inner, x, x, mask, ids)

        def reference(x):
            for pair in zip(
                layer.attention_layers, layer.feed_forward_layers, strict=True
            ):
                for block, inner in zip(
                    pair, (attend, references.feed_forward), strict=True
                ):
                    (norm,) = block.normalization_layers
                    y = references.normalize(norm, x) if pre else x
                    x = x + inner(block.inner_layer, y)
                    x = x if pre else references.normalize(norm, x)
            return x

        def apply(x):
            return layer(x, att_mask=mask, relative_att_ids=ids)

        self.assertAllClose(apply(inputs), reference(inputs), 1e-9, 1e-9)
        layer_checks.check_gradients(self, layer, [inputs], apply, reference)

    def test_names_and_number_of_weights(self):
        layer = _make_layer()
        self.assertEqual("attention_layer_1", layer.attention_layers[1].name)
        self.assertEqual(
            "feed_forward_layer_0", layer.feed_forward_layers[0].name
        )
        a_layer = 4 * 72 + _LABELS * 10 + 12 * 17 + 8 + 2 * 16
        self.assertEqual(2 * a_layer, layer.count_params())

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "multiple"):
            _make_layer(num_attention_heads=3)
        with self.assertRaisesRegex(ValueError, "num_hidden_layers"):
            _make_layer(num_hidden_layers=0)


if __name__ == "__main__":
    tf.test.main()
