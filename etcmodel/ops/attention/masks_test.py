"""Tests masks and labels; see also `feature_utils/side_inputs_test.py`."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import attention


def _rows(text):
    """Converts `"011 110"` to `[[0, 1, 1], [1, 1, 0]]`."""
    return [[int(char) for char in row] for row in text.split()]


class BandTest(tf.test.TestCase, parameterized.TestCase):
    def test_segment_mask(self):
        ids = np.array(_rows("779 777"), np.uint8)
        band = attention.SegmentMask(ids).to_band(1)
        self.assertEqual(band.dtype, tf.bool)
        expected = [_rows("011 110 010"), _rows("011 111 110")]
        self.assertAllEqual(tf.cast(band, tf.int32), expected)

    def test_distance_labels(self):
        labels = attention.DistanceLabels(np.array([2, 0, 1], np.int8))
        self.assertEqual(labels.pattern, (2, 0, 1))
        self.assertIs(type(labels.pattern[0]), int)
        band = labels.to_band(2, 4)
        self.assertEqual(band.dtype, tf.int32)
        self.assertAllEqual(band, [[[2, 0, 1]] * 4] * 2)

    @parameterized.parameters(
        ([5, 5, 5, 1, 2, 3, 3], 3, [5, 1, 2, 3], 2),
        # No two neighbours are equal.
        ([4, 3, 0, 1, 2], 1, [4, 3, 0, 1, 2], 1),
        # Only runs at the ends are merged, not those in the middle.
        ([1, 0, 0, 0, 2], 1, [1, 0, 0, 0, 2], 1),
        ([1, 0, 1], 1, [1, 0, 1], 1),
        # Two runs with no middle between them.
        ([4, 4, 4, 2, 2], 3, [4, 2], 2),
        ([4, 2, 2], 1, [4, 2], 2),
    )
    def test_runs(self, pattern, lead, columns, trail):
        runs = attention.DistanceLabels(pattern).runs()
        self.assertEqual(runs, (lead, columns, trail))

    def test_runs_of_one_label(self):
        for pattern in ([7, 7, 7], [7] * 9):
            labels = attention.DistanceLabels(pattern)
            lead, columns, trail = labels.runs()
            self.assertEqual(
                lead * columns[:1] + columns[1:-1] + trail * columns[-1:],
                pattern,
            )

    @parameterized.parameters(0, 1, 2, 4)
    def test_pattern_of_a_wrong_length(self, length):
        with self.assertRaisesRegex(ValueError, rf"has {length}\.$"):
            attention.DistanceLabels(range(length))


class LongGlobalTest(tf.test.TestCase, parameterized.TestCase):
    def test_examples(self):
        """Checks the examples of the docstrings."""
        mask = attention.LongGlobalMask(
            long_ids=[[1, 1, 0]], global_ids=[[1, 1]], links=[[[0, 1, 1]]]
        ).to_tensor()
        self.assertEqual(mask.dtype, tf.bool)
        self.assertAllEqual(tf.cast(mask, tf.int32), [_rows("10 01 00")])
        labels = attention.LongGlobalLabels(
            [[[0, 1, -1]]], linked=np.int64(8), not_linked=7
        ).to_tensor(2)
        self.assertEqual(labels.dtype, tf.int32)
        self.assertAllEqual(labels, [_rows("87 78 77")])
        labels = attention.LongGlobalLabels(
            [[[0, 1, -1]], [[0, 0, -1]]], linked=[8, 9], not_linked=7
        )
        self.assertEqual(labels.columns, [7, 8, 9])
        self.assertEqual(labels.to_tensor(2).dtype, tf.int32)
        self.assertAllEqual(labels.to_tensor(2), [_rows("97 98 77")])

    @parameterized.product(
        num_links=[None, 1, 2], exempt=["", "long", "global", "long global"]
    )
    def test_definition(self, num_links, exempt):
        """Checks whole masks and parts, in eager mode and in compiled code."""
        rng = np.random.default_rng(0)
        long_ids, global_ids = (rng.integers(0, 3, [2, n]) for n in (9, 4))
        is_linked = True
        if num_links:
            # Indices out of range link nothing.
            links = rng.integers(-2, 6, [num_links, 2, 9])
            # [links, batch, long, global]
            named = links[..., np.newaxis] == np.arange(4)
            is_linked = named.any(axis=0)
        exempts = {
            f"exempt_{name}": rng.integers(0, 2, [2, {"long": 9}.get(name, 4)])
            for name in exempt.split()
        }
        for name, value in exempts.items():
            axis = 2 if name == "exempt_long" else 1
            is_linked = is_linked | (np.expand_dims(value, axis) == 1)
        # Exempt tokens still need an equal id.
        expected = long_ids[:, :, np.newaxis] == global_ids[:, np.newaxis]
        expected &= is_linked
        inputs = dict(
            long_ids=long_ids,
            global_ids=global_ids.astype(np.int32),
            **{name: value.astype(bool) for name, value in exempts.items()},
        )
        if num_links:
            inputs["links"] = [*links]
        mask = attention.LongGlobalMask(
            **tf.nest.map_structure(tf.constant, inputs | exempts)
        )
        self.assertAllEqual(mask.to_tensor(), expected)
        tensors = mask.long_tensors()
        self.assertLen(tensors, 1 + (num_links or 0) + ("long" in exempt))
        parts = [
            mask.part([x[:, start : start + 5] for x in tensors])
            for start in (0, 5)
        ]
        self.assertAllEqual(tf.concat(parts, 1), expected)
        tensors = tf.nest.map_structure(tf.constant, inputs)
        make = tf.function(
            lambda inputs: attention.LongGlobalMask(**inputs).to_tensor(),
            input_signature=[
                tf.nest.map_structure(
                    lambda x: tf.TensorSpec([None, None], x.dtype), tensors
                )
            ],
            jit_compile=True,
        )
        self.assertAllEqual(make(tensors), expected)
        if num_links:
            labels = attention.LongGlobalLabels([*links], 2, 1)
            expected = named.any(axis=0)
            self.assertAllEqual(labels.to_tensor(4), 1 + expected)
            part = labels.part([x[:, 3:6] for x in labels.long_tensors()], 4)
            self.assertAllEqual(part, expected[:, 3:6])

    @parameterized.parameters(
        # Labels of the links, and the expected columns.
        ([8, 9, 8], [7, 8, 9]),
        ([9, 8, 6], [7, 9, 8, 6]),
        # A link may have the label of unlinked pairs.
        ([8, 8, 7], [7, 8, 7]),
        ([8, 8, 8], [7, 8]),
        (8, [7, 8]),
    )
    def test_labels_of_links(self, linked, columns):
        rng = np.random.default_rng(1)
        links = rng.integers(-1, 5, [3, 2, 9])
        spec = attention.LongGlobalLabels([*links], linked, 7)
        self.assertEqual(spec.columns, columns)
        expected = np.full([2, 9, 4], 7)
        for i, label in enumerate(np.broadcast_to(linked, 3)):
            for b, j in np.ndindex(2, 9):
                if 0 <= links[i, b, j] < 4:
                    expected[b, j, links[i, b, j]] = label
        self.assertAllEqual(spec.to_tensor(4), expected)
        part = spec.part([x[:, 3:6] for x in spec.long_tensors()], 4)
        is_bool = len(columns) == 2
        self.assertEqual(part.dtype, tf.bool if is_bool else tf.int32)
        self.assertAllEqual(
            np.take(columns, tf.cast(part, tf.int32)), expected[:, 3:6]
        )

    def test_no_links(self):
        with self.assertRaisesRegex(ValueError, "links needs at least one"):
            attention.LongGlobalLabels([], 8, 7)
        with self.assertRaisesRegex(ValueError, "for each of the 2 links"):
            attention.LongGlobalLabels([[[0]], [[1]]], [8, 9, 8], 7)


if __name__ == "__main__":
    tf.test.main()
