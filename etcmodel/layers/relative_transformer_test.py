import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import relative_transformer
from etcmodel.layers import transformer

_HIDDEN, _LABELS = 8, 5


def _make_layer(**kwargs):
    arguments = dict(
        hidden_size=_HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        initializer_range=0.3,
        relative_vocab_size=_LABELS,
    )
    return relative_transformer.RelativeTransformerLayers(
        **(arguments | kwargs)
    )


def _make_inputs(batch=2, length=6):
    rng = np.random.default_rng(0)
    shape = [batch, length, length]
    return (
        tf.constant(rng.normal(size=[batch, length, _HIDDEN]), tf.float32),
        tf.constant(
            rng.binomial(1, 0.7, size=shape) | np.eye(length, dtype=int)
        ),
        tf.constant(rng.integers(0, _LABELS, size=shape), tf.int32),
    )


class RelativeTransformerLayersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_equals_the_global_stream_of_global_local_layers(self, pre):
        layer = _make_layer(use_pre_activation_order=pre)
        inputs, mask, ids = _make_inputs()
        layer.build(inputs.shape)
        # With an empty long stream global-local attention is full attention.
        other = transformer.GlobalLocalTransformerLayers(
            _HIDDEN,
            _HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=2,
            local_radius=1,
            long_intermediate_size=12,
            global_intermediate_size=12,
            relative_vocab_size=_LABELS,
            share_att_output_projection=True,
            use_pre_activation_order=pre,
        )
        other.build(inputs.shape)
        for i in range(2):
            source = layer.attention_layers[i].inner_layer
            target = other.fused_att_layers[i].inner_layer
            for source_layer, target_layer in [
                (source.query_projection, target.long_query_projection),
                (source.key_projection, target.l2l_key_projection),
                (source.value_projection, target.l2l_value_projection),
                (source.output_projection, target.long_output_projection),
                (source.qkv_relative_attention, target.global_qkv_attention),
                (
                    layer.feed_forward_layers[i].inner_layer,
                    other.global_feed_forward_layers[i].inner_layer,
                ),
            ]:
                target_layer.set_weights(source_layer.get_weights())
        empty = tf.zeros([2, 0, _HIDDEN])
        _, expected = other(
            empty,
            inputs,
            g2g_att_mask=mask,
            g2g_relative_att_ids=ids,
            g2l_relative_att_ids=tf.zeros([2, 6, 0], tf.int32),
        )
        actual = layer(inputs, att_mask=mask, relative_att_ids=ids)
        self.assertAllClose(expected, actual, 1e-5, 1e-5)

    def test_names_and_number_of_weights(self):
        layer = _make_layer()
        layer.build((None, None, _HIDDEN))
        self.assertEqual("attention_layer_1", layer.attention_layers[1].name)
        self.assertEqual(
            "feed_forward_layer_0", layer.feed_forward_layers[0].name
        )
        a_layer = 4 * 72 + _LABELS * 10 + 12 * 17 + 8 + 2 * 16
        self.assertEqual(2 * a_layer, layer.count_params())
        kernels = [
            w for w in layer.get_weights() if w.shape == (_HIDDEN, _HIDDEN)
        ]
        self.assertLen(kernels, 8)
        for i, first in enumerate(kernels):
            for second in kernels[:i]:
                self.assertNotAllClose(first, second)

    def test_dropout_in_training_only(self):
        layer = _make_layer()
        inputs, _, _ = _make_inputs()
        self.assertAllEqual(layer(inputs), layer(inputs))
        self.assertNotAllClose(
            layer(inputs, training=True), layer(inputs, training=True)
        )

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        inputs, mask, ids = _make_inputs()
        output = _make_layer(dtype=policy)(
            inputs, att_mask=mask, relative_att_ids=ids, training=True
        )
        self.assertEqual(policy.split("_")[1], output.dtype.name)
        self.assertTrue(np.all(np.isfinite(np.array(output, np.float32))))

    def test_saving(self):
        inputs = tf.keras.Input([None, _HIDDEN])
        mask = tf.keras.Input([None, None], dtype=tf.int32)
        model = tf.keras.Model(
            [inputs, mask], _make_layer()(inputs, att_mask=mask)
        )
        batch = list(_make_inputs()[:2])
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        self.assertAllClose(model(batch), loaded(batch), 1e-6, 1e-6)

    def test_config_round_trip_and_errors(self):
        layer = _make_layer(use_one_hot_lookup=True, hidden_act="relu")
        config = layer.get_config()
        other = relative_transformer.RelativeTransformerLayers.from_config(
            config
        )
        self.assertEqual(config, other.get_config())
        with self.assertRaisesRegex(ValueError, "multiple"):
            _make_layer(num_attention_heads=3)
        with self.assertRaisesRegex(ValueError, "num_hidden_layers"):
            _make_layer(num_hidden_layers=0)


if __name__ == "__main__":
    tf.test.main()
