"""Tests of `flat_content`."""

import random

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils.layout import flat_content


def ragged(rows):
    return tf.ragged.constant(rows, ragged_rank=3, dtype=tf.int32)


def random_rows(rng, number):
    """Content of records, all tokens of which are different numbers."""
    count = iter(range(10_000))
    return [
        [
            [
                [next(count) for _ in range(rng.randint(0, 4))]
                for _ in range(rng.randint(0, 3))
            ]
            for _ in range(rng.randint(0, 3))
        ]
        for _ in range(number)
    ]


def to_lists(flat):
    """Content as rows of groups of units of their tokens' origins."""
    return tf.RaggedTensor.from_nested_row_splits(
        flat.token_origin,
        [flat.group_splits, flat.unit_splits, flat.token_splits],
    ).to_list()


def numbered(rows):
    """Lists of rows with all elements numbered: groups, units, tokens."""
    groups = [group for row in rows for group in row]
    units = [unit for group in groups for unit in group]
    return {"group": groups, "unit": units}


class FlatContentTest(tf.test.TestCase, parameterized.TestCase):
    def assertOrigins(self, left, content):
        """Origins of groups and units are those of what is in them."""
        flat = numbered(content.to_list())
        lists = to_lists(left)
        tokens = content.flat_values.numpy()
        for level, origin in (
            ("unit", left.unit_origin),
            ("group", left.group_origin),
        ):
            for unit, i in zip(numbered(lists)[level], origin, strict=True):
                inside = tf.nest.flatten(unit)
                whole = tf.nest.flatten(flat[level][int(i)])
                self.assertLessEqual({*tokens[inside]}, {*whole})

    def test_examples(self):
        """Those of the docstrings."""
        windows = flat_content.make_windows(
            tf.constant([9, 3], tf.int64), tf.constant([4, 4], tf.int64), 3
        )
        self.assertAllEqual(windows.owner, [0, 0, 0, 1])
        self.assertAllEqual(windows.starts, [0, 3, 6, 0])
        self.assertAllEqual(windows.sizes, [4, 4, 3, 3])
        content = flat_content.flatten(ragged([[[[7, 8, 9], [5]]]]))
        shown = flat_content.cut_windows(
            content,
            flat_content.Windows(
                *tf.constant([[0, 0], [0, 1], [2, 3]], tf.int64)
            ),
        )
        self.assertEqual(to_lists(shown), [[[[0, 1]]], [[[1, 2], [3]]]])

    @parameterized.parameters(
        # Nothing to show, no room at all, as much as there is room for.
        (0, 4, 3, [(0, 0)]),
        (9, 0, 3, [(0, 0)]),
        (9, -2, 3, [(0, 0)]),
        (4, 4, 3, [(0, 4)]),
        (5, 4, 3, [(0, 4), (3, 2)]),
        # No overlap; a stride beyond the room would leave tokens out.
        (9, 4, None, [(0, 4), (4, 4), (8, 1)]),
        (9, 4, 7, [(0, 4), (4, 4), (8, 1)]),
    )
    def test_windows(self, length, room, stride, expected):
        made = flat_content.make_windows(
            tf.constant([length], tf.int64),
            tf.constant([room], tf.int64),
            stride,
        )
        self.assertEqual(
            [*zip(made.starts.numpy(), made.sizes.numpy(), strict=True)],
            expected,
        )

    def test_cut_windows_against_python(self):
        rng = random.Random(2)
        for _ in range(20):
            rows = random_rows(rng, rng.randint(0, 4))
            lengths = [len(tf.nest.flatten(row)) for row in rows]
            windows = [
                (i, start, rng.randint(0, n - start))
                for i, n in enumerate(lengths)
                for start in [rng.randint(0, n)]
            ] * 2
            windows.sort()
            content = ragged(rows)
            shown = flat_content.cut_windows(
                flat_content.flatten(content),
                flat_content.Windows(
                    *np.reshape(windows, [-1, 3]).T.astype(np.int64)
                ),
            )
            first = np.cumsum([0, *lengths])
            expected = []
            for i, start, size in windows:
                keep = range(first[i] + start, first[i] + start + size)
                groups = [
                    [
                        [token for token in unit if token in keep]
                        for unit in group
                    ]
                    for group in rows[i]
                ]
                groups = [[x for x in group if x] for group in groups]
                expected.append([group for group in groups if group])
            self.assertEqual(to_lists(shown), expected)
            self.assertOrigins(shown, content)

    def test_select_and_repeat_against_python(self):
        rng = random.Random(3)
        for _ in range(20):
            rows = random_rows(rng, rng.randint(1, 4))
            content = ragged(rows)
            kept_groups, kept_units, lengths, expected = [], [], [], []
            for row in rows:
                expected.append([])
                for group in row:
                    keep = rng.random() < 0.7
                    kept_groups.append(keep)
                    left = []
                    for unit in group:
                        keep_unit = keep and rng.random() < 0.7
                        size = rng.randint(0, len(unit)) * keep_unit
                        kept_units.append(keep_unit)
                        lengths.append(size)
                        if keep_unit:
                            left.append(unit[:size])
                    if keep:
                        expected[-1].append(left)
            left = flat_content.select(
                flat_content.flatten(content),
                flat_content.Kept(
                    tf.constant(kept_groups, tf.bool),
                    tf.constant(kept_units, tf.bool),
                    tf.constant(lengths, tf.int64),
                ),
            )
            self.assertEqual(to_lists(left), expected)
            self.assertOrigins(left, content)
            counts = flat_content.count(flat_content.flatten(content), left)
            for name, lists in (("", rows), ("kept_", expected)):
                groups = [len(row) for row in lists]
                self.assertAllEqual(getattr(counts, f"{name}groups"), groups)
                tokens = [len(tf.nest.flatten(row)) for row in lists]
                self.assertAllEqual(getattr(counts, f"{name}tokens"), tokens)
            owner = [0, 0, *range(1, len(rows)), 0]
            repeated = flat_content.repeat(left, tf.constant(owner, tf.int64))
            self.assertEqual(to_lists(repeated), [expected[i] for i in owner])
            self.assertOrigins(repeated, content)
            # What is there twice counts once.
            self.assertAllEqual(
                flat_content.count(flat_content.flatten(content), repeated),
                counts,
            )


if __name__ == "__main__":
    tf.test.main()
