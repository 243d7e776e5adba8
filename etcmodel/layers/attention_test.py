import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import attention
from etcmodel.layers import attention_reference


def hand_case():
    """One head of size 4: two queries, three keys, three labels."""
    queries = tf.reshape(
        tf.constant([[1.0, 0, 0, 0], [0, 2, 0, 0]]), [1, 2, 1, 4]
    )
    keys = tf.reshape(
        tf.constant([[1.0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]]), [1, 3, 1, 4]
    )
    values = tf.reshape(tf.constant([1.0, 2, 3]), [1, 3, 1, 1])
    emb_table = np.reshape(
        [[0.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], [3, 1, 4]
    )
    bias_table = np.reshape([0, 0.5, -0.5], [3, 1])
    return queries, keys, values, emb_table, bias_table


class ProjectAttentionHeadsTest(tf.test.TestCase):
    def test_splits_the_projection_into_heads(self):
        layer = attention.ProjectAttentionHeads(num_heads=2, size_per_head=3)
        inputs = tf.constant(
            np.random.default_rng(0).random((4, 5, 7)), tf.float32
        )
        outputs = layer(inputs)
        self.assertEqual(outputs.shape, [4, 5, 2, 3])
        kernel = np.array(layer.linear.kernel)
        expected = np.array(inputs) @ kernel
        self.assertAllClose(outputs[..., 0, :], expected[..., :3])
        self.assertAllClose(outputs[..., 1, :], expected[..., 3:])

    def test_sizes_below_1_are_errors(self):
        with self.assertRaisesRegex(ValueError, "num_heads"):
            attention.ProjectAttentionHeads(0, 3)
        with self.assertRaisesRegex(ValueError, "size_per_head"):
            attention.ProjectAttentionHeads(3, 0)


class QkvRelativeAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_hand_computed_case_with_labels_and_mask(self, use_one_hot_lookup):
        queries, keys, values, emb_table, bias_table = hand_case()
        layer = attention.QkvRelativeAttention(
            relative_vocab_size=3, use_one_hot_lookup=use_one_hot_lookup
        )
        layer.build(queries.shape)
        layer.set_weights([emb_table, bias_table])
        output = layer(
            queries,
            keys,
            values,
            att_mask=tf.constant([[[1, 1, 0], [1, 1, 1]]]),
            relative_att_ids=tf.constant([[[0, 1, 2], [2, 0, 1]]]),
        )
        # Probabilities .437823 .562177 0 and .254275 .326496 .419229.
        self.assertAllClose(
            tf.reshape(output, [-1]), [1.562177, 2.164954], atol=1e-6
        )

    def test_hand_computed_case_without_labels_and_mask(self):
        queries, keys, _, _, _ = hand_case()
        layer = attention.QkvRelativeAttention()
        # One-hot values make the output the probabilities.
        values = tf.reshape(tf.eye(3), [1, 3, 1, 3])
        self.assertAllClose(
            layer(queries, keys, values)[0, :, 0],
            [
                [0.383652, 0.232697, 0.383652],
                [0.155362, 0.422319, 0.422319],
            ],
            atol=1e-6,
        )

    def test_a_query_that_may_attend_to_nothing_gets_zeros(self):
        queries, keys, values, _, _ = hand_case()
        output = attention.QkvRelativeAttention()(
            queries,
            keys,
            values,
            att_mask=tf.constant([[[0, 0, 0], [1, 1, 1]]]),
        )
        self.assertAllEqual(output[0, 0], [[0.0]])
        self.assertNotEqual(output[0, 1], 0.0)

    def test_tables_have_the_documented_shapes_and_starts(self):
        layer = attention.QkvRelativeAttention(relative_vocab_size=50)
        layer.build((None, None, 4, 16))
        self.assertEqual(tuple(layer.relative_emb_table.shape), (50, 4, 16))
        self.assertEqual(tuple(layer.relative_bias_table.shape), (50, 4))
        self.assertAllEqual(
            np.array(layer.relative_bias_table), np.zeros((50, 4))
        )
        # A normal of deviation 0.5 cut at two deviations has one of 0.44.
        table = np.array(layer.relative_emb_table)
        self.assertBetween(np.std(table), 0.40, 0.48)
        self.assertLessEqual(np.max(np.abs(table)), 1.0)

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision_takes_float32(self, policy):
        queries, keys, values, emb_table, bias_table = hand_case()
        layer = attention.QkvRelativeAttention(3, dtype=policy)
        layer.build(queries.shape)
        layer.set_weights([emb_table, bias_table])
        output = layer(
            queries,
            keys,
            values,
            att_mask=tf.constant([[[1, 1, 0], [1, 1, 1]]]),
            relative_att_ids=tf.constant([[[0, 1, 2], [2, 0, 1]]]),
        )
        self.assertEqual(output.dtype.name, policy[len("mixed_") :])
        self.assertAllClose(
            tf.reshape(tf.cast(output, tf.float32), [-1]),
            [1.562177, 2.164954],
            rtol=1e-2,
        )

    def test_ids_without_labels_are_an_error(self):
        queries, keys, values, _, _ = hand_case()
        with self.assertRaisesRegex(ValueError, "relative_vocab_size"):
            attention.QkvRelativeAttention()(
                queries,
                keys,
                values,
                relative_att_ids=tf.zeros([1, 2, 3], tf.int32),
            )
        with self.assertRaisesRegex(ValueError, "relative_vocab_size"):
            attention.QkvRelativeAttention(relative_vocab_size=0)

    def test_dropout_zeroes_and_rescales_probabilities_in_training(self):
        layer = attention.QkvRelativeAttention(att_dropout_prob=0.25)
        queries = tf.zeros([1, 64, 2, 4])
        keys = tf.zeros([1, 16, 2, 4])
        values = tf.tile(tf.reshape(tf.eye(16), [1, 16, 1, 16]), [1, 1, 2, 1])
        probs = np.array(layer(queries, keys, values, training=True))
        kept = probs != 0
        self.assertBetween(kept.mean(), 0.70, 0.80)
        self.assertAllClose(probs[kept], np.full(kept.sum(), 1 / 16 / 0.75))
        again = np.array(layer(queries, keys, values, training=True))
        self.assertNotAllEqual(probs, again)
        self.assertAllClose(
            layer(queries, keys, values, training=False),
            np.full((1, 64, 2, 16), 1 / 16),
        )


class RelativeAttentionTest(parameterized.TestCase, tf.test.TestCase):
    def reference(self, layer, from_seq, to_seq, mask, ids):
        """The layer's output, computed from its weights in NumPy."""

        def project(projection, x):
            kernel = np.array(projection.linear.kernel, np.float64)
            flat = np.array(x) @ kernel + np.array(projection.linear.bias)
            return flat.reshape(
                *x.shape[:-1], projection.num_heads, projection.size_per_head
            )

        attended = attention_reference.reference_attention(
            project(layer.query_projection, from_seq),
            project(layer.key_projection, to_seq),
            project(layer.value_projection, to_seq),
            mask,
            ids,
            np.array(layer.qkv_relative_attention.relative_emb_table),
            np.array(layer.qkv_relative_attention.relative_bias_table),
        )
        attended = attended.reshape(*attended.shape[:2], -1)
        dense = layer.output_projection
        return attended @ np.array(dense.kernel) + np.array(dense.bias)

    def test_equals_the_reference_at_odd_sizes(self):
        rng = np.random.default_rng(0)
        layer = attention.RelativeAttention(
            hidden_size=11,
            num_heads=5,
            total_key_size=10,
            total_value_size=15,
            relative_vocab_size=4,
        )
        from_seq = tf.constant(rng.standard_normal((2, 6, 12)), tf.float32)
        to_seq = tf.constant(rng.standard_normal((2, 8, 13)), tf.float32)
        mask = tf.constant(rng.integers(2, size=(2, 6, 8)), tf.int32)
        ids = tf.constant(rng.integers(4, size=(2, 6, 8)), tf.int32)
        output = layer(
            from_seq, to_seq=to_seq, att_mask=mask, relative_att_ids=ids
        )
        self.assertEqual(output.shape, [2, 6, 11])
        # A weight that is not zero at the start makes the test see it.
        layer.qkv_relative_attention.relative_bias_table.assign(
            rng.standard_normal((4, 5))
        )
        output = layer(
            from_seq, to_seq=to_seq, att_mask=mask, relative_att_ids=ids
        )
        self.assertAllClose(
            output,
            self.reference(layer, from_seq, to_seq, mask, ids),
            rtol=1e-5,
            atol=1e-5,
        )

    def test_equals_keras_multi_head_attention(self):
        rng = np.random.default_rng(1)
        layer = attention.RelativeAttention(hidden_size=12, num_heads=3)
        inputs = tf.constant(rng.standard_normal((2, 7, 12)), tf.float32)
        mask = tf.constant(rng.integers(2, size=(2, 7, 7)), tf.int32)
        # Every query sees itself: Keras falls back to what is masked.
        mask = tf.maximum(mask, tf.eye(7, dtype=tf.int32))
        output = layer(inputs, att_mask=mask)
        standard = tf.keras.layers.MultiHeadAttention(num_heads=3, key_dim=4)
        standard(inputs, inputs)
        weights = []
        for projection in (
            layer.query_projection,
            layer.key_projection,
            layer.value_projection,
        ):
            weights.append(np.reshape(projection.linear.kernel, [12, 3, 4]))
            weights.append(np.reshape(projection.linear.bias, [3, 4]))
        dense = layer.output_projection
        weights.append(np.reshape(dense.kernel, [3, 4, 12]))
        weights.append(np.array(dense.bias))
        standard.set_weights(weights)
        self.assertAllClose(
            output,
            standard(inputs, inputs, attention_mask=mask > 0),
            rtol=1e-5,
            atol=1e-5,
        )

    def test_given_sublayers_are_shared(self):
        rng = np.random.default_rng(2)
        inputs = tf.constant(rng.standard_normal((2, 4, 6)), tf.float32)
        one = attention.RelativeAttention(6, 2, relative_vocab_size=3)
        ids = tf.constant(rng.integers(3, size=(2, 4, 4)), tf.int32)
        expected = one(inputs, relative_att_ids=ids)
        other = attention.RelativeAttention(
            6,
            2,
            query_projection=one.query_projection,
            key_projection=one.key_projection,
            value_projection=one.value_projection,
            qkv_relative_attention=one.qkv_relative_attention,
            output_projection=one.output_projection,
        )
        self.assertAllEqual(other(inputs, relative_att_ids=ids), expected)
        copy = attention.RelativeAttention.from_config(other.get_config())
        copy(inputs, relative_att_ids=ids)
        copy.set_weights(other.get_weights())
        self.assertAllEqual(copy(inputs, relative_att_ids=ids), expected)

    def test_total_sizes_must_divide_by_the_heads(self):
        with self.assertRaisesRegex(ValueError, "total_key_size"):
            attention.RelativeAttention(12, 5, total_value_size=10)
        with self.assertRaisesRegex(ValueError, "total_value_size"):
            attention.RelativeAttention(12, 4, total_value_size=10)


class ConfigTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (
            attention.ProjectAttentionHeads,
            dict(
                num_heads=2, size_per_head=3, use_bias=False, initializer="ones"
            ),
        ),
        (
            attention.QkvRelativeAttention,
            dict(
                relative_vocab_size=7,
                att_dropout_prob=0.2,
                initializer=tf.keras.initializers.RandomNormal(stddev=0.1),
                use_one_hot_lookup=True,
            ),
        ),
        (
            attention.RelativeAttention,
            dict(
                hidden_size=8,
                num_heads=2,
                total_key_size=4,
                total_value_size=6,
                relative_vocab_size=7,
                att_dropout_prob=0.2,
                use_one_hot_lookup=True,
                dtype="mixed_bfloat16",
            ),
        ),
    )
    def test_round_trip(self, layer_class, arguments):
        layer = layer_class(name="given", **arguments)
        config = layer.get_config()
        copy = layer_class.from_config(config)
        self.assertEqual(copy.get_config(), config)
        self.assertEqual(config["name"], "given")
        for name, value in arguments.items():
            if name not in ("initializer", "dtype"):
                self.assertEqual(config[name], value, name)


if __name__ == "__main__":
    tf.test.main()
