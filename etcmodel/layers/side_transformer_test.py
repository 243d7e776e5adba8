import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_side_attention_test as fused_test
from etcmodel.layers import recompute
from etcmodel.layers import side_attention_test as side_test
from etcmodel.layers import side_transformer

HIDDEN, BATCH, MAIN, SIDE = 8, 2, 5, 3


def make_layer(num_hidden_layers=2, **kwargs):
    """A built stack with weights of all sizes but the norms' at random."""
    arguments = dict(
        hidden_size=HIDDEN,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=2,
        intermediate_size=12,
        initializer_range=0.3,
    )
    layer = side_transformer.TransformerWithSideInputLayers(
        **(arguments | kwargs)
    )
    layer.build((None, None, HIDDEN))
    rng = np.random.default_rng(3)
    layer.set_weights(
        [w + 0.1 * rng.normal(size=w.shape) for w in layer.get_weights()]
    )
    return layer


def make_inputs(side_rank=2, batch=BATCH, main=MAIN, side=SIDE):
    """Main input, side input and a mask of both; one token sees nothing."""
    rng = np.random.default_rng(1)
    side_shape = [batch, side, HIDDEN][3 - side_rank :]
    mask = rng.binomial(1, 0.6, size=[batch, main, main + side])
    mask[0, 0] = 0
    return (
        tf.constant(rng.normal(size=[batch, main, HIDDEN]), tf.float32),
        tf.constant(rng.normal(size=side_shape), tf.float32),
        tf.constant(mask, tf.int32),
    )


def apply_block(block, x, inner):
    """A residual block around what its inner layer gives, in float64."""
    return side_test.normalize(block.normalization_layers[0], x + inner)


def feed_forward(layer, x):
    """Two dense layers with the tanh form of gelu, in float64."""
    x = fused_test.dense(layer.layers[0], x)
    x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return fused_test.dense(layer.layers[1], x)


def reference(layer, main, sides, mask=None):
    """The stack's output from its weights, in float64.

    Args:
        layer: the stack.
        main: `<float>[batch, main, hidden]`.
        sides: a side input or None for each layer.
        mask: `<int>[batch, main, main + side]`, whatever the sides are.
    """
    x = np.asarray(main, np.float64)
    for i in range(layer.num_hidden_layers):
        block = layer.attention_layers[i]
        side = sides[i]
        if layer.num_cross_attention_heads is None:
            columns = None if mask is None else np.array(mask)
            if columns is not None and side is None:
                columns = columns[..., : x.shape[1]]
            inner = fused_test.reference(block.inner_layer, x, side, columns)
            x = apply_block(block, x, inner)
        else:
            main_mask, side_mask = None, None
            if mask is not None:
                main_mask = np.array(mask)[..., : x.shape[1]]
                side_mask = np.array(mask)[..., x.shape[1] :]
            inner = fused_test.reference(block.inner_layer, x, mask=main_mask)
            x = apply_block(block, x, inner)
            block = layer.cross_attention_layers[i]
            if side is None:
                side, side_mask = np.zeros([0, HIDDEN]), None
            inner = side_test.reference(block.inner_layer, x, side, side_mask)
            x = apply_block(block, x, inner)
        block = layer.feed_forward_layers[i]
        x = apply_block(block, x, feed_forward(block.inner_layer, x))
    return x


VARIANTS = (
    {},
    {"share_kv_projections": True},
    {"num_cross_attention_heads": 0},
    {"num_cross_attention_heads": 4},
    {"num_cross_attention_heads": 2, "enable_default_side_input": True},
)


class TransformerWithSideInputLayersTest(
    parameterized.TestCase, tf.test.TestCase
):
    @parameterized.product(kwargs=VARIANTS, side_rank=[2, 3])
    def test_equals_the_reference(self, kwargs, side_rank):
        layer = make_layer(**kwargs)
        main, side, mask = make_inputs(side_rank)
        other = side[..., ::-1, :] * 2
        for sides, argument, given in (
            ([side, side], side, None),
            ([side, side], side, mask),
            ([side, other], [side, other], mask),
            ([other, None], (other, None), None),
            ([None, side], [None, side], mask),
        ):
            self.assertAllClose(
                layer(main, side_input=argument, att_mask=given),
                reference(layer, main, sides, given),
                1e-4,
                1e-4,
            )
        expected = reference(layer, main, [None, None], mask[..., :MAIN])
        for argument in (None, [None, None]):
            output = layer(main, side_input=argument, att_mask=mask[..., :MAIN])
            self.assertAllClose(output, expected, 1e-4, 1e-4)

    @parameterized.parameters(*[(kwargs,) for kwargs in VARIANTS])
    def test_gradients(self, kwargs):
        layer = make_layer(**kwargs, dtype="float64")
        inputs = make_inputs()
        mask = inputs[2]
        fused_test.check_gradients(
            self,
            layer,
            [inputs[0], inputs[1], -inputs[1]],
            lambda x, a, b: layer(x, side_input=[a, b], att_mask=mask),
            lambda x, a, b: reference(layer, x, [a, b], mask),
        )

    @parameterized.parameters({}, {"num_cross_attention_heads": 2})
    def test_masks_of_all_forms(self, **kwargs):
        layer = make_layer(**kwargs)
        main, side, mask = make_inputs()
        expected = layer(main, side_input=side, att_mask=mask)
        pieces = dict(att_mask=mask[..., :MAIN], side_att_mask=mask[..., MAIN:])
        self.assertAllClose(layer(main, side_input=side, **pieces), expected)
        alike = np.array(mask)
        alike[:, :, MAIN:] = alike[:, 1:2, MAIN:]
        self.assertAllClose(
            layer(main, side_input=side, att_mask=alike),
            layer(
                main,
                side_input=side,
                att_mask=mask[..., :MAIN],
                side_att_mask=mask[:, 1, MAIN:],
            ),
        )
        self.assertAllClose(
            layer(
                main, side_input=side, att_mask=np.tile(mask[:, :1], [1, 5, 1])
            ),
            layer(main, side_input=side, att_mask=mask[:, 0]),
        )

    @parameterized.parameters({}, {"num_cross_attention_heads": 2})
    def test_sides_of_different_lengths_have_masks_of_their_own(self, **kwargs):
        layer = make_layer(3, **kwargs)
        main, side, mask = make_inputs()
        sides = [side, None, side[:1]]
        masks = [mask[..., MAIN:], None, mask[..., MAIN : MAIN + 1]]
        # What a mask hides need not be there.
        padded = [side, None, side]
        output = layer(
            main,
            side_input=sides,
            att_mask=mask[..., :MAIN],
            side_att_mask=masks,
        )
        masks[2] = mask[..., MAIN:] * [1, 0, 0]
        expected = layer(
            main,
            side_input=padded,
            att_mask=mask[..., :MAIN],
            side_att_mask=masks,
        )
        self.assertAllClose(output, expected, 1e-5, 1e-5)
        with self.assertRaisesRegex(ValueError, r"\(1, 3\)"):
            layer(main, side_input=sides, att_mask=mask)

    @parameterized.parameters({}, {"num_cross_attention_heads": 2})
    def test_no_side_input_is_one_without_rows(self, **kwargs):
        layer = make_layer(**kwargs)
        main, side, mask = make_inputs()
        mask = mask[..., :MAIN]
        expected = layer(main, att_mask=mask)
        for shape in ([0, HIDDEN], [BATCH, 0, HIDDEN]):
            self.assertAllClose(
                expected,
                layer(main, side_input=tf.zeros(shape), att_mask=mask),
                1e-5,
                1e-5,
            )
        self.assertNotAllClose(expected, layer(main, side_input=side))

    def test_a_list_has_one_entry_a_layer(self):
        layer = make_layer()
        main, side, _ = make_inputs()
        for sides in ([], [side], [side] * 3, [None]):
            with self.assertRaisesRegex(
                ValueError, f"side_input has {len(sides)} entries.* 2 layers"
            ):
                layer(main, side_input=sides)
        with self.assertRaisesRegex(ValueError, "side_att_mask has 1 entr"):
            layer(main, side_input=side, side_att_mask=[None])

    def test_names_and_number_of_weights(self):
        layer = make_layer()
        self.assertEqual("transformer_layers", layer.name)
        self.assertEqual(
            ["attention_layer_0", "attention_layer_1"],
            [block.name for block in layer.attention_layers],
        )
        self.assertEqual(
            "feed_forward_layer_1", layer.feed_forward_layers[1].name
        )
        self.assertEmpty(layer.cross_attention_layers)
        for block in layer.attention_layers + layer.feed_forward_layers:
            self.assertEqual("layer_norm", block.normalization_layers[0].name)
            self.assertEqual(1e-12, block.normalization_layers[0].epsilon)
        feed_forward_size = 12 * 17 + 8
        self.assertEqual(
            2 * (6 * 72 + feed_forward_size + 2 * 16), layer.count_params()
        )
        layer = make_layer(share_kv_projections=True)
        self.assertEqual(
            2 * (4 * 72 + feed_forward_size + 2 * 16), layer.count_params()
        )
        layer = make_layer(
            num_cross_attention_heads=4, enable_default_side_input=True
        )
        self.assertTrue(layer.share_kv_projections)
        self.assertEqual(
            "cross_attention_layer_1", layer.cross_attention_layers[1].name
        )
        self.assertEqual(
            2 * (8 * 72 + 8 + feed_forward_size + 3 * 16),
            layer.count_params(),
        )
        layer = make_layer(num_cross_attention_heads=0)
        self.assertEqual(
            2 * (4 * 72 + feed_forward_size + 3 * 16), layer.count_params()
        )

    @parameterized.parameters(({}, 8), ({"num_cross_attention_heads": 2}, 10))
    def test_no_two_kernels_are_equal(self, kwargs, number):
        layer = side_transformer.TransformerWithSideInputLayers(
            HIDDEN, 2, 2, **kwargs
        )
        layer.build((None, None, HIDDEN))
        fused_test.assert_kernels_differ(self, layer, 2 * number)
        kernel = layer.attention_layers[0].inner_layer.output_projection.kernel
        self.assertBetween(np.std(kernel), 0.01, 0.03)
        self.assertEqual(4 * HIDDEN, layer.intermediate_size)

    @parameterized.product(
        num_cross_attention_heads=[None, 2],
        rates=[(0.3, 0.0), (0.0, 0.3)],
    )
    def test_dropout_in_training_only(self, rates, **kwargs):
        layer = make_layer(
            hidden_dropout_prob=rates[0],
            attention_probs_dropout_prob=rates[1],
            **kwargs,
        )
        main, side, _ = make_inputs()
        for training in (None, False):
            self.assertAllEqual(
                layer(main, side_input=side, training=training),
                layer(main, side_input=side, training=training),
            )
        first = layer(main, side_input=side, training=True)
        second = layer(main, side_input=side, training=True)
        self.assertNotAllClose(first, second)

    def test_attention_to_the_side_input_has_dropout_too(self):
        layer = make_layer(
            1,
            num_cross_attention_heads=2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.3,
        )
        # Nothing but the side input is attended to.
        main, side, mask = make_inputs()
        first, second = [
            layer(
                main,
                side_input=side,
                att_mask=0 * mask[..., :MAIN],
                side_att_mask=1 + 0 * mask[..., MAIN:],
                training=True,
            )
            for _ in range(2)
        ]
        self.assertNotAllClose(first, second)

    @parameterized.parameters(
        (False, {}),
        (False, {"num_cross_attention_heads": 2}),
        (True, {}),
    )
    def test_checkpointing_does_not_change_gradients(self, is_graph, kwargs):
        layer = make_layer(
            2 if is_graph else 3,
            hidden_dropout_prob=0.3,
            attention_probs_dropout_prob=0.2,
            grad_checkpointing_period=1,
            **kwargs,
        )
        main, side, mask = make_inputs()

        def step(main, side):
            # In a context all dropout follows from its seed.
            sides = [side, None, -side][: layer.num_hidden_layers]
            with tf.GradientTape() as tape:
                tape.watch([main, side])
                with recompute.RecomputeContext(False, tf.constant(5)):
                    output = layer(
                        main, side_input=sides, att_mask=mask, training=True
                    )
                loss = tf.reduce_sum(tf.sin(output))
            sources = [main, side, *layer.trainable_variables]
            gradients = tape.gradient(loss, sources)
            # Nothing is projected in the layer without side input.
            return loss, [
                tf.zeros_like(x) if g is None else g
                for g, x in zip(gradients, sources, strict=True)
            ]

        def run():
            function = tf.function(step) if is_graph else step
            return function(main, side)

        loss, actual = run()
        with mock.patch.object(tf, "recompute_grad", lambda f: f):
            expected_loss, expected = run()
        self.assertAllClose(expected_loss, loss, 1e-5)
        for a, b in zip(expected, actual, strict=True):
            self.assertAllClose(a, b, rtol=1e-3, atol=1e-5)
        self.assertNotAllEqual(tf.zeros_like(side), actual[1])

    def test_checkpointing_runs_the_chains_again(self):
        main, side, _ = make_inputs()
        for period, training, num_runs in [
            (0, True, 2),
            (1, True, 3),
            (1, None, 3),
            (1, False, 2),
        ]:
            layer = make_layer(grad_checkpointing_period=period)
            with mock.patch.object(
                side_transformer.wrappers.ResidualBlock,
                "_normalize",
                autospec=True,
                side_effect=lambda block, streams, training: streams,
            ) as normalize:
                with tf.GradientTape() as tape:
                    output = layer(main, side_input=side, training=training)
                    loss = tf.reduce_sum(output)
                tape.gradient(loss, layer.trainable_variables)
            # Two blocks a layer.
            self.assertEqual(2 * num_runs, normalize.call_count)

    @parameterized.product(
        policy=["mixed_bfloat16", "mixed_float16"],
        kwargs=[{}, {"num_cross_attention_heads": 0}],
    )
    def test_mixed_precision(self, policy, kwargs):
        layer = make_layer(dtype=policy, grad_checkpointing_period=1, **kwargs)
        main, side, mask = make_inputs()
        sides = [side, None]
        output = layer(main, side_input=sides, att_mask=mask)
        self.assertEqual(output.dtype.name, policy[len("mixed_") :])
        self.assertAllClose(
            reference(layer, main, sides, mask),
            tf.cast(output, tf.float32),
            atol=0.15,
        )
        with tf.GradientTape() as tape:
            output = layer(main, side_input=sides, training=True)
            loss = tf.reduce_mean(tf.cast(output, tf.float32) ** 3)
        weights = layer.cross_attention_layers or layer.attention_layers
        for gradient in tape.gradient(loss, weights[0].trainable_weights):
            self.assertEqual(gradient.dtype, tf.float32)
            self.assertTrue(np.all(np.isfinite(gradient)))

    @parameterized.parameters({}, {"num_cross_attention_heads": 2})
    def test_saved_model_of_any_length(self, **kwargs):
        layer = make_layer(grad_checkpointing_period=1, **kwargs)
        module = tf.Module()
        module.layer = layer

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, HIDDEN]),
                tf.TensorSpec([None, HIDDEN]),
                tf.TensorSpec([None, None, None], tf.int32),
            ]
        )
        def apply(main, side, mask):
            return layer(
                main, side_input=[None, side], att_mask=mask, training=False
            )

        module.apply = apply
        path = os.path.join(self.get_temp_dir(), "saved_model")
        tf.saved_model.save(module, path)
        loaded = tf.saved_model.load(path)
        for sizes in ((2, 5, 3), (1, 1, 1), (3, 4, 0), (1, 7, 20)):
            main, side, mask = make_inputs(2, *sizes)
            self.assertAllClose(
                layer(main, side_input=[None, side], att_mask=mask),
                loaded.apply(main, side, mask),
                1e-4,
                1e-4,
            )

    def test_whole_training_step_compiles(self):
        layer = make_layer(
            1, num_cross_attention_heads=2, enable_default_side_input=True
        )
        optimizer = tf.keras.optimizers.SGD(0.05)
        optimizer.build(layer.trainable_variables)
        main, side, mask = make_inputs()

        @tf.function(jit_compile=True)
        def step(main, side, mask):
            with tf.GradientTape() as tape:
                output = layer(
                    main, side_input=side, att_mask=mask, training=True
                )
                loss = tf.reduce_mean(output[:, :, 0])
            gradients = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(
                zip(gradients, layer.trainable_variables, strict=True)
            )
            return loss

        losses = [float(step(main, side, mask)) for _ in range(8)]
        self.assertLess(losses[-1], losses[0])

    def test_config_round_trip(self):
        for kwargs in (
            {"share_kv_projections": True},
            {"num_cross_attention_heads": 0, "enable_default_side_input": True},
        ):
            layer = make_layer(
                3,
                hidden_dropout_prob=0.2,
                attention_probs_dropout_prob=0.15,
                grad_checkpointing_period=2,
                name="x",
                **kwargs,
            )
            config = layer.get_config()
            other = type(layer).from_config(config)
            self.assertEqual(config, other.get_config())
            main, side, _ = make_inputs()
            expected = layer(main, side_input=side)
            other.build((None, None, HIDDEN))
            other.set_weights(layer.get_weights())
            # Equal to the last digits only if the activation is the same one.
            self.assertAllClose(
                expected, other(main, side_input=side), 1e-6, 1e-6
            )

    @parameterized.product(
        has_list=[False, True], num_cross_attention_heads=[None, 2]
    )
    def test_saving(self, has_list, **kwargs):
        inputs = {
            "main": tf.keras.Input([None, HIDDEN], name="main"),
            "side": tf.keras.Input([HIDDEN], name="side"),
            "mask": tf.keras.Input([None, None], dtype=tf.int32, name="mask"),
        }
        side = inputs["side"]
        layer = make_layer(**kwargs)
        model = tf.keras.Model(
            inputs,
            layer(
                inputs["main"],
                side_input=[None, side] if has_list else side,
                att_mask=inputs["mask"],
            ),
        )
        batch = dict(zip(("main", "side", "mask"), make_inputs(), strict=True))
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        self.assertAllClose(model(batch), loaded(batch), 1e-6, 1e-6)
        sides = [batch["side"]] * 2
        if has_list:
            sides[0] = None
        self.assertAllClose(
            reference(layer, batch["main"], sides, batch["mask"]),
            loaded(batch),
            1e-4,
            1e-4,
        )

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "num_hidden_layers"):
            make_layer(0)
        with self.assertRaisesRegex(ValueError, "multiple of num_heads"):
            make_layer(num_attention_heads=3)
        with self.assertRaisesRegex(ValueError, "num_cross_attention_heads"):
            make_layer(enable_default_side_input=True)
        with self.assertRaisesRegex(ValueError, "num_cross_attention_heads"):
            make_layer(num_cross_attention_heads=-1)
        main, side, mask = make_inputs()
        for kwargs in ({}, {"num_cross_attention_heads": 2}):
            layer = make_layer(**kwargs)
            for columns in (MAIN, MAIN + 1):
                with self.assertRaisesRegex(ValueError, "columns"):
                    layer(main, side_input=side, att_mask=mask[..., :columns])
            with self.assertRaisesRegex(ValueError, "columns"):
                layer(main, att_mask=mask)


if __name__ == "__main__":
    tf.test.main()
