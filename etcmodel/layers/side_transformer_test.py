import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import side_transformer
from testing import layer_checks
from testing import references

HIDDEN, BATCH, MAIN, SIDE = 8, 2, 5, 3


def make_layer(num_hidden_layers=2, **kwargs):
    """Returns a built stack in which all weights are random."""
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
    """Returns main and side inputs and a mask; one token has no keys."""
    rng = np.random.default_rng(1)
    side_shape = [batch, side, HIDDEN][3 - side_rank :]
    mask = rng.binomial(1, 0.6, size=[batch, main, main + side])
    mask[0, 0] = 0
    return (
        tf.constant(rng.normal(size=[batch, main, HIDDEN]), tf.float32),
        tf.constant(rng.normal(size=side_shape), tf.float32),
        tf.constant(mask, tf.int32),
    )


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
    @parameterized.parameters(*zip(VARIANTS, (2, 3, 3, 2, 3), strict=True))
    def test_equals_the_reference_with_gradients(self, kwargs, side_rank):
        layer = make_layer(**kwargs, dtype="float64")
        main, side, mask = make_inputs(side_rank)
        other = side[..., ::-1, :] * 2
        for sides, argument, given in (
            ([side, side], side, mask),
            ([other, None], (other, None), None),
            ([None, None], None, mask[..., :MAIN]),
        ):
            self.assertAllClose(
                layer(main, side_input=argument, att_mask=given),
                references.side_transformer(layer, main, sides, given),
                1e-9,
                1e-9,
            )
        layer_checks.check_gradients(
            self,
            layer,
            [main, side, other],
            lambda x, a, b: layer(x, side_input=[a, b], att_mask=mask),
            lambda x, a, b: references.side_transformer(layer, x, [a, b], mask),
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
    def test_sides_of_different_lengths_have_their_own_masks(self, **kwargs):
        layer = make_layer(3, **kwargs)
        main, side, mask = make_inputs()
        sides = [side, None, side[:1]]
        masks = [mask[..., MAIN:], None, mask[..., MAIN : MAIN + 1]]
        # A side input with further, masked rows gives the same output.
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
    def test_side_input_without_rows(self, **kwargs):
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

    def test_layers_share_traces(self):
        def functions(num_hidden_layers):
            layer = make_layer(num_hidden_layers)

            def gradients(main, side, mask):
                with tf.GradientTape() as tape:
                    output = layer(main, side, att_mask=mask, training=True)
                return tape.gradient(output, layer.trainable_variables)

            graph = (
                tf.function(gradients, autograph=False)
                .get_concrete_function(*make_inputs())
                .graph
            )
            calls = [x for x in graph.get_operations() if "Call" in x.type]
            return calls, {x.get_attr("f").name for x in calls}

        calls, names = functions(2)
        more_calls, more_names = functions(3)
        # Traces of attention, its projections (main, side, output), dropout,
        # normalization and feed-forward block, and of their gradients.
        self.assertLen(names, 14)
        self.assertLen(more_names, 14)
        self.assertEqual(len(more_calls), len(calls) * 3 / 2)

    def test_a_list_needs_one_entry_per_layer(self):
        layer = make_layer()
        main, side, _ = make_inputs()
        for sides in ([], [side], [side] * 3, [None]):
            with self.assertRaisesRegex(
                ValueError, f"side_input has {len(sides)} entries.* 2 layers"
            ):
                layer(main, side_input=sides)
        with self.assertRaisesRegex(ValueError, "side_att_mask has 1 entr"):
            layer(main, side_input=side, side_att_mask=[None])

    @parameterized.parameters(
        # Number of weights of a layer without feed-forward block and norms.
        ({}, 6 * 72),
        ({"share_kv_projections": True}, 4 * 72),
        (
            {"num_cross_attention_heads": 4, "enable_default_side_input": True},
            8 * 72 + 8 + 16,
        ),
        ({"num_cross_attention_heads": 0}, 4 * 72 + 16),
    )
    def test_names_and_number_of_weights(self, kwargs, more):
        layer = make_layer(**kwargs)
        self.assertEqual(
            2 * (12 * 17 + 8 + 2 * 16 + more), layer.count_params()
        )
        has_cross = "num_cross_attention_heads" in kwargs
        self.assertLen(layer.cross_attention_layers, 2 * has_cross)
        self.assertEqual(layer.share_kv_projections, bool(more != 6 * 72))
        for name in ("attention", "cross_attention", "feed_forward"):
            for i, block in enumerate(getattr(layer, f"{name}_layers")):
                self.assertEqual(f"{name}_layer_{i}", block.name)
                (norm,) = block.normalization_layers
                self.assertEqual(
                    ("layer_norm", 1e-12), (norm.name, norm.epsilon)
                )

    def test_defaults(self):
        layer = side_transformer.TransformerWithSideInputLayers(HIDDEN, 2, 2)
        layer.build((None, None, HIDDEN))
        kernel = layer.attention_layers[0].inner_layer.output_projection.kernel
        self.assertBetween(np.std(kernel), 0.01, 0.03)
        self.assertEqual(4 * HIDDEN, layer.intermediate_size)

    @parameterized.parameters((None, 0.0, 0.3), (2, 0.3, 0.0))
    def test_dropout_in_training_only(
        self, num_cross_attention_heads, of_hidden, of_probs
    ):
        layer = make_layer(
            num_cross_attention_heads=num_cross_attention_heads,
            hidden_dropout_prob=of_hidden,
            attention_probs_dropout_prob=of_probs,
        )
        main, side, _ = make_inputs()
        layer_checks.check_dropout_in_training_alone(
            self,
            lambda training: layer(main, side_input=side, training=training),
        )

    def test_attention_to_the_side_input_has_dropout_too(self):
        layer = make_layer(
            1,
            num_cross_attention_heads=2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.3,
        )
        # All tokens are masked, so attention covers only the side input.
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
        number = layer.num_hidden_layers
        layer_checks.check_checkpointing(
            self,
            layer,
            [tf.constant(main), tf.constant(side)],
            # A layer without a side input does not use its side projections.
            lambda main, side: layer(
                main,
                side_input=[side, None, -side][:number],
                att_mask=mask,
                training=True,
            ),
            is_graph,
        )

    def test_checkpointing_runs_the_chains_again(self):
        main, side, _ = make_inputs()
        layer_checks.check_recomputed_chains(
            self,
            make_layer,
            lambda layer, training: layer(
                main, side_input=side, training=training
            ),
            blocks=2,
        )

    def test_a_list_of_sides_in_a_file(self):
        main, side = tf.keras.Input([None, HIDDEN]), tf.keras.Input([HIDDEN])
        layer = make_layer()
        model = tf.keras.Model(
            [main, side], layer(main, side_input=[None, side])
        )
        main, side, _ = make_inputs()
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        self.assertAllClose(
            references.side_transformer(layer, main, [None, side]),
            tf.keras.models.load_model(path)([main, side]),
            1e-4,
            1e-4,
        )

    def test_errors(self):
        for message, kwargs in (
            ("num_hidden_layers", {"num_hidden_layers": 0}),
            ("multiple of num_heads", {"num_attention_heads": 3}),
            ("num_cross_attention_heads", {"enable_default_side_input": True}),
            ("num_cross_attention_heads", {"num_cross_attention_heads": -1}),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make_layer(**kwargs)
        main, side, mask = make_inputs()
        for kwargs in ({}, {"num_cross_attention_heads": 2}):
            layer = make_layer(**kwargs)
            for given, columns in ((side, MAIN), (side, MAIN + 1), (None, 8)):
                with self.assertRaisesRegex(ValueError, "columns"):
                    layer(main, side_input=given, att_mask=mask[..., :columns])


if __name__ == "__main__":
    tf.test.main()
