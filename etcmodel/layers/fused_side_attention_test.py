import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_side_attention
from testing import layer_checks
from testing import references

HIDDEN, BATCH, MAIN, SIDE = 12, 2, 5, 3


def make_inputs(side_rank=2, batch=BATCH, main=MAIN, side=SIDE):
    """Returns main and side inputs, and a mask that hides many pairs."""
    rng = np.random.default_rng(1)
    side_shape = [batch, side, HIDDEN][3 - side_rank :]
    mask = rng.binomial(1, 0.5, size=[batch, main, main + side])
    mask[0, 0] = 0
    return (
        rng.normal(size=[batch, main, HIDDEN]).astype(np.float32),
        rng.normal(size=side_shape).astype(np.float32),
        mask.astype(np.int32),
    )


def make_layer(num_heads=3, **kwargs):
    layer = fused_side_attention.FusedSideAttention(HIDDEN, num_heads, **kwargs)
    layer.build((None, None, HIDDEN))
    layer_checks.randomize(layer)
    return layer


class FusedSideAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # Number of heads, shared projections, rank of the side input.
        (1, False, 2),
        (3, False, 3),
        (3, True, 2),
    )
    def test_equals_the_reference_with_gradients(
        self, num_heads, share_kv_projections, side_rank
    ):
        layer = make_layer(
            num_heads,
            share_kv_projections=share_kv_projections,
            dtype="float64",
        )
        main, side, mask = make_inputs(side_rank)
        for given in (None, mask):
            expected = references.fused_side_attention(layer, main, side, given)
            output = layer(main, side_input=side, att_mask=given)
            self.assertEqual(output.shape, [BATCH, MAIN, HIDDEN])
            self.assertAllClose(output, expected, 1e-9, 1e-9)
        expected = references.fused_side_attention(
            layer, main, None, mask[..., :MAIN]
        )
        output = layer(main, att_mask=mask[..., :MAIN])
        self.assertAllClose(output, expected, 1e-9, 1e-9)
        layer_checks.check_gradients(
            self,
            layer,
            [main, side],
            lambda a, b: layer(a, side_input=b, att_mask=mask),
            lambda a, b: references.fused_side_attention(layer, a, b, mask),
        )

    @parameterized.product(
        has_side=(False, True), side_rank=(2, 3), is_dynamic=(False, True)
    )
    def test_a_few_examples_at_a_time(self, has_side, side_rank, is_dynamic):
        layer = make_layer(dtype="float64")
        main, side, mask = make_inputs(side_rank, batch=7)
        if not has_side:
            side, mask = None, mask[..., :MAIN]
        arrays = {
            name: x
            for name, x in (
                ("main_input", main),
                ("side_input", side),
                ("att_mask", mask),
            )
            if x is not None
        }
        layer_checks.check_chunks(
            self,
            layer,
            arrays,
            references.fused_side_attention(layer, main, side, mask),
            # Number of scores of three examples with three heads.
            3 * 3 * MAIN * (MAIN + SIDE * has_side),
            lambda x: (
                [*[None] * (x.ndim - 1), x.shape[-1]] if is_dynamic else x.shape
            ),
            None if is_dynamic else 3,
        )

    def test_masks_of_all_forms(self):
        layer = make_layer()
        main, side, mask = make_inputs(3)

        def attend(**masks):
            return layer(main, side_input=side, **masks)

        expected = attend(att_mask=mask)
        self.assertAllEqual(
            expected,
            attend(
                att_mask=mask[..., :MAIN], side_att_mask=mask[..., MAIN:] == 1
            ),
        )
        for dtype in (bool, np.int64, np.float32):
            self.assertAllEqual(expected, attend(att_mask=mask.astype(dtype)))
        # A mask that is equal for all tokens may leave their axis out.
        alike = np.tile(mask[:, 1:2], [1, MAIN, 1])
        expected = attend(att_mask=alike)
        self.assertAllEqual(expected, attend(att_mask=mask[:, 1]))
        self.assertAllEqual(
            expected,
            attend(att_mask=mask[:, 1, :MAIN], side_att_mask=mask[:, 1, MAIN:]),
        )
        self.assertAllClose(
            attend(side_att_mask=mask[:, 1, MAIN:]),
            references.fused_side_attention(
                layer,
                main,
                side,
                np.concatenate(
                    [np.ones([BATCH, MAIN, MAIN]), alike[..., MAIN:]], axis=-1
                ),
            ),
            1e-4,
            1e-4,
        )

    def test_no_side_rows_are_no_side_input(self):
        layer = make_layer()
        main, _, mask = make_inputs()
        for given in (None, mask[..., :MAIN]):
            expected = layer(main, att_mask=given)
            for shape in ([0, HIDDEN], [BATCH, 0, HIDDEN]):
                self.assertAllClose(
                    expected,
                    layer(main, side_input=tf.zeros(shape), att_mask=given),
                    1e-6,
                    1e-6,
                )

    def test_dropout_of_the_probabilities_in_training(self):
        size = 16
        layer = fused_side_attention.FusedSideAttention(
            size, 1, att_dropout_prob=0.25
        )
        layer.build((None, None, size))
        eye, nothing = np.eye(size), np.zeros(size)
        # Equal scores and one-hot values: the output is the probabilities.
        layer.set_weights(
            [0 * eye, nothing, 0 * eye, nothing, eye, nothing, eye, nothing]
        )
        main = tf.tile(tf.eye(size)[tf.newaxis, :8], [30, 1, 1])
        side = tf.eye(size)[8:]
        probs = []

        def attend(training):
            probs.append(layer(main, side_input=side, training=training))
            return probs[-1]

        layer_checks.check_dropout(self, attend)
        for part in (probs[0][..., :8], probs[0][..., 8:]):
            self.assertNear(np.mean(part != 0), 0.75, 0.05)

    @parameterized.parameters(False, True)
    def test_weights(self, share_kv_projections):
        layer = fused_side_attention.FusedSideAttention(
            HIDDEN,
            3,
            share_kv_projections=share_kv_projections,
            initializer=tf.keras.initializers.TruncatedNormal(stddev=0.02),
        )
        layer.build((None, None, HIDDEN))
        for kind in ("key", "value"):
            main = getattr(layer, f"main_{kind}_projection")
            side = getattr(layer, f"side_{kind}_projection")
            self.assertEqual(main is side, share_kv_projections)
        number = 4 if share_kv_projections else 6
        self.assertLen(layer.trainable_weights, 2 * number)

    def test_too_few_columns_with_unknown_lengths(self):
        layer = make_layer()

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, HIDDEN]),
                tf.TensorSpec([None, HIDDEN]),
                tf.TensorSpec([None, None, None], tf.int32),
            ]
        )
        def attend(main, side, mask):
            return layer(main, side_input=side, att_mask=mask)

        # A mask that lacks a column raises an error.
        main, side, mask = make_inputs(side=2)
        attend(main, side, mask)
        with self.assertRaises(tf.errors.InvalidArgumentError):
            attend(main, side, mask[..., :-1])

    def test_errors(self):
        layer = make_layer()
        main, side, mask = make_inputs()
        make = fused_side_attention.FusedSideAttention

        def attend(side=side, **masks):
            return lambda: layer(main, side_input=side, **masks)

        for message, call in (
            ("multiple of num_heads", lambda: make(10, 3)),
            ("num_heads", lambda: make(10, 0)),
            *(
                ("columns", attend(att_mask=mask[..., :columns]))
                for columns in (MAIN - 1, MAIN, MAIN + 1, MAIN + SIDE - 1)
            ),
            ("columns", attend(side_att_mask=mask[..., :1])),
            ("columns", attend(None, att_mask=mask)),
            ("att_mask.* rank", attend(att_mask=mask[0, 0])),
            ("side_input.* rank", attend(side[0])),
        ):
            with self.assertRaisesRegex(ValueError, message):
                call()


if __name__ == "__main__":
    tf.test.main()
