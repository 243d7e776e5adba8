import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel.layers import attention_reference
from etcmodel.layers import local_attention
from etcmodel.layers import recompute
from etcmodel.layers import streaming_tools_test

IMPLEMENTATIONS = ("full", "sparse", "streaming", "auto")


def make_call(seed, length, radius, side_len=3, heads=2, size=4, vocab=6):
    """Random arguments of the layer's call, as float32 and int32 tensors."""
    rng = np.random.default_rng(seed)
    width = 2 * radius + 1

    def normal(*shape):
        return tf.constant(rng.standard_normal(shape), tf.float32)

    def ints(high, *shape):
        return tf.constant(rng.integers(high, size=shape), tf.int32)

    # Every query sees itself.
    att_mask = ints(2, 2, length, width) | tf.one_hot(
        radius, width, dtype=tf.int32
    )
    return dict(
        queries=normal(2, length, heads, size),
        keys=normal(2, length, heads, size),
        values=normal(2, length, heads, size + 1),
        att_mask=att_mask,
        relative_att_ids=ints(vocab, 2, length, width),
        side_keys=normal(2, side_len, heads, size),
        side_values=normal(2, side_len, heads, size + 1),
        side_att_mask=ints(2, 2, length, side_len),
        side_relative_att_ids=ints(vocab, 2, length, side_len),
    )


class DropoutTest(parameterized.TestCase, tf.test.TestCase):
    """Outputs are linear in the values, whatever is dropped.

    So they equal the product of the values and their gradients exactly where
    both passes drop the same.
    """

    def make_step(self, layer, call, mode, training=True):
        values = ("values", "side_values")

        def step(queries, training=training):
            inputs = {**call, "queries": queries}
            floats = {name: inputs[name] for name in values}
            weights = tf.sin(tf.range(20.0))[:13, tf.newaxis, tf.newaxis]
            with tf.GradientTape() as tape:
                tape.watch(floats)

                def attend(queries, floats):
                    return layer(
                        **{**inputs, **floats, "queries": queries},
                        att_implementation="streaming",
                        training=training,
                    )

                if mode == "recomputed":
                    attend = recompute.recompute_grad(attend)
                output = attend(queries, floats)
                total = tf.reduce_sum(output * weights)
            gradients = tape.gradient(total, floats)
            linear = sum(
                tf.reduce_sum(gradients[name] * floats[name]) for name in values
            )
            return output, total, linear

        if mode == "eager":
            return step
        return tf.function(step, jit_compile=mode == "jit")

    def make_layer(self):
        layer = local_attention.QkvRelativeLocalAttention(
            3, 6, att_dropout_prob=0.5
        )
        layer.build((None, None, 2, 4))
        return layer

    @parameterized.parameters("eager", "graph", "jit", "recomputed")
    def test_both_passes_drop_the_same(self, mode):
        call = make_call(8, length=13, radius=3)
        layer = self.make_layer()
        with streaming_tools_test.chunks_of(1, 4):
            step = self.make_step(layer, call, mode)
            first, *sums = step(call["queries"])
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
            second, *sums = step(call["queries"])
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
        self.assertNotAllClose(first, second)

    def test_training_as_a_tensor(self):
        call = make_call(9, length=13, radius=3)
        layer = self.make_layer()
        expected = layer(**call, att_implementation="streaming")
        with streaming_tools_test.chunks_of(1, 4):
            step = self.make_step(layer, call, "graph")
            first, *sums = step(call["queries"], tf.constant(True))
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
            second, *_ = step(call["queries"], tf.constant(True))
            kept, *sums = step(call["queries"], tf.constant(False))
            self.assertAllClose(*sums, rtol=1e-4, atol=1e-4)
        self.assertNotAllClose(first, second)
        self.assertNotAllClose(first, expected)
        self.assertAllClose(kept, expected, 1e-5)

    def test_layer_inside_another_that_trains(self):
        call = make_call(10, length=13, radius=3)
        layer = self.make_layer()

        class Outer(tf.keras.layers.Layer):
            def __init__(self):
                super().__init__()
                self.inner = layer

            def call(self, queries, training=None):
                return self.inner(
                    **{**call, "queries": queries},
                    att_implementation="streaming",
                )

        outer = Outer()
        queries = call["queries"]
        self.assertAllEqual(outer(queries), outer(queries, training=False))
        first, second = (outer(queries, training=True) for _ in range(2))
        self.assertNotAllClose(first, second)


class QkvRelativeLocalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        # Blocks of 16 cut 64 evenly, blocks of 17 and 36 do not.
        radius=[15, 16, 35],
        use_one_hot_lookup=[False, True],
    )
    def test_all_implementations_equal_the_reference(
        self, radius, use_one_hot_lookup
    ):
        call = make_call(0, length=64, radius=radius)
        layer = local_attention.QkvRelativeLocalAttention(
            local_radius=radius,
            relative_vocab_size=6,
            use_one_hot_lookup=use_one_hot_lookup,
        )
        layer.build(call["queries"].shape)
        child = layer.qkv_relative_attention
        child.relative_bias_table.assign(
            np.random.default_rng(1).standard_normal((6, 2))
        )
        expected = attention_reference.reference_attention(
            call["queries"],
            np.concatenate([call["keys"], call["side_keys"]], axis=1),
            np.concatenate([call["values"], call["side_values"]], axis=1),
            np.concatenate(
                [
                    attention_reference.square_of_band(call["att_mask"]),
                    call["side_att_mask"],
                ],
                axis=-1,
            ),
            np.concatenate(
                [
                    attention_reference.square_of_band(
                        call["relative_att_ids"]
                    ),
                    call["side_relative_att_ids"],
                ],
                axis=-1,
            ),
            np.array(child.relative_emb_table),
            np.array(child.relative_bias_table),
        )
        for implementation in IMPLEMENTATIONS:
            self.assertAllClose(
                layer(**call, att_implementation=implementation),
                expected,
                rtol=1e-5,
                atol=1e-5,
                msg=implementation,
            )

    def test_without_side_keys(self):
        call = make_call(1, length=9, radius=2)
        call = {k: v for k, v in call.items() if not k.startswith("side")}
        layer = local_attention.QkvRelativeLocalAttention(2, 6)
        full = layer(**call, att_implementation="full")
        for implementation in IMPLEMENTATIONS[1:]:
            self.assertAllClose(
                full, layer(**call, att_implementation=implementation), 1e-5
            )

    def test_gradients_of_all_implementations_are_equal(self):
        call = make_call(6, length=13, radius=3)
        layer = local_attention.QkvRelativeLocalAttention(3, 6)
        layer.build(call["queries"].shape)
        floats = {k: v for k, v in call.items() if v.dtype == tf.float32}
        tables = layer.trainable_variables
        gradients = {}
        for implementation in IMPLEMENTATIONS:
            with (
                streaming_tools_test.chunks_of(1),
                tf.GradientTape() as tape,
            ):
                tape.watch(floats)
                output = layer(**call, att_implementation=implementation)
                loss = tf.reduce_sum(tf.sin(3 * output))
            gradients[implementation] = tape.gradient(
                loss, [*floats.values(), *tables]
            )
        self.assertLen(gradients["full"], 5 + 2)
        for implementation in IMPLEMENTATIONS[1:]:
            for a, b in zip(
                gradients["full"], gradients[implementation], strict=True
            ):
                self.assertAllClose(a, b, 1e-4, 1e-5, msg=implementation)

    def test_descriptions_equal_the_tensors_they_stand_for(self):
        call = make_call(7, length=13, radius=3)
        layer = local_attention.QkvRelativeLocalAttention(3, 6)
        links = [tf.constant([[0, 0, 1, 1, 2, 2, -1] * 2] * 2)[:, :13]]
        described = dict(
            call,
            att_mask=attention_specs.SegmentMask([[1] * 5 + [2] * 8] * 2),
            relative_att_ids=attention_specs.DistanceLabels([1] * 3 + [2] * 4),
            side_att_mask=attention_specs.LongGlobalMask(
                [[1] * 12 + [0], [1] * 13], [[1, 1, 2]] * 2, links
            ),
            side_relative_att_ids=attention_specs.LongGlobalLabels(links, 5, 4),
        )
        position = np.arange(13)
        segment = (position >= 5).astype(int)
        spread = position[:, None] + np.arange(7) - 3
        near = np.pad(segment, 3, constant_values=9)[spread + 3]
        is_linked = np.array(links[0])[..., None] == np.arange(3)
        # The third global token has another id, and one token has none.
        is_allowed = is_linked * [1, 1, 0]
        is_allowed[0, 12] = 0
        spelled_out = dict(
            call,
            att_mask=tf.constant([(near == segment[:, None]).astype(int)] * 2),
            relative_att_ids=tf.constant([[[1] * 3 + [2] * 4] * 13] * 2),
            side_att_mask=tf.constant(is_allowed),
            side_relative_att_ids=tf.constant(np.where(is_linked, 5, 4)),
        )
        expected = layer(**spelled_out, att_implementation="full")
        for implementation in IMPLEMENTATIONS:
            self.assertAllClose(
                expected,
                layer(**described, att_implementation=implementation),
                1e-5,
                1e-5,
                msg=implementation,
            )

    def test_the_band_is_kept_without_a_mask(self):
        length, radius = 6, 1
        layer = local_attention.QkvRelativeLocalAttention(radius)
        zeros = tf.zeros([1, length, 1, 2])
        values = tf.reshape(tf.eye(length), [1, length, 1, length])
        for implementation in IMPLEMENTATIONS:
            probs = layer(
                zeros, zeros, values, att_implementation=implementation
            )[0, :, 0]
            self.assertAllClose(
                probs,
                [
                    [1 / 2, 1 / 2, 0, 0, 0, 0],
                    [1 / 3, 1 / 3, 1 / 3, 0, 0, 0],
                    [0, 1 / 3, 1 / 3, 1 / 3, 0, 0],
                    [0, 0, 1 / 3, 1 / 3, 1 / 3, 0],
                    [0, 0, 0, 1 / 3, 1 / 3, 1 / 3],
                    [0, 0, 0, 0, 1 / 2, 1 / 2],
                ],
            )

    def test_a_query_that_may_attend_to_nothing_gets_zeros(self):
        call = make_call(2, length=7, radius=2)
        hole = tf.constant([1, 1, 0, 1, 1, 1, 1])[None, :, None]
        call["att_mask"] *= hole
        call["side_att_mask"] *= hole
        layer = local_attention.QkvRelativeLocalAttention(2, 6)
        for implementation in IMPLEMENTATIONS:
            output = layer(**call, att_implementation=implementation)
            self.assertAllEqual(output[:, 2], np.zeros([2, 2, 5]))

    def test_auto_looks_at_the_static_length_alone(self):
        layer = local_attention.QkvRelativeLocalAttention(4)
        layer.build((None, None, 1, 2))

        functions = {
            "full": (local_attention, "_squared_attention"),
            "sparse": (local_attention.attention_core, "banded_attention"),
            "streaming": (
                local_attention.streaming_local,
                "streaming_local_attention",
            ),
        }

        def chosen(static_length):
            signature = [tf.TensorSpec([1, static_length, 1, 2])]
            attend = tf.function(
                lambda x: layer(x, x, x), input_signature=signature
            )
            with contextlib.ExitStack() as stack:
                mocks = {
                    name: stack.enter_context(
                        mock.patch.object(
                            *function,
                            side_effect=lambda queries, *_, **__: queries,
                        )
                    )
                    for name, function in functions.items()
                }
                attend.get_concrete_function()
            return [name for name, mocked in mocks.items() if mocked.called]

        longest = local_attention.MAX_AUTO_FULL_LENGTH
        self.assertEqual(["full"], chosen(longest))
        self.assertEqual(["streaming"], chosen(longest + 1))
        self.assertEqual(["streaming"], chosen(None))

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision_takes_float32(self, policy):
        call = make_call(4, length=7, radius=2)
        layer = local_attention.QkvRelativeLocalAttention(2, 6, dtype=policy)
        for implementation in IMPLEMENTATIONS:
            output = layer(**call, att_implementation=implementation)
            self.assertEqual(output.dtype.name, policy[len("mixed_") :])

    @parameterized.parameters(np.int64, np.uint8)
    def test_masks_and_ids_of_any_type(self, dtype):
        call = make_call(5, length=7, radius=2)
        layer = local_attention.QkvRelativeLocalAttention(2, 6)
        other = dict(call, att_mask=tf.cast(call["att_mask"], tf.bool))
        other["relative_att_ids"] = tf.cast(call["relative_att_ids"], dtype)
        for implementation in IMPLEMENTATIONS:
            self.assertAllEqual(
                layer(**other, att_implementation=implementation),
                layer(**call, att_implementation=implementation),
            )

    def test_errors_name_what_is_missing(self):
        call = make_call(3, length=5, radius=2)
        layer = local_attention.QkvRelativeLocalAttention(2, 6)

        def without(*names):
            return {k: v for k, v in call.items() if k not in names}

        with self.assertRaisesRegex(ValueError, "side_values"):
            layer(**without("side_values"))
        with self.assertRaisesRegex(ValueError, "side_att_mask"):
            layer(**without("side_keys", "side_values"))
        with self.assertRaisesRegex(ValueError, "side_relative_att_ids"):
            layer(**without("side_relative_att_ids"))
        with self.assertRaisesRegex(ValueError, "dense.*sparse"):
            layer(**call, att_implementation="dense")
        with self.assertRaisesRegex(ValueError, "2\\*local_radius.*5"):
            layer(**{**call, "att_mask": tf.ones([2, 5, 7], tf.int32)})
        with self.assertRaisesRegex(ValueError, "local_radius"):
            local_attention.QkvRelativeLocalAttention(0)

    @parameterized.parameters(*IMPLEMENTATIONS)
    def test_descriptions_in_the_wrong_place_are_errors(self, implementation):
        call = make_call(3, length=5, radius=2)
        layer = local_attention.QkvRelativeLocalAttention(2, 6)
        ids = [[0] * 5] * 2
        described = dict(
            att_mask=attention_specs.SegmentMask(ids),
            relative_att_ids=attention_specs.DistanceLabels([0] * 5),
            side_att_mask=attention_specs.LongGlobalMask(ids, [[0] * 3] * 2),
            side_relative_att_ids=attention_specs.LongGlobalLabels([ids], 1, 0),
        )
        options = {"att_implementation": implementation}
        layer(**call | described, **options)
        for name in described:
            for other, description in described.items():
                if other != name:
                    wrong = {**call, name: description}
                    with self.assertRaisesRegex(
                        ValueError, type(description).__name__
                    ):
                        layer(**wrong, **options)
        for width in (3, 7):
            wrong = attention_specs.DistanceLabels([0] * width)
            with self.assertRaisesRegex(ValueError, f"5 distances.*{width}"):
                layer(**{**call, "relative_att_ids": wrong}, **options)

    def test_config_round_trip(self):
        layer = local_attention.QkvRelativeLocalAttention(
            3,
            relative_vocab_size=8,
            att_dropout_prob=0.3,
            initializer="ones",
            use_one_hot_lookup=True,
            name="given",
        )
        config = layer.get_config()
        self.assertEqual(config["local_radius"], 3)
        copy = type(layer).from_config(config)
        self.assertEqual(copy.get_config(), config)
        copy.build((None, None, 2, 4))
        self.assertAllEqual(
            np.array(copy.qkv_relative_attention.relative_emb_table),
            np.ones((8, 2, 4)),
        )


if __name__ == "__main__":
    tf.test.main()
