import numpy as np
import tensorflow as tf

from etcmodel.layers import relative_attention
from testing import layer_checks
from testing import references


class QkvRelativeAttentionTest(tf.test.TestCase):
    def test_tables_have_the_documented_shapes_and_starts(self):
        layer = relative_attention.QkvRelativeAttention(relative_vocab_size=50)
        layer.build((None, None, 4, 16))
        self.assertEqual(tuple(layer.relative_emb_table.shape), (50, 4, 16))
        self.assertEqual(tuple(layer.relative_bias_table.shape), (50, 4))
        self.assertAllEqual(
            np.array(layer.relative_bias_table), np.zeros((50, 4))
        )
        # A normal distribution with standard deviation 0.5, truncated at two
        # deviations, has standard deviation 0.44.
        table = np.array(layer.relative_emb_table)
        self.assertBetween(np.std(table), 0.40, 0.48)
        self.assertLessEqual(np.max(np.abs(table)), 1.0)

    def test_dropout_of_the_probabilities_in_training(self):
        layer = relative_attention.QkvRelativeAttention(att_dropout_prob=0.25)
        # Equal scores and one-hot values: the output is the probabilities.
        queries, keys = tf.zeros([1, 64, 2, 4]), tf.zeros([1, 16, 2, 4])
        values = tf.repeat(tf.eye(16)[np.newaxis, :, np.newaxis], 2, axis=2)
        layer_checks.check_dropout(
            self,
            lambda training: layer(queries, keys, values, training=training),
        )


class RelativeAttentionTest(tf.test.TestCase):
    def test_equals_the_reference_at_odd_sizes(self):
        rng = np.random.default_rng(0)
        layer = relative_attention.RelativeAttention(
            hidden_size=11,
            num_heads=5,
            total_key_size=10,
            total_value_size=15,
            relative_vocab_size=4,
            dtype="float64",
        )
        from_seq = rng.standard_normal((2, 6, 12))
        to_seq = rng.standard_normal((2, 8, 13))
        mask = rng.integers(2, size=(2, 6, 8))
        ids = rng.integers(4, size=(2, 6, 8))
        call = dict(to_seq=to_seq, att_mask=mask, relative_att_ids=ids)
        layer(from_seq, **call)
        layer_checks.randomize(layer)
        expected = references.relative_attention(layer, from_seq, **call)
        self.assertAllClose(layer(from_seq, **call), expected, 1e-9, 1e-9)

    def test_build_makes_all_weights(self):
        layer = relative_attention.RelativeAttention(
            6, 2, relative_vocab_size=3
        )
        layer.build((None, None, 6))
        # Four projections with biases, and two tables of labels.
        self.assertLen(layer.weights, 10)

    def test_given_sublayers_are_shared(self):
        rng = np.random.default_rng(2)
        inputs = tf.constant(rng.standard_normal((2, 4, 6)), tf.float32)
        one = relative_attention.RelativeAttention(6, 2, relative_vocab_size=3)
        ids = tf.constant(rng.integers(3, size=(2, 4, 4)), tf.int32)
        expected = one(inputs, relative_att_ids=ids)
        other = relative_attention.RelativeAttention(
            6,
            2,
            query_projection=one.query_projection,
            key_projection=one.key_projection,
            value_projection=one.value_projection,
            qkv_relative_attention=one.qkv_relative_attention,
            output_projection=one.output_projection,
        )
        self.assertAllEqual(other(inputs, relative_att_ids=ids), expected)


class ErrorsTest(tf.test.TestCase):
    def test_messages_name_the_argument(self):
        heads = tf.ones([1, 2, 1, 4])
        ids = tf.zeros([1, 2, 2], tf.int32)
        of_pairs, of_rows = (
            relative_attention.QkvRelativeAttention,
            relative_attention.RelativeAttention,
        )
        for message, make in (
            (
                "num_heads",
                lambda: relative_attention.ProjectAttentionHeads(0, 3),
            ),
            (
                "size_per_head",
                lambda: relative_attention.ProjectAttentionHeads(3, 0),
            ),
            ("relative_vocab_size", lambda: of_pairs(relative_vocab_size=0)),
            (
                "relative_vocab_size",
                lambda: of_pairs()(heads, heads, heads, relative_att_ids=ids),
            ),
            ("total_key_size", lambda: of_rows(12, 5, total_value_size=10)),
            ("total_value_size", lambda: of_rows(12, 4, total_value_size=10)),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make()


if __name__ == "__main__":
    tf.test.main()
