from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel import attention_specs
from etcmodel import inner_jit
from etcmodel.layers import attention_core
from etcmodel.layers import streaming_labels
from etcmodel.layers import streaming_tools

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
        # [batch, 1, queries, keys, labels]
        has_label = (ids[..., np.newaxis] == np.arange(VOCAB))[:, np.newaxis]
        expected = np.sum(d_scores[..., np.newaxis] * has_label, axis=-2)
        self.assertAllClose(gradient, expected, rtol=1e-12)

    @parameterized.product(linked=[2, (2, 5, 2), (5, 3, 1)], of_global=[0, 1])
    def test_links(self, linked, of_global):
        rng = np.random.default_rng(2)
        # [links, batch, long], the last link of a pair counts.
        links = rng.integers(-1, 5, size=(3, BATCH, 7))
        ids = np.full((BATCH, 7, 4), 4)
        for link, label in zip(links, np.broadcast_to(linked, 3), strict=True):
            ids[link[..., np.newaxis] == np.arange(4)] = label
        spec = attention_specs.LongGlobalLabels([*links], linked, 4)
        scorer = streaming_labels.pair_labels(spec, make_labels(rng))
        if of_global:
            ids = np.swapaxes(ids, 1, 2)
        # Scores that each query has with each label.
        of_label = rng.standard_normal((BATCH, HEADS, len(ids[0]), VOCAB))
        label, chosen = scorer.lookup(
            tf.constant(of_label[..., scorer.columns]),
            scorer.long_tensors(),
            4,
            bool(of_global),
        )
        self.assertEqual(chosen.dtype, tf.bool if linked == 2 else tf.int32)
        self.assertAllClose(
            label_scores(label, chosen, ids.shape[2]),
            np.take_along_axis(of_label, ids[:, np.newaxis], axis=-1),
            rtol=1e-12,
        )
        d_scores = rng.standard_normal((BATCH, HEADS, *ids.shape[1:]))
        gradient = scorer.lookup_gradient(
            tf.constant(d_scores), scorer.long_tensors(), chosen
        )
        # [batch, 1, queries, keys, columns]
        has_label = (ids[..., np.newaxis] == scorer.columns)[:, np.newaxis]
        expected = np.sum(d_scores[..., np.newaxis] * has_label, axis=-2)
        self.assertAllClose(gradient, expected, rtol=1e-12)


if __name__ == "__main__":
    tf.test.main()
