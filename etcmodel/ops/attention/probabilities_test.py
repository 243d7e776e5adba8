"""Tests of the attention probabilities for inspection."""

import dataclasses
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention
from etcmodel.ops.attention import probabilities
from testing import attention_cases as testing

CHOSEN = (None, [0, 12, 1, 5, 5], [[0, 12], [11, 1]])


def reference_probabilities(cases, case):
    """Computes `<float64>[batch, from, heads, to]` by the paper's equations."""
    floats = dict(case.floats)
    total = sum(floats[f"{piece}keys"].shape[1] for piece in cases.PIECES)
    start = 0
    for piece in cases.PIECES:
        batch, length = floats[f"{piece}keys"].shape[:2]
        # With one-hot values, the outputs are the probabilities.
        one_hot = np.eye(total)[start : start + length]
        floats[f"{piece}values"] = np.broadcast_to(
            one_hot[np.newaxis, :, np.newaxis],
            (batch, length, testing.HEADS, total),
        )
        start += length
    return cases.oracle(dataclasses.replace(case, floats=floats))


def band_of_square(square, radius):
    """Gathers `[..., i, i + k - radius]` as `[..., i, k]`, 0 outside."""
    length = square.shape[-1]
    band = np.zeros((*square.shape[:-1], 2 * radius + 1))
    for i in range(length):
        for k in range(2 * radius + 1):
            if 0 <= i + k - radius < length:
                band[..., i, k] = square[..., i, i + k - radius]
    return band


def rows_of(array, positions):
    """Gathers some queries' rows of `[batch, heads, from, to]`."""
    if positions is None:
        return array
    positions = np.broadcast_to(
        positions, (len(array), np.shape(positions)[-1])
    )
    return np.stack([x[:, i] for x, i in zip(array, positions, strict=True)])


def keys_of(case, piece, dtype=tf.float64):
    return attention.Keys(
        tf.cast(case.floats[f"{piece}keys"], dtype),
        tf.cast(case.floats[f"{piece}values"], dtype),
        case.given.get(f"{piece}att_mask"),
        case.given.get(f"{piece}relative_att_ids"),
        piece,
    )


def arguments_of(cases, case, dtype=tf.float64):
    """Returns the queries, both groups of keys, and the label table."""
    floats = case.floats
    table = attention.LabelTable(
        *(tf.cast(floats[x], dtype) for x in ("emb_table", "bias_table"))
    )
    queries = tf.cast(floats["queries"], dtype)
    return [queries, *(keys_of(case, x, dtype) for x in cases.PIECES)], table


class LongScoresTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(with_specs=(False, True, (3, 4)), positions=CHOSEN)
    def test_equal_the_probabilities_of_the_paper(self, with_specs, positions):
        cases = testing.LongCases()
        rng = np.random.default_rng(1)
        case = cases.make_case(rng, *cases.SMALL, with_specs=with_specs)
        probs = np.swapaxes(reference_probabilities(cases, case), 1, 2)
        length = probs.shape[2]
        arguments, table = arguments_of(cases, case)
        band, others = attention.long_scores(
            *arguments, cases.radius, table, positions
        )
        expected = band_of_square(probs[..., :length], cases.radius)
        self.assertEqual(band.dtype, tf.float64)
        self.assertAllClose(
            band, rows_of(expected, positions), rtol=1e-9, atol=1e-9
        )
        self.assertAllClose(
            others,
            rows_of(probs[..., length:], positions),
            rtol=1e-9,
            atol=1e-9,
        )
        if not with_specs:
            # Every fourth query has no keys; its probabilities are 0.
            total = np.sum(band, -1) + np.sum(others, -1)
            empty = np.zeros((2, testing.HEADS, length), bool)
            empty[..., 1::4] = True
            empty = rows_of(empty[..., np.newaxis], positions)[..., 0]
            self.assertAllEqual(total[empty], np.zeros(empty.sum()))

    def test_without_others_and_labels(self):
        ones = tf.ones([1, 2, 1, 1])
        keys = attention.Keys(ones, ones)
        third = 1 / 3
        band, others = attention.long_scores(ones, keys, None, 1)
        self.assertIsNone(others)
        self.assertAllClose(band, [[[[0, 0.5, 0.5], [0.5, 0.5, 0]]]])
        one = attention.Keys(ones[:, :1], ones[:, :1])
        band, others = attention.long_scores(
            ones, keys, one, 1, query_positions=[1]
        )
        self.assertAllClose(band, [[[[third, third, 0]]]])
        self.assertAllClose(others, [[[[third]]]])

    def test_masks_and_labels_for_all_examples(self):
        cases = testing.LongCases()
        case = cases.make_case(np.random.default_rng(3), *cases.SMALL)
        for name, array in case.given.items():
            case.given[name] = array[:1]
            case.arrays[name][:] = array[:1]
        probs = np.swapaxes(reference_probabilities(cases, case), 1, 2)
        arguments, table = arguments_of(cases, case)
        for positions in ([3, 4], [[3, 4], [5, 0]]):
            _, others = attention.long_scores(
                *arguments, cases.radius, table, positions
            )
            self.assertAllClose(
                others, rows_of(probs[..., -3:], positions), atol=1e-9
            )

    def test_checks(self):
        ones = tf.ones([1, 2, 1, 1])
        keys = attention.Keys(ones, ones, tf.ones([1, 2, 2]))
        with self.assertRaisesRegex(ValueError, "att_mask must have the shape"):
            attention.long_scores(ones, keys, None, 1)

    def test_query_position_out_of_range(self):
        ones = tf.ones([1, 2, 1, 1])
        keys = attention.Keys(ones, ones)
        for positions in ([0, 2], [[-1]], tf.constant([3, 1])):
            for scores_of in (
                lambda x: attention.long_scores(ones, keys, None, 1, None, x),
                lambda x: attention.global_scores(ones, keys, keys, None, x),
            ):
                with self.assertRaisesRegex(ValueError, "number of queries, 2"):
                    scores_of(positions)


class GlobalScoresTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        with_specs=(False, True, (3, 4)),
        positions=(None, [2, 0], [[0, 1, 2], [2, 1, 1]]),
        chunk_len=(4, 512),
    )
    def test_equal_the_probabilities_of_the_paper(
        self, with_specs, positions, chunk_len
    ):
        cases = testing.GlobalCases()
        rng = np.random.default_rng(1)
        case = cases.make_case(rng, *cases.SMALL, with_specs=with_specs)
        probs = np.swapaxes(reference_probabilities(cases, case), 1, 2)
        global_len = probs.shape[2]
        arguments, table = arguments_of(cases, case)
        with mock.patch.object(probabilities, "CHUNK_LEN", chunk_len):
            own, long = attention.global_scores(*arguments, table, positions)
        self.assertAllClose(
            own,
            rows_of(probs[..., :global_len], positions),
            rtol=1e-9,
            atol=1e-9,
        )
        self.assertAllClose(
            long,
            rows_of(probs[..., global_len:], positions),
            rtol=1e-9,
            atol=1e-9,
        )


class DenseScoresTest(tf.test.TestCase):
    def test_equal_the_probabilities_of_the_paper(self):
        rng = np.random.default_rng(1)
        inputs = testing.make_inputs(rng, 2, 5, 4, 2)
        tables = testing.make_tables(rng)
        given = [inputs[f"side_{x}"] for x in ("att_mask", "relative_att_ids")]
        one_hot = np.tile(np.eye(4)[:, np.newaxis], [2, 1, testing.HEADS, 1])
        expected = testing.reference_attention(
            inputs["queries"], inputs["side_keys"], one_hot, *given, *tables
        )
        probs = attention.dense_scores(
            tf.constant(inputs["queries"]),
            attention.Keys(inputs["side_keys"], inputs["side_values"], *given),
            attention.LabelTable(*map(tf.constant, tables)),
        )
        self.assertAllClose(probs, np.swapaxes(expected, 1, 2), atol=1e-9)


class MemoryTest(tf.test.TestCase):
    def test_computes_only_the_selected_rows(self):
        length, global_len, heads, radius = 4096, 256, 2, 64
        rng = np.random.default_rng(1)

        def random_ids(*shape):
            return tf.constant(rng.integers(4, size=shape), tf.int32)

        sides = [random_ids(1, length), random_ids(1, global_len)]
        links = [random_ids(1, length)]
        mask = attention.LongGlobalMask(*sides, links)
        labels = attention.LongGlobalLabels(links, [3], 2)

        @tf.function
        def run(long, others, table, bias):
            table = attention.LabelTable(table, bias)
            near = attention.Keys(
                long,
                long,
                attention.SegmentMask(sides[0]),
                attention.DistanceLabels([1] * (2 * radius + 1)),
            )
            of_long = attention.long_scores(
                long,
                near,
                attention.Keys(others, others, mask, labels),
                radius,
                table,
                [0, 2000, 4095],
            )
            of_global = attention.global_scores(
                others,
                attention.Keys(
                    others, others, None, random_ids(1, global_len, global_len)
                ),
                attention.Keys(long, long, mask, labels),
                table,
                [5, 255],
            )
            return [*of_long, *of_global]

        graph = run.get_concrete_function(
            *(
                tf.TensorSpec(shape)
                for shape in (
                    (1, length, heads, 8),
                    (1, global_len, heads, 8),
                    (4, heads, 8),
                    (4, heads),
                )
            )
        ).graph
        operations = testing.all_operations(graph)
        self.assertLess(
            testing.largest_size(operations, tf.float32), length * heads * 50
        )
        # No mask or label tensor has all pairs, either.
        for dtype in (tf.bool, tf.int32):
            self.assertLess(
                testing.largest_size(operations, dtype), length * global_len
            )


if __name__ == "__main__":
    tf.test.main()
