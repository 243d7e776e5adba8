"""Tests of `cuts`: which units are kept when the budget is full."""

import heapq
import random

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import ragged_rows
from etcmodel.feature_utils.layout import cuts
from etcmodel.feature_utils.layout import flat_content
from etcmodel.feature_utils.layout.cuts import Budget
from etcmodel.feature_utils.layout.flat_content import Costs

# Every group and unit has a global token; tokens are in the long input.
COSTS = Costs(token_long=1, token_global=0, unit_global=1, group_global=1)
PLENTY = 10**6
# Content, and the budgets of the long and the global input.
SPECS = (
    tf.RaggedTensorSpec([None] * 4, tf.int32, ragged_rank=3),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int64),
)


def content_of(lengths):
    """Makes units of the given lengths, [batch, groups, units]."""
    content = [[[[0] * n for n in group] for group in row] for row in lengths]
    return tf.ragged.constant(content, ragged_rank=3, dtype=tf.int32)


def flatten(lengths):
    """Makes flat content whose units have the given lengths."""
    return flat_content.flatten(content_of(lengths))


def random_lengths(rng, most_groups, most_units, most_tokens):
    """Draws the units' lengths of one to three records; makes content."""
    lengths = [
        [
            [
                rng.randint(0, most_tokens)
                for _ in range(rng.randint(0, most_units))
            ]
            for _ in range(rng.randint(0, most_groups))
        ]
        for _ in range(rng.randint(1, 3))
    ]
    return lengths, content_of(lengths)


def budget(long, global_=PLENTY, units=PLENTY, batch=1):
    fill = lambda x: tf.fill([batch], tf.constant(x, tf.int64))  # noqa: E731
    return Budget(fill(long), fill(global_), units)


def max_heap(lengths, max_units, max_tokens, max_globals):
    """Returns how many units each group keeps, by the paper's algorithm."""
    kept = [len(group) for group in lengths]
    heap = [(-n, i, i) for i, n in enumerate(kept)]
    heapq.heapify(heap)
    pushed = len(heap)
    while (
        sum(kept) > max_units
        or sum(sum(g[:n]) for g, n in zip(lengths, kept, strict=True))
        > max_tokens
        or sum(kept) + len(kept) > max_globals
    ):
        _, _, i = heapq.heappop(heap)
        kept[i] -= 1
        heapq.heappush(heap, (-kept[i], pushed, i))
        pushed += 1
    return kept


class LayoutCutsTest(tf.test.TestCase, parameterized.TestCase):
    def test_examples(self):
        """Uses the examples of the docstrings."""
        for cut, lengths, tokens, expected in (
            (cuts.cut_keep, [[3, 4]], 5, [3, 2]),
            (cuts.cut_tail, [[3, 4, 1]], 5, [3, 0, 0]),
            (cuts.cut_fit, [[3, 4, 1]], 5, [3, 0, 1]),
            (
                cuts.cut_balanced,
                [[1] * 4, [1] * 2, [1] * 4],
                7,
                [*(1, 1, 0, 0), *(1, 1), *(1, 1, 1, 0)],
            ),
        ):
            kept = cut(flatten([lengths]), COSTS, budget(tokens))
            self.assertAllEqual(kept.lengths, expected)
        groups = flatten([[[2, 2], [3], [1]]])
        for cut, expected in (
            (cuts.cut_fit_groups, [2, 2, 0, 1]),
            (cuts.cut_tail_groups, [2, 2, 0, 0]),
        ):
            kept = cut(groups, COSTS, budget(5))
            self.assertAllEqual(kept.lengths, expected)

    def test_balanced_against_a_heap(self):
        rng = random.Random(0)

        @tf.function(input_signature=[*SPECS, tf.TensorSpec([], tf.int64)])
        def cut(content, long, global_, units):
            content = flat_content.flatten(content)
            kept = cuts.cut_balanced(
                content, COSTS, Budget(long, global_, units)
            )
            return ragged_rows.sum_rows(kept.units, content.unit_splits)

        for _ in range(40):
            lengths, content = random_lengths(rng, 6, 8, 4)
            # No unit is cropped, since the longest has 4 tokens. The global
            # input has room for every group with one unit.
            longs = [rng.randint(4, 50) for _ in lengths]
            globals_ = [rng.randint(12, 40) for _ in lengths]
            units = rng.randint(0, 25)
            kept = cut(content, longs, globals_, units)
            expected = []
            for row, long, global_ in zip(
                lengths, longs, globals_, strict=True
            ):
                expected += max_heap(row, units, long, global_)
            self.assertAllEqual(kept, expected, f"{lengths} {longs}")

    def test_balanced_when_not_even_groups_fit(self):
        # The global input has room for two groups with a unit each. The second
        # group has no unit, so the first group can keep two.
        content = flatten([[[1, 1, 1], [], [1]]])
        kept = cuts.cut_balanced(content, COSTS, budget(9, global_=4))
        self.assertAllEqual(kept.groups, [True, True, False])
        self.assertAllEqual(kept.units, [True, True, False, False])
        self.assertAllEqual(kept.lengths, [1, 1, 0, 0])
        kept = cuts.cut_balanced(content, COSTS, budget(9, global_=1))
        self.assertAllEqual(kept.groups, [False] * 3)
        # A unit that is too long by itself is cropped.
        kept = cuts.cut_balanced(flatten([[[50]]]), COSTS, budget(9))
        self.assertAllEqual(kept.lengths, [9])

    @parameterized.parameters(
        (20, PLENTY, PLENTY, [3, 4, 2, 5], [3, 4, 2, 5]),
        (13, PLENTY, PLENTY, [3, 4, 2, 4], [3, 4, 2, 0]),
        (8, PLENTY, PLENTY, [3, 4, 1, 0], [3, 4, 0, 0]),
        (7, PLENTY, PLENTY, [3, 4, 0, 0], [3, 4, 0, 0]),
        # The first unit alone is too long, so it is cropped.
        (2, PLENTY, PLENTY, [2, 0, 0, 0], [2, 0, 0, 0]),
        (0, PLENTY, PLENTY, [0, 0, 0, 0], [0, 0, 0, 0]),
        # Two groups and four units need six global tokens.
        (20, 6, PLENTY, [3, 4, 2, 5], [3, 4, 2, 5]),
        (20, 5, PLENTY, [3, 4, 2, 0], [3, 4, 2, 0]),
        (20, 3, PLENTY, [3, 4, 0, 0], [3, 4, 0, 0]),
        (20, 1, PLENTY, [0, 0, 0, 0], [0, 0, 0, 0]),
        (20, PLENTY, 2, [3, 4, 0, 0], [3, 4, 0, 0]),
    )
    def test_keep_and_tail(self, long, global_, units, *expected):
        content = flatten([[[3, 4], [2, 5]]])
        for cut, lengths in zip(
            (cuts.cut_keep, cuts.cut_tail),
            expected,
            strict=True,
        ):
            kept = cut(content, COSTS, budget(long, global_, units))
            self.assertAllEqual(kept.lengths, lengths)
            self.assertAllEqual(kept.units, [n > 0 for n in lengths])
            # A group that keeps nothing is dropped.
            self.assertAllEqual(kept.groups, [lengths[0] > 0, lengths[2] > 0])

    @parameterized.parameters((4, [1, 1]), (3, [1, 0]), (2, [1]))
    def test_fit_without_room_for_units(self, global_, lengths):
        """A group keeps its global token while there is room for it."""
        content = flatten([[[1], [1]]])
        kept = cuts.cut_fit(content, COSTS, budget(9, global_))
        self.assertAllEqual(kept.groups, [True, len(lengths) > 1])
        self.assertAllEqual(kept.lengths[: len(lengths)], lengths)

    def test_tail_crops_to_what_other_global_tokens_leave(self):
        kept = cuts.cut_tail(flatten([[[9]]]), Costs(1, 1, 1, 1), budget(9, 5))
        self.assertAllEqual(kept.lengths, [3])


if __name__ == "__main__":
    tf.test.main()
