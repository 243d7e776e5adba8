import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import recompute
from etcmodel.layers import transformer

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


def _make_streams(batch=_BATCH, long=_LONG, global_=_GLOBAL, seed=0):
    rng = np.random.default_rng(seed)
    return [
        tf.constant(rng.normal(size=[batch, size, _HIDDEN]), tf.float32)
        for size in (long, global_)
    ]


def _make_side_inputs(batch=_BATCH, long=_LONG, global_=_GLOBAL, seed=1):
    rng = np.random.default_rng(seed)
    shapes = {
        "l2l": [batch, long, 2 * _RADIUS + 1],
        "g2g": [batch, global_, global_],
        "l2g": [batch, long, global_],
        "g2l": [batch, global_, long],
    }
    masks, ids = {}, {}
    for piece, shape in shapes.items():
        masks[f"{piece}_att_mask"] = tf.constant(
            rng.binomial(1, 0.8, size=shape), tf.int32
        )
        ids[f"{piece}_relative_att_ids"] = tf.constant(
            rng.integers(0, _LABELS, size=shape), tf.int32
        )
    return masks | ids


def _kernels(layer):
    return [w for w in layer.get_weights() if w.ndim == 2 and np.any(w)]


class ChainsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (6, 2, [(0, 2, True), (2, 4, True), (4, 6, False)]),
        (5, 3, [(0, 2, True), (2, 5, False)]),
        (5, 2, [(0, 1, True), (1, 3, True), (3, 5, False)]),
        (2, 1, [(0, 1, True), (1, 2, False)]),
        (4, 0, [(0, 4, False)]),
        (4, -1, [(0, 4, False)]),
        (4, 4, [(0, 4, False)]),
        (4, 9, [(0, 4, False)]),
    )
    def test_chains(self, num_layers, period, expected):
        self.assertEqual(expected, transformer.chains(num_layers, period))

    def test_period_1_keeps_the_last_layer_only(self):
        result = transformer.chains(12, 1)
        self.assertLen(result, 12)
        self.assertEqual(11, sum(chain[2] for chain in result))


class GlobalLocalTransformerLayersTest(
    tf.test.TestCase, parameterized.TestCase
):
    @parameterized.parameters(
        {},
        {"share_qkv_projections": False},
        {"share_qkv_projections": False, "share_kv_projections": True},
        {"share_att_output_projection": True, "att_size_per_head": 3},
        {"use_pre_activation_order": True, "share_feed_forward_params": False},
        {"use_one_hot_lookup": True},
    )
    def test_all_implementations_are_equal(self, **kwargs):
        layer = _make_layer(**kwargs)
        streams, side_inputs = _make_streams(), _make_side_inputs()
        outputs = {
            name: layer(*streams, **side_inputs, att_implementation=name)
            for name in ("full", "sparse", "streaming", "auto")
        }
        self.assertEqual([_BATCH, _LONG, _HIDDEN], outputs["full"][0].shape)
        self.assertEqual([_BATCH, _GLOBAL, _HIDDEN], outputs["full"][1].shape)
        for name in ("sparse", "streaming", "auto"):
            self.assertAllClose(outputs["full"][0], outputs[name][0], 1e-5)
            self.assertAllClose(outputs["full"][1], outputs[name][1], 1e-5)

    def test_different_sizes_of_the_streams(self):
        layer = _make_layer(
            global_hidden_size=6,
            share_feed_forward_params=False,
            share_qkv_projections=False,
        )
        long_input, global_input = _make_streams()
        outputs = layer(long_input, global_input[:, :, :6])
        self.assertEqual([_BATCH, _LONG, _HIDDEN], outputs[0].shape)
        self.assertEqual([_BATCH, _GLOBAL, 6], outputs[1].shape)

    def test_names(self):
        layer = _make_layer()
        self.assertEqual(
            ["fused_att_layer_0", "fused_att_layer_1"],
            [block.name for block in layer.fused_att_layers],
        )
        self.assertEqual(
            ["layer_norm_0", "layer_norm_1"],
            [n.name for n in layer.fused_att_layers[0].normalization_layers],
        )
        self.assertEqual(
            "fused_global_local_att",
            layer.fused_att_layers[0].inner_layer.name,
        )
        self.assertEqual(
            ["feed_forward_layer_1", "global_feed_forward_layer_1"],
            [
                layer.long_feed_forward_layers[1].name,
                layer.global_feed_forward_layers[1].name,
            ],
        )
        unshared = _make_layer(share_feed_forward_params=False)
        self.assertEqual(
            "long_feed_forward_layer_0",
            unshared.long_feed_forward_layers[0].name,
        )

    def test_shared_feed_forward_has_two_dropouts_but_one_of_the_rest(self):
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

    def test_no_two_kernels_are_equal(self):
        layer = _make_layer(share_qkv_projections=False)
        layer.build((None, None, _HIDDEN))
        kernels = _kernels(layer)
        self.assertLen(kernels, 2 * (10 + 2 + 2))
        for i, first in enumerate(kernels):
            for second in kernels[:i]:
                if first.shape == second.shape:
                    self.assertNotAllClose(first, second)

    def test_dropout_in_training_only(self):
        layer = _make_layer(
            hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
        )
        streams = _make_streams()
        for training in (False, None):
            first = layer(*streams, training=training)
            second = layer(*streams, training=training)
            self.assertAllEqual(first[0], second[0])
            self.assertAllEqual(first[1], second[1])
        first = layer(*streams, training=True)
        second = layer(*streams, training=True)
        self.assertNotAllClose(first[0], second[0])
        self.assertNotAllClose(first[1], second[1])

    @parameterized.parameters(
        ("eager", 2, 1),
        ("eager", 6, 2),
        ("eager", 5, 3),
        ("graph", 2, 1),
        ("jit", 2, 1),
    )
    def test_checkpointing_does_not_change_gradients(
        self, mode, num_layers, period
    ):
        # Every dropout takes long to compile, and so do labels and masks.
        is_jit = mode == "jit"
        layer = _make_layer(
            num_layers,
            hidden_dropout_prob=0.0 if is_jit else 0.3,
            attention_probs_dropout_prob=0.2,
            grad_checkpointing_period=period,
            relative_vocab_size=None if is_jit else _LABELS,
        )
        layer.build((None, None, _HIDDEN))
        side_inputs = {} if is_jit else _make_side_inputs()

        def step(*streams):
            # In a context all dropout follows from its seed.
            with tf.GradientTape() as tape:
                tape.watch(streams)
                with recompute.RecomputeContext(False, tf.constant(5)):
                    outputs = layer(*streams, training=True, **side_inputs)
                loss = sum(tf.reduce_sum(tf.sin(x)) for x in outputs)
            return tape.gradient(
                loss, list(streams) + layer.trainable_variables
            ), loss

        def compile_step():
            if mode == "eager":
                return step
            return tf.function(step, jit_compile=is_jit)

        streams = _make_streams()
        actual, loss = compile_step()(*streams)
        with mock.patch.object(tf, "recompute_grad", lambda f: f):
            expected, expected_loss = compile_step()(*streams)
        self.assertAllClose(expected_loss, loss, 1e-5)
        for a, b in zip(expected, actual, strict=True):
            self.assertAllClose(a, b, rtol=1e-3, atol=1e-5)

    def test_checkpointing_runs_the_chains_again(self):
        for period, training, num_runs in [
            (0, True, 2),
            (1, True, 3),
            (1, None, 3),
            (1, False, 2),
        ]:
            layer = _make_layer(grad_checkpointing_period=period)
            streams = _make_streams()
            layer(*streams)
            with mock.patch.object(
                transformer.wrappers.ResidualBlock,
                "_normalize",
                autospec=True,
                side_effect=lambda block, streams, training: streams,
            ) as normalize:
                with tf.GradientTape() as tape:
                    outputs = layer(*streams, training=training)
                    loss = tf.reduce_sum(outputs[0])
                tape.gradient(loss, layer.trainable_variables)
            # Three blocks a layer.
            self.assertEqual(3 * num_runs, normalize.call_count)

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        layer = _make_layer(dtype=policy, grad_checkpointing_period=1)
        streams = _make_streams()
        with tf.GradientTape() as tape:
            outputs = layer(*streams, **_make_side_inputs(), training=True)
            loss = sum(
                tf.reduce_mean(tf.cast(x, tf.float32) ** 3) for x in outputs
            )
        for output in outputs:
            self.assertEqual(policy.split("_")[1], output.dtype.name)
            self.assertTrue(np.all(np.isfinite(np.array(output, np.float32))))
        for gradient in tape.gradient(loss, layer.trainable_variables):
            self.assertEqual(tf.float32, gradient.dtype)
            self.assertAllEqual(tf.ones_like(gradient), gradient == gradient)
        full = _make_layer()
        full.build((None, None, _HIDDEN))
        full.set_weights(layer.get_weights())
        side_inputs = _make_side_inputs()
        expected = full(*streams, **side_inputs)
        actual = layer(*streams, **side_inputs)
        for a, b in zip(expected, actual, strict=True):
            self.assertAllClose(a, tf.cast(b, tf.float32), atol=0.15)

    def test_lengths_unknown_at_trace_time(self):
        layer = _make_layer(grad_checkpointing_period=1)
        layer.build((None, None, _HIDDEN))
        side_specs = {
            name: tf.TensorSpec(
                [None, None, x.shape[2] if name.startswith("l2l") else None],
                tf.int32,
            )
            for name, x in _make_side_inputs().items()
        }
        stream_spec = tf.TensorSpec([None, None, _HIDDEN])

        @tf.function(input_signature=[stream_spec, stream_spec, side_specs])
        def fn(long_input, global_input, side_inputs):
            return layer(long_input, global_input, **side_inputs)

        for batch, long, global_ in [(2, 11, 5), (1, 1, 1), (1, 8, 2)]:
            streams = _make_streams(batch, long, global_)
            side_inputs = _make_side_inputs(batch, long, global_)
            expected = layer(*streams, **side_inputs)
            actual = fn(*streams, side_inputs)
            self.assertAllClose(expected[0], actual[0], 1e-5)
            self.assertAllClose(expected[1], actual[1], 1e-5)

    def test_whole_training_step_compiles(self):
        # All layers are alike, and one takes long enough to compile.
        layer = _make_layer(num_hidden_layers=1)
        layer.build((None, None, _HIDDEN))
        optimizer = tf.keras.optimizers.SGD(0.05)
        optimizer.build(layer.trainable_variables)
        side_inputs = _make_side_inputs()

        @tf.function(jit_compile=True)
        def step(*streams):
            with tf.GradientTape() as tape:
                outputs = layer(
                    *streams,
                    training=True,
                    att_implementation="sparse",
                    **side_inputs,
                )
                loss = sum(tf.reduce_mean(x[:, :, 0]) for x in outputs)
            gradients = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(
                zip(gradients, layer.trainable_variables, strict=True)
            )
            return loss

        losses = [float(step(*_make_streams())) for _ in range(8)]
        self.assertLess(losses[-1], losses[0])

    def test_config_round_trip(self):
        layer = _make_layer(
            3,
            att_size_per_head=3,
            hidden_dropout_prob=0.2,
            attention_probs_dropout_prob=0.15,
            share_feed_forward_params=False,
            share_kv_projections=True,
            share_qkv_projections=False,
            share_att_output_projection=True,
            use_pre_activation_order=True,
            use_one_hot_lookup=True,
            grad_checkpointing_period=2,
            name="x",
        )
        config = layer.get_config()
        other = transformer.GlobalLocalTransformerLayers.from_config(config)
        self.assertEqual(config, other.get_config())
        streams = _make_streams()
        expected = layer(*streams)
        other.build((None, None, _HIDDEN))
        other.set_weights(layer.get_weights())
        # Equal to the last digits only if the activation is the same one.
        self.assertAllClose(expected[0], other(*streams)[0], 1e-6, 1e-6)

    def _make_model(self):
        inputs = {
            "long": tf.keras.Input([None, _HIDDEN], name="long"),
            "global": tf.keras.Input([None, _HIDDEN], name="global"),
            "g2g": tf.keras.Input([None, None], dtype=tf.int32, name="g2g"),
        }
        outputs = _make_layer()(
            inputs["long"], inputs["global"], g2g_att_mask=inputs["g2g"]
        )
        return tf.keras.Model(inputs, outputs)

    def test_saving(self):
        model = self._make_model()
        long_input, global_input = _make_streams()
        batch = {
            "long": long_input,
            "global": global_input,
            "g2g": _make_side_inputs()["g2g_att_mask"],
        }
        expected = model(batch)
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        self.assertAllClose(expected[0], loaded(batch)[0], 1e-6, 1e-6)
        weights_path = os.path.join(self.get_temp_dir(), "x.weights.h5")
        model.save_weights(weights_path)
        other = self._make_model()
        self.assertNotAllClose(expected[1], other(batch)[1])
        other.load_weights(weights_path)
        self.assertAllClose(expected[1], other(batch)[1], 1e-6, 1e-6)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "num_hidden_layers"):
            _make_layer(0)
        with self.assertRaisesRegex(ValueError, r"long_hidden_size \(8\)"):
            _make_layer(num_attention_heads=3)
        _make_layer(num_attention_heads=3, att_size_per_head=2)
        with self.assertRaisesRegex(ValueError, "intermediate"):
            _make_layer(global_intermediate_size=13)
        for option in (
            "share_feed_forward_params",
            "share_qkv_projections",
            "share_kv_projections",
            "share_att_output_projection",
        ):
            options = {
                "share_feed_forward_params": False,
                "share_qkv_projections": False,
                option: True,
            }
            with self.assertRaisesRegex(ValueError, option):
                _make_layer(global_hidden_size=6, **options)


if __name__ == "__main__":
    tf.test.main()
