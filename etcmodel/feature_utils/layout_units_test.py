"""Tests of `layout_units`: what is kept when the budget is full."""

import heapq
import random

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import layout_units
from etcmodel.feature_utils.layout_units import Budget
from etcmodel.feature_utils.layout_units import Costs

# Every unit has a global token, tokens are long.
COSTS = Costs(token_long=1, token_global=0, segment_global=1, group_global=1)
PLENTY = 10**6


def flatten(lengths):
    """Units of segments of the given lengths, [batch, groups, segments]."""
    content = [[[[0] * n for n in group] for group in row] for row in lengths]
    return layout_units.flatten(
        tf.ragged.constant(content, ragged_rank=3, dtype=tf.int32)
    )


def budget(long, global_=PLENTY, segments=None, batch=1):
    fill = lambda x: tf.fill([batch], tf.constant(x, tf.int64))  # noqa: E731
    return Budget(fill(long), fill(global_), segments)


def max_heap(lengths, max_segments, max_tokens, max_globals):
    """The description's algorithm: how many segments each group keeps."""
    kept = [len(group) for group in lengths]
    heap = [(-n, i, i) for i, n in enumerate(kept)]
    heapq.heapify(heap)
    pushed = len(heap)
    while (
        sum(kept) > max_segments
        or sum(sum(g[:n]) for g, n in zip(lengths, kept, strict=True))
        > max_tokens
        or sum(kept) + len(kept) > max_globals
    ):
        _, _, i = heapq.heappop(heap)
        kept[i] -= 1
        heapq.heappush(heap, (-kept[i], pushed, i))
        pushed += 1
    return kept


class LayoutUnitsTest(tf.test.TestCase, parameterized.TestCase):
    def test_sums(self):
        self.assertAllEqual(layout_units.cumulative([2, 0, 3]), [0, 2, 2, 5])
        self.assertAllEqual(layout_units.cumulative([]), [0])
        self.assertAllEqual(
            layout_units.sum_rows([2, 0, 3], [0, 2, 2, 3]), [2, 0, 3]
        )

    def _groups(self, units, kept):
        """Kept segments of each group of a single record."""
        return layout_units.sum_rows(kept.segments, units.segment_splits)

    def test_balanced_worked_example(self):
        units = flatten([[[1] * 4, [1] * 2, [1] * 4]])
        kept = layout_units.cut_balanced(
            units, COSTS, budget(PLENTY, segments=7)
        )
        self.assertAllEqual(self._groups(units, kept), [2, 2, 3])

    @parameterized.parameters(
        # Removals 0, 2, 0, 1, 2: one by one.
        (10, [4, 2, 4]),
        (9, [3, 2, 4]),
        (8, [3, 2, 3]),
        (7, [2, 2, 3]),
        (6, [2, 2, 2]),
        (5, [2, 1, 2]),
        (4, [1, 1, 2]),
        (3, [1, 1, 1]),
        (2, [1, 0, 1]),
        (1, [0, 0, 1]),
        (0, [0, 0, 0]),
    )
    def test_balanced_order(self, tokens, expected):
        """Groups equal in size since longer ago go first."""
        units = flatten([[[1] * 4, [1] * 2, [1] * 4]])
        kept = layout_units.cut_balanced(units, COSTS, budget(tokens))
        self.assertAllEqual(self._groups(units, kept), expected)

    def test_balanced_against_a_heap(self):
        rng = random.Random(0)
        spec = tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3)
        vector = tf.TensorSpec([None], tf.int64)

        def cut(content, long, global_, segments):
            units = layout_units.flatten(content)
            kept = layout_units.cut_balanced(
                units, COSTS, Budget(long, global_, segments)
            )
            return layout_units.sum_rows(kept.segments, units.segment_splits)

        cut = tf.function(
            cut,
            input_signature=[
                spec,
                vector,
                vector,
                tf.TensorSpec([], tf.int64),
            ],
        )
        for _ in range(60):
            batch = rng.randint(1, 3)
            lengths = [
                [
                    [rng.randint(0, 4) for _ in range(rng.randint(0, 8))]
                    for _ in range(rng.randint(0, 6))
                ]
                for _ in range(batch)
            ]
            content = [
                [[[0] * n for n in group] for group in row] for row in lengths
            ]
            # At least 4, the longest segment, so none is cropped; and room
            # for every group with one segment.
            longs = [rng.randint(4, 50) for _ in range(batch)]
            globals_ = [rng.randint(12, 40) for _ in range(batch)]
            segments = rng.randint(0, 25)
            kept = cut(
                tf.ragged.constant(content, ragged_rank=3, dtype=tf.int32),
                longs,
                globals_,
                segments,
            )
            expected = []
            for row, long, global_ in zip(
                lengths, longs, globals_, strict=True
            ):
                expected += max_heap(row, segments, long, global_)
            self.assertAllEqual(kept, expected, f"{lengths} {longs}")

    def test_balanced_when_not_even_groups_fit(self):
        # Room for two groups with a segment each, the second of which has
        # none, so there is room for another segment of the first.
        units = flatten([[[1, 1, 1], [], [1]]])
        kept = layout_units.cut_balanced(units, COSTS, budget(9, global_=4))
        self.assertAllEqual(kept.groups, [True, True, False])
        self.assertAllEqual(kept.segments, [True, True, False, False])
        self.assertAllEqual(kept.lengths, [1, 1, 0, 0])
        kept = layout_units.cut_balanced(units, COSTS, budget(9, global_=1))
        self.assertAllEqual(kept.groups, [False] * 3)

    def test_balanced_crops_what_is_alone_too_long(self):
        units = flatten([[[50]]])
        kept = layout_units.cut_balanced(units, COSTS, budget(9))
        self.assertAllEqual(kept.lengths, [9])

    @parameterized.parameters(
        (5, PLENTY, None, [3, 0, 1], [True, True, True]),
        (8, PLENTY, None, [3, 4, 1], [True, True, True]),
        (2, PLENTY, None, [0, 0, 1], [True, True, True]),
        (20, PLENTY, 2, [3, 4, 0], [True, True, True]),
        # Three groups and three segments: six global tokens.
        (20, 5, None, [3, 4, 0], [True, True, True]),
        (20, 4, None, [3, 4, 0], [True, True, False]),
        (20, 3, None, [3, 0, 0], [True, True, False]),
        # A group's token takes a place, whether or not its segment fits.
        (5, 4, None, [3, 0, 0], [True, True, True]),
    )
    def test_fit(self, long, global_, segments, expected, groups):
        units = flatten([[[3], [4], [1]]])
        kept = layout_units.cut_fit(
            units, COSTS, budget(long, global_, segments)
        )
        self.assertAllEqual(kept.lengths, expected)
        self.assertAllEqual(kept.segments, [n > 0 for n in expected])
        self.assertAllEqual(kept.groups, groups)

    @parameterized.parameters(COSTS, Costs(1, 1, 0, 1), Costs(1, 0, 1, 0))
    def test_fit_against_one_after_the_other(self, *costs):
        costs = Costs(*costs)
        rng = random.Random(0)
        spec = tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3)
        vector = tf.TensorSpec([None], tf.int64)

        @tf.function(input_signature=[spec, vector, vector])
        def cut(content, long, global_):
            units = layout_units.flatten(content)
            return layout_units.cut_fit(units, costs, Budget(long, global_, 9))

        for _ in range(40):
            batch = rng.randint(1, 3)
            rows = [
                [
                    [rng.randint(0, 9) for _ in range(rng.randint(0, 6))]
                    for _ in range(rng.randint(0, 5))
                ]
                for _ in range(batch)
            ]
            longs = [rng.randint(0, 60) for _ in rows]
            globals_ = [rng.randint(0, 60) for _ in rows]
            content = [[[[0] * n for n in g] for g in row] for row in rows]
            kept = cut(
                tf.ragged.constant(content, ragged_rank=3, dtype=tf.int32),
                longs,
                globals_,
            )
            groups, segments = [], []
            for row, long, global_ in zip(rows, longs, globals_, strict=True):
                left = 9
                for group in row:
                    groups.append(global_ >= costs.group_global)
                    global_ -= costs.group_global
                    for n in group:
                        cost = costs.segment_global + n * costs.token_global
                        fits = n <= long and cost <= global_ and left > 0
                        segments.append(fits)
                        if fits:
                            long -= n
                            global_ -= cost
                            left -= 1
            self.assertAllEqual(kept.groups, groups)
            self.assertAllEqual(kept.segments, segments)

    @parameterized.parameters(
        (20, PLENTY, None, [3, 4, 2, 5]),
        (13, PLENTY, None, [3, 4, 2, 4]),
        (8, PLENTY, None, [3, 4, 1, 0]),
        (7, PLENTY, None, [3, 4, 0, 0]),
        (2, PLENTY, None, [2, 0, 0, 0]),
        (0, PLENTY, None, [0, 0, 0, 0]),
        # Two groups and four segments: six global tokens.
        (20, 6, None, [3, 4, 2, 5]),
        (20, 5, None, [3, 4, 2, 0]),
        (20, 3, None, [3, 4, 0, 0]),
        (20, 1, None, [0, 0, 0, 0]),
        (20, PLENTY, 2, [3, 4, 0, 0]),
    )
    def test_keep(self, long, global_, segments, expected):
        units = flatten([[[3, 4], [2, 5]]])
        kept = layout_units.cut_keep(
            units, COSTS, budget(long, global_, segments)
        )
        self.assertAllEqual(kept.lengths, expected)
        self.assertAllEqual(kept.segments, [n > 0 for n in expected])
        # A group goes when nothing of it is left.
        self.assertAllEqual(kept.groups, [expected[0] > 0, expected[2] > 0])

    @parameterized.parameters(
        (20, PLENTY, None, [3, 4, 2, 5]),
        (13, PLENTY, None, [3, 4, 2, 0]),
        (8, PLENTY, None, [3, 4, 0, 0]),
        (3, PLENTY, None, [3, 0, 0, 0]),
        # The first alone is too long, and is cropped.
        (2, PLENTY, None, [2, 0, 0, 0]),
        (0, PLENTY, None, [0, 0, 0, 0]),
        (20, 5, None, [3, 4, 2, 0]),
        (20, PLENTY, 3, [3, 4, 2, 0]),
    )
    def test_tail(self, long, global_, segments, expected):
        units = flatten([[[3, 4], [2, 5]]])
        kept = layout_units.cut_tail(
            units, COSTS, budget(long, global_, segments)
        )
        self.assertAllEqual(kept.lengths, expected)
        self.assertAllEqual(kept.segments, [n > 0 for n in expected])

    def test_tokens_with_global_tokens(self):
        costs = Costs(1, 1, 0, 0)
        units = flatten([[[3, 4]], [[2]]])
        kept = layout_units.cut_keep(units, costs, budget(9, 5, batch=2))
        self.assertAllEqual(kept.lengths, [3, 2, 2])
        kept = layout_units.cut_tail(units, costs, budget(9, 5, batch=2))
        self.assertAllEqual(kept.lengths, [3, 0, 2])

    def test_empty_units_cost_only_their_global_tokens(self):
        units = flatten([[[], [0], [2]]])
        for cut in (layout_units.cut_keep, layout_units.cut_tail):
            kept = cut(units, COSTS, budget(2, 5))
            self.assertAllEqual(kept.groups, [True] * 3)
            self.assertAllEqual(kept.segments, [True] * 2)
            kept = cut(units, COSTS, budget(2, 2))
            self.assertAllEqual(kept.groups, [True, False, False])
            self.assertAllEqual(kept.segments, [False] * 2)


if __name__ == "__main__":
    tf.test.main()
