import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import masks
from etcmodel.feature_utils.relative_positions import RelativePositionGenerator
from testing.helpers import digits


def _reference_local_mask(segment_ids, radius):
    batch, length = segment_ids.shape
    mask = np.zeros([batch, length, 2 * radius + 1], np.int32)
    for b, i, k in np.ndindex(mask.shape):
        j = i + k - radius
        if 0 <= j < length:
            mask[b, i, k] = segment_ids[b, i] == segment_ids[b, j]
    return mask


def _reference_segments(breakpoints, starting):
    """Counts the breakpoints before each token.

    With `starting`, includes the token's own breakpoint.
    """
    return [
        [sum(row[: i + starting]) for i in range(len(row))]
        for row in breakpoints
    ]


class MasksTest(tf.test.TestCase, parameterized.TestCase):
    def test_overwrite_outside_segments(self):
        rel_att_ids = RelativePositionGenerator(3).make_relative_att_ids(5, 2)
        overwrite = masks.overwrite_relative_att_ids_outside_segments
        ids = overwrite(
            rel_att_ids,
            segment_ids=[[10, 20, 20, 10, 10], [1, 1, 1, 1, 1]],
            overwrite_value=9,
        )
        self.assertEqual(ids.dtype, tf.int32)
        self.assertAllEqual(ids[0], digits("09933 90199 94099 69901 69940"))
        self.assertAllEqual(ids[1], rel_att_ids[1])
        with self.assertRaisesRegex(ValueError, "segment_ids.*2 dimensions"):
            overwrite(rel_att_ids, [1, 1, 1, 1, 1], 9)
        with self.assertRaisesRegex(ValueError, "rel_att_ids.*3 dimensions"):
            overwrite(rel_att_ids[0], [[1, 1, 1, 1, 1]], 9)

    def test_segments(self):
        for make, ids in (
            (masks.make_att_mask_from_input_mask, [[1, 1, 0], [0, 0, 0]]),
            (masks.make_segmented_att_mask, [[0, 3, 0], [-1, 2, 2]]),
        ):
            mask, ids = make(ids), np.array(ids)
            self.assertEqual(mask.dtype, tf.int32)
            self.assertAllEqual(
                mask, ids[:, :, np.newaxis] == ids[:, np.newaxis]
            )

    def test_more_breakpoints_than_their_type_counts(self):
        # There are 300 segments of one token; a uint8 can only count to 255.
        for dtype in (bool, np.uint8):
            breakpoints = np.ones([1, 300], dtype)
            for starting in (False, True):
                self.assertAllEqual(
                    masks.make_att_mask_from_breakpoints(breakpoints, starting),
                    np.eye(300)[np.newaxis],
                )

    @parameterized.parameters(
        masks.make_att_mask_from_input_mask,
        masks.make_segmented_att_mask,
        masks.make_att_mask_from_breakpoints,
        lambda x: masks.make_local_segmented_att_mask(x, 2),
        lambda x: masks.make_local_att_mask_from_breakpoints(x, 2),
    )
    def test_rank(self, make_mask):
        for value in ([0, 1], [[[0, 1]]]):
            with self.assertRaisesRegex(ValueError, "must have 2 dimensions"):
                make_mask(value)

    @parameterized.parameters(0, -3)
    def test_bad_radius(self, radius):
        with self.assertRaisesRegex(ValueError, "local_radius"):
            masks.make_local_segmented_att_mask([[0, 1]], radius)

    def test_local_examples(self):
        """Uses the examples of the docstrings."""
        self.assertAllEqual(
            masks.make_local_segmented_att_mask([[7, 7, 7, 9, 9]], 2),
            [digits("00111 01110 11100 00110 01100")],
        )
        self.assertAllEqual(
            masks.make_local_att_mask_from_breakpoints(digits("010010"), 1),
            [digits("011 110 011 111 110 010")],
        )

    @parameterized.parameters(
        (1, 1, np.int32),
        (2, 5, np.int64),
        (7, 3, np.float32),
        (13, 12, np.int32),
        (13, 13, np.int32),
    )
    def test_local_matches_definition(self, length, radius, dtype):
        rng = np.random.default_rng(length)
        # A segment may have the id that the function uses for padding.
        segment_ids = rng.integers(-1, 2, [3, length]).astype(dtype)
        mask = masks.make_local_segmented_att_mask(segment_ids, radius)
        self.assertEqual(mask.dtype, tf.int32)
        self.assertAllEqual(mask, _reference_local_mask(segment_ids, radius))

    @parameterized.parameters(False, True)
    def test_breakpoints_match_definition(self, starting):
        breakpoints = np.random.default_rng(1).integers(0, 2, [2, 11])
        segments = np.array(_reference_segments(breakpoints, starting))
        self.assertAllEqual(
            masks.make_att_mask_from_breakpoints(breakpoints, starting),
            segments[:, :, np.newaxis] == segments[:, np.newaxis],
        )
        self.assertAllEqual(
            masks.make_local_att_mask_from_breakpoints(
                breakpoints, 4, use_starting_breakpoints=starting
            ),
            _reference_local_mask(segments, 4),
        )

    def test_compiled_for_any_length(self):
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
            jit_compile=True,
        )
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
            local = masks.make_local_att_mask_from_breakpoints(values, 3)
            self.assertEqual(local.shape.as_list(), [None, 8, 7])
            for make_mask in (
                masks.make_att_mask_from_input_mask,
                masks.make_att_mask_from_breakpoints,
            ):
                full = make_mask(values)
                self.assertEqual(full.shape.as_list(), [None, 8, 8])

        make.get_concrete_function()


if __name__ == "__main__":
    tf.test.main()
