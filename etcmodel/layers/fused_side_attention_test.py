import itertools
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import attention
from etcmodel.layers import attention_reference
from etcmodel.layers import fused_side_attention
from etcmodel.layers import recompute

HIDDEN, BATCH, MAIN, SIDE = 12, 2, 5, 3


def randomize(layer, seed=0):
    """Gives all weights values as large as those of the inputs."""
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])


def project(projection, x):
    """What a `ProjectAttentionHeads` makes of an array, in float64."""
    kernel = np.array(projection.linear.kernel, np.float64)
    flat = np.array(x, np.float64) @ kernel + np.array(projection.linear.bias)
    heads, size = projection.num_heads, projection.size_per_head
    return flat.reshape(*flat.shape[:-1], heads, size)


def dense(layer, x):
    """What a `Dense` layer makes of an array, in float64."""
    return x @ np.array(layer.kernel, np.float64) + np.array(layer.bias)


def reference(layer, main, side=None, mask=None):
    """The layer's output from its weights: `mask` has all columns."""
    keys = project(layer.main_key_projection, main)
    values = project(layer.main_value_projection, main)
    if side is not None:
        side = np.broadcast_to(side, (len(main), *np.shape(side)[-2:]))
        keys = np.concatenate(
            [keys, project(layer.side_key_projection, side)], axis=1
        )
        values = np.concatenate(
            [values, project(layer.side_value_projection, side)], axis=1
        )
    output = attention_reference.reference_attention(
        project(layer.main_query_projection, main), keys, values, mask
    )
    output = output.reshape(*output.shape[:2], -1)
    return dense(layer.output_projection, output)


def check_gradients(test, layer, inputs, compute, expected):
    """Compares a slope of the layer with one of a float64 reference.

    Args:
        test: the test case.
        layer: a built layer of float64.
        inputs: float arrays.
        compute: output of the layer, from tensors.
        expected: the same from arrays and the layer's present weights.
    """
    rng = np.random.default_rng(5)
    weights = layer.get_weights()
    points = [np.asarray(x, np.float64) for x in inputs]
    steps = [rng.normal(size=x.shape) for x in points]
    weight_steps = [rng.normal(size=w.shape) for w in weights]
    tensors = [tf.constant(x) for x in points]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = compute(*tensors)
        upstream = rng.normal(size=output.shape)
        loss = tf.reduce_sum(output * upstream)
    gradients = tape.gradient(loss, tensors + list(layer.trainable_weights))
    slope = sum(
        np.sum(np.array(tf.convert_to_tensor(g)) * step)
        for g, step in zip(gradients, steps + weight_steps, strict=True)
    )

    def loss_at(size):
        layer.set_weights(
            [w + size * s for w, s in zip(weights, weight_steps, strict=True)]
        )
        moved = [x + size * s for x, s in zip(points, steps, strict=True)]
        return np.sum(expected(*moved) * upstream)

    size = 1e-6
    expected_slope = (loss_at(size) - loss_at(-size)) / (2 * size)
    layer.set_weights(weights)
    test.assertAllClose(slope, expected_slope, rtol=1e-5, atol=1e-5)


def check_mixed_precision(test, expected, actual, policy):
    """Checks dtype and mean error of an output in mixed precision."""
    test.assertEqual(actual.dtype.name, policy[len("mixed_") :])
    error = np.abs(np.array(actual, np.float64) - expected).mean()
    test.assertLess(error, 0.02 * np.abs(expected).mean())


def assert_kernels_differ(test, layer, number):
    """No two of the `number` weights that do not start constant are equal."""
    kernels = [w for w in layer.get_weights() if np.ptp(w) > 0]
    test.assertLen(kernels, number)
    for first, second in itertools.combinations(kernels, 2):
        if first.shape == second.shape:
            test.assertNotAllClose(first, second)


def make_inputs(side_rank=2, batch=BATCH, main=MAIN, side=SIDE):
    """Main input, side input and a mask of both, which hides much."""
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
    randomize(layer)
    return layer


class FusedSideAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        num_heads=[1, 3], share_kv_projections=[False, True], side_rank=[2, 3]
    )
    def test_equals_the_reference(self, side_rank, **kwargs):
        layer = make_layer(**kwargs, dtype="float64")
        main, side, mask = make_inputs(side_rank)
        for given in (None, mask):
            expected = reference(layer, main, side, given)
            output = layer(main, side_input=side, att_mask=given)
            self.assertEqual(output.shape, [BATCH, MAIN, HIDDEN])
            self.assertAllClose(output, expected, 1e-9, 1e-9)
        expected = reference(layer, main, None, mask[..., :MAIN])
        output = layer(main, att_mask=mask[..., :MAIN])
        self.assertAllClose(output, expected, 1e-9, 1e-9)

    @parameterized.parameters(2, 3)
    def test_gradients(self, side_rank):
        layer = make_layer(share_kv_projections=False, dtype="float64")
        main, side, mask = make_inputs(side_rank)
        check_gradients(
            self,
            layer,
            [main, side],
            lambda a, b: layer(a, side_input=b, att_mask=mask),
            lambda a, b: reference(layer, a, b, mask),
        )

    def test_hand_computed_case(self):
        layer = fused_side_attention.FusedSideAttention(1, 1)
        layer.build((None, None, 1))
        layer.set_weights([np.ones([1, 1]), np.zeros([1])] * 4)
        main = tf.constant([[[1.0], [0.0]]])
        side = tf.constant([[np.log(2.0)]], tf.float32)
        # Weights e, 1, 2 of the first token, and 1, 1, 1 of the second one.
        self.assertAllClose(
            layer(main, side_input=side),
            [[[0.717797], [0.564382]]],
            rtol=1e-5,
        )
        # The first token sees itself and the side row, the second one itself.
        self.assertAllClose(
            layer(
                main,
                side_input=side,
                att_mask=tf.constant([[[1, 0, 1], [0, 1, 0]]]),
            ),
            [[[(np.e + 2 * np.log(2)) / (np.e + 2)], [0.0]]],
            rtol=1e-5,
        )

    @parameterized.parameters(2, 3)
    def test_masks_of_all_forms(self, side_rank):
        layer = make_layer()
        main, side, mask = make_inputs(side_rank)

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
        # The same columns for all tokens.
        alike = np.tile(mask[:, 1:2], [1, MAIN, 1])
        expected = attend(att_mask=alike)
        self.assertAllEqual(expected, attend(att_mask=mask[:, 1]))
        self.assertAllEqual(
            expected,
            attend(att_mask=mask[:, 1, :MAIN], side_att_mask=mask[:, 1, MAIN:]),
        )
        self.assertAllClose(
            attend(side_att_mask=mask[:, 1, MAIN:]),
            reference(
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

    def test_the_masks_of_the_pieces(self):
        masks = fused_side_attention.split_masks(
            [[[1, 1, 0], [0, 1, 1]]], None, tf.ones([1, 2, 4]), tf.ones([1, 4])
        )
        self.assertAllEqual([[[True, True], [False, True]]], masks[0])
        self.assertAllEqual([[[False], [True]]], masks[1])
        self.assertAllEqual(
            [[[True, False]], [[True, True]]],
            fused_side_attention.as_mask([[1, 0], [1, 1]], "mask"),
        )
        self.assertIsNone(fused_side_attention.as_mask(None, "mask"))

    def test_a_token_that_may_attend_to_nothing_gets_the_bias(self):
        layer = make_layer()
        main, side, mask = make_inputs()
        output = layer(main, side_input=side, att_mask=mask)
        self.assertAllClose(output[0, 0], layer.output_projection.bias)
        self.assertNotAllClose(output[0, 1], layer.output_projection.bias)
        with tf.GradientTape() as tape:
            x = tf.constant(main)
            tape.watch(x)
            output = layer(x, side_input=side, att_mask=0 * mask)
        self.assertAllEqual(tf.zeros_like(x), tape.gradient(output, x))

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
        # Equal scores, and one-hot values: the output is the probabilities.
        layer.set_weights(
            [0 * eye, nothing, 0 * eye, nothing, eye, nothing, eye, nothing]
        )
        main = tf.tile(tf.eye(size)[tf.newaxis, :8], [30, 1, 1])
        side = tf.eye(size)[8:]
        probs = np.array(layer(main, side_input=side, training=True))
        for part in (probs[..., :8], probs[..., 8:]):
            kept = part != 0
            self.assertBetween(kept.mean(), 0.70, 0.80)
            self.assertAllClose(part[kept], np.full(kept.sum(), 1 / 16 / 0.75))
        again = layer(main, side_input=side, training=True)
        self.assertNotAllEqual(probs, again)
        for training in (None, False):
            self.assertAllClose(
                layer(main, side_input=side, training=training),
                np.full([30, 8, size], 1 / 16),
            )
        # In a recomputed function all follows from its seed.
        outputs = []
        for is_recomputing in (False, True):
            with recompute.RecomputeContext(is_recomputing, tf.constant(3)):
                outputs.append(layer(main, side_input=side, training=True))
        self.assertAllEqual(*outputs)

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
        self.assertEqual(
            (HIDDEN, HIDDEN),
            tuple(layer.main_query_projection.linear.kernel.shape),
        )
        self.assertEqual(
            (HIDDEN,), tuple(layer.side_value_projection.linear.bias.shape)
        )
        self.assertEqual(
            (HIDDEN, HIDDEN), tuple(layer.output_projection.kernel.shape)
        )
        self.assertEqual("fused_side_attention", layer.name)
        assert_kernels_differ(self, layer, number)

    def test_without_side_input_it_is_plain_self_attention(self):
        layer = make_layer()
        plain = attention.RelativeAttention(HIDDEN, 3)
        main, _, mask = make_inputs()
        mask = mask[..., :MAIN]
        plain(main)
        plain.set_weights(layer.get_weights())
        self.assertAllClose(
            plain(main, att_mask=mask), layer(main, att_mask=mask), 1e-5, 1e-5
        )

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        layer = make_layer(dtype=policy)
        main, side, mask = make_inputs()
        expected = reference(layer, main, side, mask)
        with tf.GradientTape() as tape:
            output = layer(main, side_input=side, att_mask=mask)
            loss = tf.reduce_mean(tf.cast(output, tf.float32) ** 2)
        check_mixed_precision(self, expected, output, policy)
        for gradient in tape.gradient(loss, layer.trainable_weights):
            self.assertEqual(gradient.dtype, tf.float32)
            self.assertTrue(np.all(np.isfinite(gradient)))

    def test_config_round_trip(self):
        arguments = dict(
            hidden_size=6,
            num_heads=2,
            att_dropout_prob=0.2,
            share_kv_projections=False,
            name="given",
        )
        layer = fused_side_attention.FusedSideAttention(
            initializer=tf.keras.initializers.TruncatedNormal(stddev=0.01),
            **arguments,
        )
        config = layer.get_config()
        self.assertEqual({k: config[k] for k in arguments}, arguments)
        copy = type(layer).from_config(config)
        self.assertEqual(copy.get_config(), config)
        self.assertEqual(copy.initializer.get_config()["stddev"], 0.01)

    def test_saving(self):
        inputs = tf.keras.Input([None, HIDDEN])
        side = tf.keras.Input([None, HIDDEN])
        mask = tf.keras.Input([None, None], dtype=tf.int32)
        layer = fused_side_attention.FusedSideAttention(HIDDEN, 3)
        model = tf.keras.Model(
            [inputs, side, mask],
            layer(inputs, side_input=side, att_mask=mask),
        )
        batch = [tf.constant(x) for x in make_inputs(3)]
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        self.assertAllClose(model(batch), loaded(batch), 1e-6, 1e-6)

    def test_saved_model_of_any_length(self):
        layer = make_layer()
        module = tf.Module()
        module.layer = layer

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, HIDDEN]),
                tf.TensorSpec([None, HIDDEN]),
                tf.TensorSpec([None, None, None], tf.int32),
            ]
        )
        def attend(main, side, mask):
            return layer(main, side_input=side, att_mask=mask)

        module.attend = attend
        path = os.path.join(self.get_temp_dir(), "saved_model")
        tf.saved_model.save(module, path)
        loaded = tf.saved_model.load(path)
        for sizes in ((2, 5, 3), (1, 1, 1), (3, 4, 0), (1, 7, 20), (0, 2, 2)):
            main, side, mask = (
                make_inputs(2, *sizes)
                if sizes[0]
                else (
                    np.zeros([0, 2, HIDDEN], np.float32),
                    np.zeros([2, HIDDEN], np.float32),
                    np.zeros([0, 2, 4], np.int32),
                )
            )
            self.assertAllClose(
                layer(main, side_input=side, att_mask=mask),
                loaded.attend(main, side, mask),
                1e-5,
                1e-5,
            )
        # One column too few, which must not pass for a mask of all.
        with self.assertRaises(tf.errors.InvalidArgumentError):
            main, side, mask = make_inputs(side=2)
            loaded.attend(main, side, mask[..., :-1])

    def test_compiled_training_step(self):
        layer = make_layer()
        main, side, mask = make_inputs()

        @tf.function(jit_compile=True)
        def step(main, side):
            with tf.GradientTape() as tape:
                tape.watch(side)
                output = layer(
                    main, side_input=side, att_mask=mask, training=True
                )
                loss = tf.reduce_sum(tf.sin(output))
            return tape.gradient(loss, [side, *layer.trainable_weights])

        gradients = step(main, tf.constant(side))
        self.assertLen(gradients, 9)
        for gradient in gradients:
            self.assertTrue(np.all(np.isfinite(gradient)))
        forward = tf.function(
            lambda: layer(main, side_input=side, att_mask=mask),
            jit_compile=True,
        )
        self.assertAllClose(
            forward(), reference(layer, main, side, mask), 1e-4, 1e-4
        )

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "multiple of num_heads"):
            fused_side_attention.FusedSideAttention(10, 3)
        with self.assertRaisesRegex(ValueError, "num_heads"):
            fused_side_attention.FusedSideAttention(10, 0)
        layer = make_layer()
        main, side, mask = make_inputs()
        for columns in (MAIN - 1, MAIN, MAIN + 1, MAIN + SIDE - 1):
            with self.assertRaisesRegex(ValueError, "columns"):
                layer(main, side_input=side, att_mask=mask[..., :columns])
        with self.assertRaisesRegex(ValueError, "columns"):
            layer(main, side_input=side, side_att_mask=mask[..., :1])
        with self.assertRaisesRegex(ValueError, "columns"):
            layer(main, att_mask=mask)
        with self.assertRaisesRegex(ValueError, "att_mask.* rank"):
            layer(main, side_input=side, att_mask=mask[0, 0])
        with self.assertRaisesRegex(ValueError, "side_input.* rank"):
            layer(main, side_input=side[0])


if __name__ == "__main__":
    tf.test.main()
