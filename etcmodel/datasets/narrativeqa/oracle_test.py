import random

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.narrativeqa import oracle


def _common(a, b):
    """Returns the length of the longest common subsequence."""
    if not a or not b:
        return 0
    if a[0] == b[0]:
        return 1 + _common(a[1:], b[1:])
    return max(_common(a[1:], b), _common(a, b[1:]))


def _reference(text, answer, min_score, top_percentile, top_k):
    """Finds the best spans by trying all of them."""
    words, target = text.lower().split(), answer.lower().split()
    spans = []
    for start in range(len(words)):
        for size in range(1, 2 * len(target) + 6):
            span = words[start : start + size]
            if words[start] not in target or len(span) < size:
                continue
            shared = _common(span, target)
            p, r = shared / size, shared / len(target)
            spans.append((2.44 * p * r / (r + 1.44 * p), start, start + size))
    lowest = max(min_score, top_percentile * max(spans, default=[0])[0])
    chosen = []
    for score, start, end in sorted(spans, reverse=True):
        is_new = all(
            (end <= s or e <= start) and words[start:end] != words[s:e]
            for _, s, e in chosen
        )
        if is_new and score >= lowest - 1e-6 and len(chosen) < top_k:
            chosen.append((score, start, end))
    return chosen


class OracleTest(tf.test.TestCase, parameterized.TestCase):
    def _find(self, text, *args):
        found = oracle.find_approximate_answers(oracle.Words(text), *args)
        return [text[x.start : x.end] for x in found]

    @parameterized.parameters(
        ("aaa bbb aaa ccc", "aaa bbb", 0, 1.0, ["aaa bbb"]),
        ("aaa bbb aaa ccc", "aaa bbb", 0, 0, ["aaa bbb", "aaa"]),
        ("aaa bbb ccc", "aaa ddd eee", 1, 1, []),
        ("", "aaa", 0, 0, []),
        ("aaa", "", 0, 0, []),
        ("aaa", "bbb", 0, 0, []),
        (" AAA\u00c4\n  b", "aaa\u00e4 B", 0, 0.9, ["AAA\u00c4\n  b"]),
    )
    def test_by_hand(self, text, answer, min_score, percentile, expected):
        self.assertEqual(
            expected, self._find(text, answer, min_score, percentile)
        )

    def test_equals_the_reference(self):
        rng = random.Random(1)
        several = 0
        for _ in range(60):
            text = " ".join(rng.choices("abcdef", k=rng.randint(1, 25)))
            answer = " ".join(rng.choices("abcxy", k=rng.randint(1, 4)))
            options = (rng.choice((0, 0.4)), rng.choice((0, 0.6, 0.9)), 3)
            expected = _reference(text, answer, *options)
            found = oracle.find_approximate_answers(
                oracle.Words(text), answer, *options
            )
            # All words are single letters.
            self.assertEqual(
                [(start, end) for _, start, end in expected],
                [(x.start // 2, (x.end + 1) // 2) for x in found],
            )
            self.assertAllClose(
                [x[0] for x in expected], [x.score for x in found]
            )
            several += len(found) > 1
        self.assertGreater(several, 10)

    def test_bad_arguments(self):
        for options in ((1.1, 0, 1), (0, -0.1, 1), (0, 0, 0)):
            with self.assertRaisesRegex(ValueError, "Expected min_score"):
                self._find("a", "a", *options)


if __name__ == "__main__":
    tf.test.main()
