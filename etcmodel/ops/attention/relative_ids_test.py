import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import relative_ids
from etcmodel.ops.attention import softmax
from testing import attention_cases as testing

BATCH, HEADS, SIZE, VOCAB = 2, 3, 4, 6


def make_table(rng, use_one_hot_lookup=False):
    return attention.LabelTable(
        tf.constant(rng.standard_normal((VOCAB, HEADS, SIZE))),
        tf.constant(rng.standard_normal((VOCAB, HEADS))),
        use_one_hot_lookup,
    )


def scores(label, chosen, num_keys):
    """Computes label scores from the result of a lookup."""
    products = tf.zeros([*label.shape[:3], num_keys], label.dtype)
    return softmax._scores(products, None, label, chosen)


class BandLabelsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        pattern=[
            [5, 5, 5, 1, 2, 3, 3],
            [0, 1, 2, 3, 4],
            [2, 2, 2, 2, 2],
            [1, 1, 0],
            [4, 4, 3, 4, 4],
        ],
        block_len=[3, 5],
        with_ids=[None, "gather", "one_hot"],
    )
    def test_windows(self, pattern, block_len, with_ids):
        rng = np.random.default_rng(0)
        width = len(pattern)
        queries = 2 * block_len
        table = make_table(rng, with_ids == "one_hot")
        given = attention.DistanceLabels(pattern)
        if with_ids:
            given = given.to_band(BATCH, queries)
        band_labels = relative_ids.band_labels(given, table)
        with testing.chunks_of(1, block_len):
            windows = blocks.Windows(width // 2)
        rows, others = band_labels.band_tensors(windows, tf.float64)
        # The score of each query with each label.
        of_label = rng.standard_normal((BATCH, HEADS, queries, VOCAB))
        columns = range(VOCAB) if with_ids else band_labels.columns
        label, chosen = band_labels.to_windows(
            tf.constant(of_label[..., columns]), rows, others, windows
        )
        found = scores(label, chosen, windows.window)
        for i in range(queries):
            start = i % windows.block_len
            self.assertAllClose(
                found[:, :, i, start : start + width],
                of_label[:, :, i, pattern],
                rtol=1e-12,
            )


class PairLabelsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        linked=[2, (2, 5, 2), (5, 3, 1)], of_global=[False, True]
    )
    def test_links(self, linked, of_global):
        rng = np.random.default_rng(2)
        # [links, batch, long]; the last link that matches a pair counts.
        links = rng.integers(-1, 5, size=(3, BATCH, 7))
        ids = np.full((BATCH, 7, 4), 4)
        for link, label in zip(links, np.broadcast_to(linked, 3), strict=True):
            ids[link[..., np.newaxis] == np.arange(4)] = label
        spec = attention.LongGlobalLabels([*links], linked, 4)
        self.assertAllEqual(ids, spec.to_tensor(4))
        if of_global:
            ids = np.swapaxes(ids, 1, 2)
        # The score of each query with each label.
        of_label = rng.standard_normal((BATCH, HEADS, len(ids[0]), VOCAB))
        label, chosen = spec.lookup(
            tf.constant(of_label[..., spec.columns]),
            spec.long_tensors(),
            4,
            of_global,
        )
        self.assertEqual(chosen.dtype, tf.bool if linked == 2 else tf.int32)
        self.assertAllClose(
            scores(label, chosen, ids.shape[2]),
            np.take_along_axis(of_label, ids[:, np.newaxis], axis=-1),
            rtol=1e-12,
        )

    def test_products(self):
        rng = np.random.default_rng(3)
        table = make_table(rng)
        spec = attention.LongGlobalLabels([[[0]]], 5, 2)
        queries = rng.standard_normal((BATCH, HEADS, 7, SIZE))
        expected = (
            np.einsum("bhqs,chs->bhqc", queries, table.vectors)
            + np.transpose(table.biases)[:, np.newaxis] / 2
        )
        self.assertAllClose(
            expected[..., [2, 5]],
            spec.products(tf.constant(queries), *spec.select(table)),
        )

    def test_products_of_one_head(self):
        """Checks that many queries of one head do not crash oneDNN."""
        rng = np.random.default_rng(3)
        queries, vectors, biases = (
            tf.constant(rng.standard_normal(shape), tf.float32)
            for shape in ([2, 1, 516, 64], [25, 1, 64], [25, 1])
        )
        spec = attention.LongGlobalLabels([[[0]]], 5, 2)
        with tf.GradientTape() as tape:
            tape.watch([queries, vectors])
            products = spec.products(queries, vectors, biases)
        expected = np.einsum("bhqs,chs->bhqc", queries, vectors) + (
            np.transpose(biases)[:, np.newaxis] / 8
        )
        self.assertAllClose(expected, products, 1e-4, 1e-4)
        d_queries, d_vectors = tape.gradient(products, [queries, vectors])
        ones = np.ones_like(expected)
        self.assertAllClose(
            np.einsum("bhqc,chs->bhqs", ones, vectors), d_queries, 1e-4, 1e-4
        )
        self.assertAllClose(
            np.einsum("bhqc,bhqs->chs", ones, queries), d_vectors, 1e-3, 1e-3
        )

    def test_none(self):
        self.assertIsNone(relative_ids.band_labels(None, None))
        self.assertIsNone(relative_ids.pair_labels(None, None))


if __name__ == "__main__":
    tf.test.main()
