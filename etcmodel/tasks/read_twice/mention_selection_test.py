"""Tests of selecting mentions."""

import collections

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.read_twice import mention_selection


def select(rows, most):
    labels = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
    selected = tf.function(
        lambda x: mention_selection.select_mentions(x, most),
        input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)],
    )(labels)
    return selected.to_list()


def by_rounds(row, most):
    """Computes the expected selection in plain Python, in rounds.

    Each round selects one mention of each entity. The second round also selects
    all mentions of unknown entities.
    """
    rounds = collections.defaultdict(list)
    times = collections.Counter()
    for place, label in enumerate(row):
        rounds[1 if label == 1 else times[label]].append(place)
        times[label] += 1
    selected = set()
    for _, places in sorted(rounds.items()):
        room = min(most - len(selected), len(places))
        # Evenly spaced mentions are at the middles of equal parts.
        steps = (np.arange(room) + 0.5) * len(places) / max(room, 1)
        selected |= {places[int(np.ceil(x)) - 1] for x in steps}
    return [place in selected for place in range(len(row))]


class SelectMentionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("room_for_all", [7, 7, 8], 3, [0, 1, 2]),
        ("different_ones", [7, 7, 8, 7, 9], 3, [0, 2, 4]),
        ("spread", [5, 6, 7, 8], 2, [0, 2]),
        ("middle", [5, 6, 7], 1, [1]),
        # The second mention of 7 precedes the third.
        ("second_ones", [7, 7, 7, 8, 9], 4, [0, 1, 3, 4]),
        ("unknown_ones", [1, 1, 7, 7, 7], 4, [0, 1, 2, 3]),
        ("known_ones", [1, 1, 7], 1, [2]),
        ("none", [], 2, []),
    )
    def test_by_hand(self, labels, most, expected):
        # The other segments check that segments are independent.
        first, row, last = select([[7], labels, [7]], most)
        self.assertEqual(([True], [True]), (first, last))
        self.assertEqual(expected, np.nonzero(row)[0].tolist())

    def test_against_python(self):
        rng = np.random.default_rng(0)
        rows = [
            rng.integers(1, rng.integers(2, 30), rng.integers(0, 40)).tolist()
            for _ in range(60)
        ]
        for most in (1, 4, 15, 40):
            self.assertEqual(
                [by_rounds(x, most) for x in rows], select(rows, most)
            )

    def test_empty_segments(self):
        self.assertEqual([], select([], 2))
        self.assertEqual([[], []], select([[], []], 2))


if __name__ == "__main__":
    tf.test.main()
