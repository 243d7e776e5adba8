import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops.attention import full
from testing import attention_cases as testing
from testing.attention_cases import HEADS
from testing.attention_cases import SIZE
from testing.attention_cases import VALUE_SIZE
from testing.attention_cases import VOCAB


def attend(queries, keys, values, mask=None, ids=None, table=None):
    keys = attention.Keys(keys, values, mask, ids)
    return full.dense_attention(queries, [keys], table)


class BandTest(tf.test.TestCase):
    def test_band_to_square(self):
        band = tf.constant([[[1, 2, 3], [4, 5, 6], [7, 8, 9]]])
        self.assertAllEqual(
            full.band_to_square(band, 1),
            [[[2, 3, 0], [4, 5, 6], [0, 7, 8]]],
        )


class DenseAttentionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_equals_the_reference(self, use_one_hot_lookup):
        rng = np.random.default_rng(0)
        queries = rng.standard_normal((2, 7, HEADS, SIZE))
        keys = rng.standard_normal((2, 9, HEADS, SIZE))
        values = rng.standard_normal((2, 9, HEADS, VALUE_SIZE))
        mask = rng.integers(2, size=(2, 7, 9), dtype=np.int32)
        mask[0, 3] = 0
        ids = rng.integers(VOCAB, size=(2, 7, 9), dtype=np.int32)
        emb_table, bias_table = testing.make_tables(rng)
        # Labels beyond the table add nothing.
        ids[:, 2, :4] = [[-1, VOCAB, -7, 1000]]
        output = attend(
            *(tf.constant(x) for x in (queries, keys, values)),
            mask,
            ids,
            attention.LabelTable(
                tf.constant(emb_table),
                tf.constant(bias_table),
                use_one_hot_lookup,
            ),
        )
        is_label = (ids >= 0) & (ids < VOCAB)
        ids = np.where(is_label, ids, VOCAB)
        emb_table = np.concatenate([emb_table, 0 * emb_table[:1]])
        bias_table = np.concatenate([bias_table, 0 * bias_table[:1]])
        self.assertAllEqual(output[0, 3], np.zeros((HEADS, VALUE_SIZE)))
        self.assertAllClose(
            output,
            testing.reference_attention(
                queries, keys, values, mask, ids, emb_table, bias_table
            ),
            rtol=1e-9,
            atol=1e-12,
        )

    def test_pieces_have_independent_dropout(self):
        # Each of 40 keys in two pieces has probability 1/40 and its own value.
        queries = tf.zeros([1, 30, 1, 2])
        values = tf.reshape(tf.eye(40), [1, 40, 1, 40])
        pieces = [
            attention.Keys(tf.ones([1, 20, 1, 2]), part)
            for part in tf.split(values, 2, axis=1)
        ]
        dropout = attention.Dropout(0.75, tf.constant([1, 2]))
        output = full.dense_attention(queries, pieces, dropout=dropout)
        kept = output[0, :, 0].numpy() > 0
        self.assertAllClose(output[0, :, 0], kept * (1 / 40 / 0.25))
        first, second = np.split(kept, 2, axis=1)
        # Three standard deviations of 600 draws are 0.053.
        self.assertBetween(first.mean(), 0.19, 0.31)
        self.assertBetween(second.mean(), 0.19, 0.31)
        # Two independent masks both keep a pair with probability 1/16.
        self.assertBetween((first & second).mean(), 0.03, 0.1)

    def test_no_keys_at_all_gives_zeros(self):
        output = attend(
            tf.ones([1, 3, 1, 2]), tf.ones([1, 0, 1, 2]), tf.ones([1, 0, 1, 2])
        )
        self.assertAllEqual(output, tf.zeros([1, 3, 1, 2]))

    def test_masked_pairs_get_no_weight_however_high_their_score(self):
        # Adding -10,000 would not mask a score of 10^6.
        queries = tf.constant([[[[1e3]]]])
        keys = tf.constant([[[[1e3]], [[0.0]]]])
        values = tf.constant([[[[1.0]], [[2.0]]]])
        output = attend(queries, keys, values, mask=[[[0, 1]]])
        self.assertAllEqual(output, [[[[2.0]]]])

    def test_half_precision_does_not_overflow(self):
        # q.k is 90,000 before scaling: more than float16 holds.
        queries = tf.fill([1, 1, 1, 900], tf.constant(10, tf.float16))
        keys = tf.concat([queries, -queries], axis=1)
        values = tf.constant([[[[1.0]], [[2.0]]]], tf.float16)
        output = attend(queries, keys, values)
        self.assertEqual(output.dtype, tf.float16)
        self.assertAllEqual(output, [[[[1.0]]]])


if __name__ == "__main__":
    tf.test.main()
