from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel import inner_jit
from etcmodel.layers import attention_core
from etcmodel.layers import streaming_labels
from etcmodel.layers import streaming_tools
from etcmodel.layers import streaming_tools_test as shared

BATCH, HEADS, SIZE, VOCAB = 2, 3, 4, 6


def make_labels(rng, use_one_hot_lookup=False):
    return attention_core.RelativeLabels(
        tf.constant(rng.standard_normal((VOCAB, HEADS, SIZE))),
        tf.constant(rng.standard_normal((VOCAB, HEADS))),
        use_one_hot_lookup,
    )


def label_scores(label, chosen, num_keys):
    """What labels add to the scores, from what a scorer returns for a piece."""
    raw = tf.zeros([*label.shape[:3], num_keys], label.dtype)
    piece = streaming_tools.Piece(raw, label=label, chosen=chosen)
    return streaming_tools.scores(piece)


def sums_by_label(d_scores, ids, num_labels):
    """What each query's scores with a label have for gradients, in sum.

    Args:
        d_scores: `<float>[batch, heads, queries, keys]`.
        ids: `<int>[batch or 1, queries, keys]`.
        num_labels: number of labels.

    Returns:
        `<float>[batch, heads, queries, num_labels]`.
    """
    return np.stack(
        [
            np.sum(d_scores * (ids == label)[:, np.newaxis], axis=-1)
            for label in range(num_labels)
        ],
        axis=-1,
    )


class BandLabelsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        pattern=[
            [5, 5, 5, 1, 2, 3, 3],
            [0, 1, 2, 3, 4],
            [2, 2, 2, 2, 2],
            [1, 1, 0],
            [0, 1, 1],
            [4, 3, 4],
            [4, 4, 3, 4, 4],
        ],
        block_len=[3, 5],
        with_ids=[None, "gather", "one_hot"],
    )
    def test_windows(self, pattern, block_len, with_ids):
        rng = np.random.default_rng(0)
        width = len(pattern)
        queries, window = 2 * block_len, block_len + width - 1
        labels = make_labels(rng, with_ids == "one_hot")
        spec = attention_specs.DistanceLabels(pattern)
        given = spec
        if with_ids:
            given = spec.to_band(BATCH, queries)
        scorer = streaming_labels.band_labels(given, labels)
        ids = scorer.band_tensors(block_len)
        # Scores that each query has with each label.
        of_label = rng.standard_normal((BATCH, HEADS, queries, VOCAB))
        chosen = range(VOCAB) if with_ids else scorer.columns
        label, picked = scorer.to_windows(
            tf.constant(of_label[..., chosen]), ids, block_len, window
        )
        windows = label_scores(label, picked, window)
        d_windows = np.zeros((BATCH, HEADS, queries, window))
        expected = np.zeros((BATCH, HEADS, queries, VOCAB))
        for i in range(queries):
            start = i % block_len
            band = slice(start, start + width)
            self.assertAllClose(
                windows[:, :, i, band], of_label[:, :, i, pattern], rtol=1e-12
            )
            upstream = rng.standard_normal((BATCH, HEADS, width))
            d_windows[:, :, i, band] = upstream
            for k, label in enumerate(pattern):
                expected[:, :, i, label] += upstream[..., k]
        d_columns = scorer.to_windows_gradient(
            tf.constant(d_windows), ids, picked, block_len
        ).numpy()
        # A label may have several columns.
        gradient = np.zeros((BATCH, HEADS, queries, VOCAB))
        for column, label in enumerate(chosen):
            gradient[..., label] += d_columns[..., column]
        self.assertAllClose(gradient, expected, rtol=1e-12)

    def test_none(self):
        self.assertIsNone(streaming_labels.band_labels(None, None))
        self.assertIsNone(streaming_labels.pair_labels(None, None))


class PairLabelsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        use_one_hot_lookup=[False, True],
        min_compiled=[0, 2**18],
        most_selected=[VOCAB - 1, VOCAB],
    )
    def test_ids(self, use_one_hot_lookup, min_compiled, most_selected):
        rng = np.random.default_rng(1)
        ids = rng.integers(VOCAB, size=(BATCH, 5, 7))
        scorer = streaming_labels.pair_labels(
            ids, make_labels(rng, use_one_hot_lookup)
        )
        given = scorer.long_tensors()
        columns = rng.standard_normal((BATCH, HEADS, 5, VOCAB))
        expected = np.take_along_axis(columns, ids[:, np.newaxis], axis=-1)
        d_scores = rng.standard_normal((BATCH, HEADS, 5, 7))
        with (
            mock.patch.object(inner_jit, "MIN_ELEMENTS", min_compiled),
            mock.patch.object(streaming_tools, "MOST_SELECTED", most_selected),
        ):
            label, chosen = scorer.lookup(tf.constant(columns), given)
            scores = label_scores(label, chosen, 7)
            gradient = scorer.lookup_gradient(
                tf.constant(d_scores), given, chosen
            )
        self.assertAllClose(scores, expected, rtol=1e-12)
        self.assertAllClose(
            gradient, sums_by_label(d_scores, ids, VOCAB), rtol=1e-12
        )

    def test_links(self):
        rng = np.random.default_rng(2)
        spec = attention_specs.LongGlobalLabels(
            [tf.constant([[0, 2, -1]] * BATCH)], linked=4, not_linked=1
        )
        linked = [[True, False, False], [False, False, True], [False] * 3]
        scorer = streaming_labels.pair_labels(spec, make_labels(rng))
        given = scorer.long_tensors()
        self.assertEqual(scorer.columns, [1, 4])
        columns = tf.constant(rng.standard_normal((BATCH, HEADS, 3, 2)))
        d_scores = rng.standard_normal((BATCH, HEADS, 3, 3))
        for of_global in (False, True):
            label, chosen = scorer.lookup(columns, given, 3, of_global)
            index = np.array([linked]).astype(int)
            if of_global:
                index = index.transpose(0, 2, 1)
            self.assertAllEqual(chosen, [index] * BATCH)
            self.assertAllClose(
                label_scores(label, chosen, 3),
                np.take_along_axis(columns.numpy(), index[np.newaxis], axis=-1),
                rtol=1e-12,
            )
            self.assertAllClose(
                scorer.lookup_gradient(tf.constant(d_scores), given, chosen),
                sums_by_label(d_scores, index, 2),
                rtol=1e-12,
            )

    def test_one_hot_lookup_needs_no_scatter(self):
        rng = np.random.default_rng(3)
        ids = tf.constant(rng.integers(VOCAB, size=(BATCH, 5, 7)))
        labels = make_labels(rng, use_one_hot_lookup=True)

        @tf.function
        def lookup_and_gradient(columns, d_scores):
            scorer = streaming_labels.pair_labels(ids, labels)
            given = scorer.long_tensors()
            label, chosen = scorer.lookup(columns, given)
            self.assertIsNone(chosen)
            return label, scorer.lookup_gradient(d_scores, given, chosen)

        concrete = lookup_and_gradient.get_concrete_function(
            tf.TensorSpec([BATCH, HEADS, 5, VOCAB]),
            tf.TensorSpec([BATCH, HEADS, 5, 7]),
        )
        for operation in shared.all_operations(concrete.graph):
            self.assertNotRegex(operation.type, "Gather|Scatter|Segment")


class ColumnsTest(tf.test.TestCase):
    def test_select(self):
        rng = np.random.default_rng(4)
        labels = make_labels(rng)
        pattern = [3, 3, 0, 5, 3]
        scorer = streaming_labels.band_labels(
            attention_specs.DistanceLabels(pattern), labels
        )
        self.assertEqual(scorer.columns, [3, 0, 5, 3])
        tables = [labels.emb_table, labels.bias_table]
        with tf.GradientTape() as tape:
            tape.watch(tables)
            selected = streaming_labels.select(scorer, labels)
            total = sum(map(tf.reduce_sum, selected))
        for table, chosen, gradient in zip(
            tables, selected, tape.gradient(total, tables), strict=True
        ):
            self.assertAllClose(chosen, np.array(table)[[3, 0, 5, 3]])
            # How often each label was selected.
            for label, times in enumerate([1, 0, 0, 2, 0, 1]):
                self.assertAllClose(
                    gradient[label], np.full(gradient.shape[1:], times)
                )

    def test_all_labels_are_the_columns_of_ids(self):
        rng = np.random.default_rng(5)
        labels = make_labels(rng)
        scorer = streaming_labels.pair_labels(
            tf.zeros([1, 2, 3], tf.int64), labels
        )
        table, bias = streaming_labels.select(scorer, labels)
        self.assertAllEqual(table, labels.emb_table)
        self.assertAllEqual(bias, labels.bias_table)

    def test_products_and_gradients(self):
        rng = np.random.default_rng(6)
        labels = make_labels(rng)
        queries = tf.constant(rng.standard_normal((BATCH, HEADS, 5, SIZE)))
        scale = 0.5
        d_columns = tf.constant(rng.standard_normal((BATCH, HEADS, 5, VOCAB)))
        inputs = [queries, labels.emb_table, labels.bias_table]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            expected = tf.einsum("bhqd,rhd->bhqr", queries, labels.emb_table)
            expected += scale * tf.transpose(labels.bias_table)[:, None]
        columns = streaming_labels.Columns(
            labels.emb_table, labels.bias_table, scale
        )
        self.assertAllClose(columns.products(queries), expected, rtol=1e-12)
        for actual, gradient in zip(
            columns.gradients(d_columns, queries),
            tape.gradient(expected, inputs, d_columns),
            strict=True,
        ):
            self.assertAllClose(actual, gradient, rtol=1e-12)


if __name__ == "__main__":
    tf.test.main()
