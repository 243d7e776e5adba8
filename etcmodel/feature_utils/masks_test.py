import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import masks
from etcmodel.feature_utils.relative_positions import RelativePositionGenerator


def _rows(text):
    """`"011 110"` -> `[[0, 1, 1], [1, 1, 0]]`."""
    return [[int(char) for char in row] for row in text.split()]


def _reference_local_mask(segment_ids, radius):
    batch, length = segment_ids.shape
    mask = np.zeros([batch, length, 2 * radius + 1], np.int32)
    for b in range(batch):
        for i in range(length):
            for k in range(2 * radius + 1):
                j = i + k - radius
                if 0 <= j < length:
                    mask[b, i, k] = segment_ids[b, i] == segment_ids[b, j]
    return mask


def _reference_segments(breakpoints, starting):
    segments = np.zeros_like(breakpoints)
    for b in range(breakpoints.shape[0]):
        segment = 0
        for i in range(breakpoints.shape[1]):
            if starting and breakpoints[b, i]:
                segment += 1
            segments[b, i] = segment
            if not starting and breakpoints[b, i]:
                segment += 1
    return segments


class FullMasksTest(tf.test.TestCase, parameterized.TestCase):
    def test_overwrite_outside_segments(self):
        rel_att_ids = RelativePositionGenerator(3).make_relative_att_ids(5, 2)
        ids = masks.overwrite_relative_att_ids_outside_segments(
            rel_att_ids,
            segment_ids=[[10, 20, 20, 10, 10], [1, 1, 1, 1, 1]],
            overwrite_value=100,
        )
        self.assertEqual(ids.dtype, tf.int32)
        self.assertAllEqual(
            ids[0],
            [
                [0, 100, 100, 3, 3],
                [100, 0, 1, 100, 100],
                [100, 4, 0, 100, 100],
                [6, 100, 100, 0, 1],
                [6, 100, 100, 4, 0],
            ],
        )
        self.assertAllEqual(ids[1], rel_att_ids[1])

    def test_overwrite_needs_batched_inputs(self):
        labels = RelativePositionGenerator(3).make_relative_att_ids(2)
        overwrite = masks.overwrite_relative_att_ids_outside_segments
        with self.assertRaisesRegex(ValueError, "segment_ids.*2 dimensions"):
            overwrite(labels, [1, 1], 9)
        with self.assertRaisesRegex(ValueError, "rel_att_ids.*3 dimensions"):
            overwrite(labels[0], [[1, 1]], 9)

    def test_input_mask(self):
        mask = masks.make_att_mask_from_input_mask(
            [[1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
        )
        self.assertEqual(mask.dtype, tf.int32)
        self.assertAllEqual(
            mask[0], _rows("111000 111000 111000 000111 000111 000111")
        )
        self.assertAllEqual(mask[1], np.ones([6, 6]))

    def test_segmented(self):
        mask = masks.make_segmented_att_mask(
            [[0, 0, 3, 0, 3, 0], [-1, -1, 0, 0, 1, 2]]
        )
        self.assertEqual(mask.dtype, tf.int32)
        self.assertAllEqual(
            mask[0], _rows("110101 110101 001010 110101 001010 110101")
        )
        self.assertAllEqual(
            mask[1], _rows("110000 110000 001100 001100 000010 000001")
        )

    @parameterized.parameters(
        ("010100", False, "001122"),
        ("100001", False, "011111"),
        ("100001", True, "000001"),
        ("010010", False, "001112"),
        ("010010", True, "011122"),
        ("000000", False, "000000"),
    )
    def test_breakpoints(self, breakpoints, starting, segments):
        (segments,) = np.array(_rows(segments))
        mask = masks.make_att_mask_from_breakpoints(
            _rows(breakpoints), use_starting_breakpoints=starting
        )
        self.assertAllEqual(mask, [segments[:, None] == segments[None, :]])

    def test_more_breakpoints_than_their_type_counts(self):
        # 300 segments of one token; a uint8 counts to 255.
        for dtype in (bool, np.uint8):
            breakpoints = np.ones([1, 300], dtype)
            for starting in (False, True):
                self.assertAllEqual(
                    masks.make_att_mask_from_breakpoints(breakpoints, starting),
                    np.eye(300)[np.newaxis],
                )
                self.assertAllEqual(
                    masks.make_local_att_mask_from_breakpoints(
                        breakpoints, 1, starting
                    ),
                    [[[0, 1, 0]] * 300],
                )

    def test_breakpoints_batch(self):
        rng = np.random.default_rng(0)
        breakpoints = rng.integers(0, 2, [3, 9])
        for starting in (False, True):
            segments = _reference_segments(breakpoints, starting)
            self.assertAllEqual(
                masks.make_att_mask_from_breakpoints(breakpoints, starting),
                segments[:, :, None] == segments[:, None, :],
            )

    @parameterized.parameters(
        masks.make_att_mask_from_input_mask,
        masks.make_segmented_att_mask,
        masks.make_att_mask_from_breakpoints,
    )
    def test_rank(self, make_mask):
        with self.assertRaisesRegex(ValueError, "must have 2 dimensions"):
            make_mask([0, 1])
        with self.assertRaisesRegex(ValueError, "must have 2 dimensions"):
            make_mask([[[0, 1]]])


class LocalMasksTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (
            "00101011",
            2,
            "00110 01101 00101 10101 10101 10100 10110 01100",
        ),
        ("77799", 2, "00111 01110 11100 00110 01100"),
        ("01", 3, "0001000 0001000"),
        ("00", 3, "0001100 0011000"),
        ("0", 1, "010"),
    )
    def test_segmented(self, segment_ids, radius, rows):
        mask = masks.make_local_segmented_att_mask(_rows(segment_ids), radius)
        self.assertEqual(mask.dtype, tf.int32)
        self.assertAllEqual(mask, [_rows(rows)])

    def test_ids_that_look_like_padding_do_not_match_it(self):
        for value in (-1, 0, 1):
            mask = masks.make_local_segmented_att_mask([[value] * 3], 2)
            self.assertAllEqual(mask, [_rows("00111 01110 11100")])

    @parameterized.parameters(
        (1, 1, np.int32),
        (2, 5, np.int64),
        (6, 2, np.int32),
        (7, 3, np.float32),
        (9, 3, np.int32),
        (10, 3, np.int64),
        (13, 12, np.int32),
        (13, 13, np.int32),
    )
    def test_matches_definition(self, length, radius, dtype):
        rng = np.random.default_rng(length)
        segment_ids = rng.integers(-1, 2, [3, length]).astype(dtype)
        mask = masks.make_local_segmented_att_mask(segment_ids, radius)
        self.assertEqual(mask.dtype, tf.int32)
        self.assertAllEqual(mask, _reference_local_mask(segment_ids, radius))

    @parameterized.parameters(
        (
            "10011001",
            2,
            "00100 00111 01110 11100 00100 00111 01110 11100",
        ),
        ("010010", 1, "011 110 011 111 110 010"),
    )
    def test_breakpoints(self, breakpoints, radius, rows):
        mask = masks.make_local_att_mask_from_breakpoints(
            _rows(breakpoints), radius
        )
        self.assertEqual(mask.dtype, tf.int32)
        self.assertAllEqual(mask, [_rows(rows)])

    @parameterized.parameters(False, True)
    def test_breakpoints_match_definition(self, starting):
        breakpoints = np.random.default_rng(1).integers(0, 2, [2, 11])
        self.assertAllEqual(
            masks.make_local_att_mask_from_breakpoints(
                breakpoints, 4, use_starting_breakpoints=starting
            ),
            _reference_local_mask(
                _reference_segments(breakpoints, starting), 4
            ),
        )

    @parameterized.parameters(0, -3)
    def test_bad_radius(self, radius):
        with self.assertRaisesRegex(ValueError, "local_radius"):
            masks.make_local_segmented_att_mask([[0, 1]], radius)
        with self.assertRaisesRegex(ValueError, "local_radius"):
            masks.make_local_att_mask_from_breakpoints([[0, 1]], radius)

    def test_bad_rank(self):
        with self.assertRaisesRegex(ValueError, "must have 2 dimensions"):
            masks.make_local_segmented_att_mask([0, 1], 2)
        with self.assertRaisesRegex(ValueError, "must have 2 dimensions"):
            masks.make_local_att_mask_from_breakpoints([0, 1], 2)

    def test_lengths_known_in_the_graph_only(self):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
        def make(segment_ids):
            mask = masks.make_local_segmented_att_mask(segment_ids, 3)
            self.assertEqual(mask.shape.as_list(), [None, None, 7])
            return mask

        rng = np.random.default_rng(2)
        for shape in [(2, 1), (1, 7), (3, 9), (0, 5)]:
            segment_ids = rng.integers(0, 3, shape)
            self.assertAllEqual(
                make(tf.constant(segment_ids, tf.int32)),
                _reference_local_mask(segment_ids, 3),
            )

    def test_known_sizes_stay_static(self):
        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.int32)])
        def make(values):
            local = masks.make_local_segmented_att_mask(values, 3)
            self.assertEqual(local.shape.as_list(), [None, 8, 7])
            local = masks.make_local_att_mask_from_breakpoints(values, 3)
            self.assertEqual(local.shape.as_list(), [None, 8, 7])
            for make_mask in (
                masks.make_att_mask_from_input_mask,
                masks.make_segmented_att_mask,
                masks.make_att_mask_from_breakpoints,
            ):
                self.assertEqual(
                    make_mask(values).shape.as_list(), [None, 8, 8]
                )
            return local

        self.assertEqual(make(tf.zeros([2, 8], tf.int32)).shape, [2, 8, 7])

    def test_compiles(self):
        segment_ids = tf.constant([[0, 0, 1, 1, 1]])
        make = tf.function(
            masks.make_local_segmented_att_mask, jit_compile=True
        )
        self.assertAllEqual(
            make(segment_ids, local_radius=2),
            _reference_local_mask(segment_ids.numpy(), 2),
        )


if __name__ == "__main__":
    tf.test.main()
