from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import residual_block
from etcmodel.layers import transformer
from testing import layer_checks

_BATCH, _LONG, _GLOBAL, _HIDDEN, _RADIUS, _LABELS = 2, 11, 5, 8, 3, 6


def _make_layer(num_hidden_layers=2, **kwargs):
    arguments = dict(
        long_hidden_size=_HIDDEN,
        global_hidden_size=_HIDDEN,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=2,
        local_radius=_RADIUS,
        long_intermediate_size=12,
        global_intermediate_size=12,
        relative_vocab_size=_LABELS,
        initializer_range=0.3,
    )
    return transformer.GlobalLocalTransformerLayers(**(arguments | kwargs))


def _make_streams():
    rng = np.random.default_rng(0)
    return [
        tf.constant(rng.normal(size=[_BATCH, size, _HIDDEN]), tf.float32)
        for size in (_LONG, _GLOBAL)
    ]


def _make_side_inputs():
    rng = np.random.default_rng(1)
    side_inputs = {}
    for piece, shape in {
        "l2l": [_BATCH, _LONG, 2 * _RADIUS + 1],
        "g2g": [_BATCH, _GLOBAL, _GLOBAL],
        "l2g": [_BATCH, _LONG, _GLOBAL],
        "g2l": [_BATCH, _GLOBAL, _LONG],
    }.items():
        side_inputs[f"{piece}_att_mask"] = rng.binomial(1, 0.8, size=shape)
        side_inputs[f"{piece}_relative_att_ids"] = rng.integers(
            _LABELS, size=shape
        )
    return side_inputs


class GlobalLocalTransformerLayersTest(
    tf.test.TestCase, parameterized.TestCase
):
    def test_names(self):
        layer = _make_layer()
        unshared = _make_layer(share_feed_forward_params=False)
        block = layer.fused_att_layers[1]
        self.assertEqual(
            [
                "fused_att_layer_1",
                "layer_norm_0",
                "layer_norm_1",
                "fused_global_local_att",
                "feed_forward_layer_1",
                "global_feed_forward_layer_1",
                "long_feed_forward_layer_0",
            ],
            [
                part.name
                for part in (
                    block,
                    *block.normalization_layers,
                    block.inner_layer,
                    layer.long_feed_forward_layers[1],
                    layer.global_feed_forward_layers[1],
                    unshared.long_feed_forward_layers[0],
                )
            ],
        )

    def test_shared_feed_forward_blocks_have_separate_dropout(self):
        layer = _make_layer()
        long_block = layer.long_feed_forward_layers[0]
        global_block = layer.global_feed_forward_layers[0]
        self.assertIs(long_block.inner_layer, global_block.inner_layer)
        self.assertIs(
            long_block.normalization_layers[0],
            global_block.normalization_layers[0],
        )
        self.assertIsNot(
            long_block.dropout_layers[0], global_block.dropout_layers[0]
        )

    @parameterized.parameters(
        ({}, 0),
        ({"share_att_output_projection": True}, -72),
        ({"share_qkv_projections": False}, 7 * 72),
        (
            {"share_qkv_projections": False, "share_kv_projections": True},
            3 * 72,
        ),
        # Three projections are 8 x 6, two are 6 x 8, both tables are smaller.
        ({"att_size_per_head": 3}, -3 * 18 - 2 * 16 - 2 * 12),
        ({"share_feed_forward_params": False}, 12 * 17 + 8 + 16),
    )
    def test_number_of_weights(self, kwargs, more):
        layer = _make_layer(num_hidden_layers=1, **kwargs)
        layer.build((None, None, _HIDDEN))
        projections = 5 * (_HIDDEN * _HIDDEN + _HIDDEN)
        labels = 2 * (_LABELS * _HIDDEN + _LABELS * 2)
        norms = 3 * 2 * _HIDDEN
        feed_forward = 2 * _HIDDEN * 12 + 12 + _HIDDEN
        self.assertEqual(
            projections + labels + norms + feed_forward + more,
            layer.count_params(),
        )

    @parameterized.parameters((0.3, 0.0), (0.0, 0.3))
    @pytest.mark.both_kerases
    def test_dropout_in_training_only(self, of_hidden, of_probs):
        layer = _make_layer(
            1,
            hidden_dropout_prob=of_hidden,
            attention_probs_dropout_prob=of_probs,
        )
        layer_checks.check_dropout_in_training_alone(
            self, lambda training: layer(*_make_streams(), training=training)
        )

    @parameterized.parameters(
        (2, 1, "sparse", True), (5, 2, "streaming", False)
    )
    @pytest.mark.both_kerases
    def test_checkpointing(self, number, period, implementation, in_graph):
        layer = _make_layer(
            number,
            hidden_dropout_prob=0.3,
            attention_probs_dropout_prob=0.2,
            grad_checkpointing_period=period,
        )
        layer.build((None, None, _HIDDEN))
        layer_checks.check_checkpointing(
            self,
            layer,
            _make_streams(),
            lambda *streams: layer(
                *streams,
                training=True,
                att_implementation=implementation,
                **_make_side_inputs(),
            ),
            in_graph,
        )

    def test_checkpointing_runs_the_chains_again(self):
        layer_checks.check_recomputed_chains(
            self,
            _make_layer,
            lambda layer, training: layer(*_make_streams(), training=training)[
                0
            ],
            blocks=3,
        )

    @pytest.mark.both_kerases
    def test_a_functional_model_learns_shapes_from_one_layer(self):
        layer = _make_layer(3)
        call = residual_block.ResidualBlock.call
        inputs = [tf.keras.Input([size, _HIDDEN]) for size in (None, _GLOBAL)]
        with mock.patch.object(
            residual_block.ResidualBlock,
            "call",
            autospec=True,
            side_effect=call,
        ) as calls:
            model = tf.keras.Model(inputs, layer(*inputs))
        # One layer has three blocks: attention and two feed-forward blocks.
        self.assertEqual(3, calls.call_count)
        self.assertEqual(
            [(None, None, _HIDDEN), (None, _GLOBAL, _HIDDEN)],
            [tuple(output.shape) for output in model.outputs],
        )
        streams = _make_streams()
        for actual, expected in zip(
            model(streams), layer(*streams), strict=True
        ):
            self.assertAllClose(expected, actual)

    def test_errors(self):
        _make_layer(num_attention_heads=3, att_size_per_head=2)
        unshared = {
            "global_hidden_size": 6,
            "share_feed_forward_params": False,
            "share_qkv_projections": False,
        }
        for message, arguments in (
            ("num_hidden_layers", {"num_hidden_layers": 0}),
            (r"long_hidden_size \(8\)", {"num_attention_heads": 3}),
            ("intermediate", {"global_intermediate_size": 13}),
            *(
                (option, unshared | {option: True})
                for option in (
                    "share_feed_forward_params",
                    "share_qkv_projections",
                    "share_kv_projections",
                    "share_att_output_projection",
                )
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                _make_layer(**arguments)


if __name__ == "__main__":
    tf.test.main()
