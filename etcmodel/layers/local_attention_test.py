from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import attention_reference
from etcmodel.layers import local_attention


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


class QkvRelativeLocalAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        # Blocks of 16 cut 64 evenly, blocks of 17 and 36 do not.
        radius=[15, 16, 35],
        use_one_hot_lookup=[False, True],
    )
    def test_sparse_equals_full_equals_the_reference(
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
        for implementation in ("sparse", "full", "auto"):
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
        sparse = layer(**call, att_implementation="sparse")
        self.assertAllClose(
            sparse, layer(**call, att_implementation="full"), atol=1e-6
        )

    def test_the_band_is_kept_without_a_mask(self):
        length, radius = 6, 1
        layer = local_attention.QkvRelativeLocalAttention(radius)
        zeros = tf.zeros([1, length, 1, 2])
        values = tf.reshape(tf.eye(length), [1, length, 1, length])
        for implementation in ("sparse", "full"):
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
        for implementation in ("sparse", "full"):
            output = layer(**call, att_implementation=implementation)
            self.assertAllEqual(output[:, 2], np.zeros([2, 2, 5]))

    def test_auto_looks_at_the_static_length_alone(self):
        layer = local_attention.QkvRelativeLocalAttention(4)
        layer.build((None, None, 1, 2))

        def uses_blocks(static_length):
            signature = [tf.TensorSpec([1, static_length, 1, 2])]
            attend = tf.function(
                lambda x: layer(x, x, x), input_signature=signature
            )
            with mock.patch.object(
                local_attention.attention_core,
                "banded_attention",
                side_effect=lambda queries, *_, **__: queries,
            ) as banded_attention:
                attend.get_concrete_function()
            return banded_attention.called

        self.assertFalse(uses_blocks(1024))
        self.assertTrue(uses_blocks(1025))
        self.assertTrue(uses_blocks(None))

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision_takes_float32(self, policy):
        call = make_call(4, length=7, radius=2)
        layer = local_attention.QkvRelativeLocalAttention(2, 6, dtype=policy)
        for implementation in ("sparse", "full"):
            output = layer(**call, att_implementation=implementation)
            self.assertEqual(output.dtype.name, policy[len("mixed_") :])

    @parameterized.parameters(np.int64, np.uint8)
    def test_masks_and_ids_of_any_type(self, dtype):
        call = make_call(5, length=7, radius=2)
        layer = local_attention.QkvRelativeLocalAttention(2, 6)
        other = dict(call, att_mask=tf.cast(call["att_mask"], tf.bool))
        other["relative_att_ids"] = tf.cast(call["relative_att_ids"], dtype)
        for implementation in ("sparse", "full"):
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
