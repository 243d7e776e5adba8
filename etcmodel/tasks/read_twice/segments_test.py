import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks.read_twice import segments

CLS = 9


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


class LocateSpansTest(tf.test.TestCase):
    def test_spans_touch_tokens(self):
        # "Jan lives in Brno", an empty text, and one word at byte 2.
        starts = ragged([[0, 4, 10, 13], [], [2]])
        ends = ragged([[3, 9, 12, 17], [], [5]])
        first, last = segments.locate_spans(
            starts,
            ends,
            ragged([[10, 1, 3, 0, 17, 5], [0], [0, 0, 4]]),
            ragged([[17, 2, 4, 99, 20, 14], [4], [2, 3, 5]]),
        )
        self.assertEqual([[2, 0, 1, 0, 4, 1], [0], [0, 0, 0]], first.to_list())
        self.assertEqual([[3, 0, 0, 3, 3, 3], [-1], [-1, 0, 0]], last.to_list())


class CutIntoSegmentsTest(tf.test.TestCase, parameterized.TestCase):
    def cut(self, ids, mentions, length=4, most=2):
        """Cuts documents; mentions are (first token, last token, label)."""
        columns = [
            [[mention[i] for mention in row] for row in mentions]
            for i in range(3)
        ]
        return segments.cut_into_segments(
            ragged(ids),
            ragged([[x % 2 for x in row] for row in ids]),
            *map(ragged, columns),
            CLS,
            segments.SegmentConfig(length, most),
        )

    def test_by_hand(self):
        output = self.cut(
            [[11, 12, 13, 14, 16], [], [21, 22, 23]],
            [
                # The segment cuts the second mention; the third has no tokens.
                [(0, 0, 5), (2, 3, 6), (3, 2, 7), (4, 4, 1)],
                [(0, -1, 5)],
                [(0, 2, 8), (1, 1, 9), (2, 2, 10)],
            ],
        )
        self.assertAllEqual(
            output.token_ids,
            [[CLS, 11, 12, 13], [CLS, 14, 16, 0], [CLS, 21, 22, 23]],
        )
        self.assertAllEqual(
            output.is_continuation, [[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]]
        )
        self.assertAllEqual(output.documents, [0, 0, 2])
        self.assertAllEqual(output.block_pos, [1, 2, 1])
        self.assertAllEqual(output.annotation_begins, [[1, 3], [2, 0], [1, 3]])
        self.assertAllEqual(output.annotation_ends, [[1, 3], [2, 0], [3, 3]])
        self.assertAllEqual(output.annotation_labels, [[5, 6], [1, 0], [8, 10]])
        self.assertAllEqual(output.mentions_cut, [0, 0, 1])

    def test_against_python(self):
        rng = np.random.default_rng(0)
        ids, mentions = [], []
        for _ in range(20):
            size = rng.integers(0, 30)
            ids.append(rng.integers(10, 99, size).tolist())
            firsts = sorted(rng.integers(0, max(size, 1), rng.integers(0, 9)))
            mentions.append(
                [
                    (int(x), int(x + rng.integers(-1, 4)), i + 2)
                    for i, x in enumerate(firsts)
                ]
            )
        output = self.cut(ids, mentions, length=6, most=3)
        expected = []
        for tokens, spans in zip(ids, mentions, strict=True):
            for begin in range(0, len(tokens), 5):
                part = tokens[begin : begin + 5]
                inside = [
                    (1 + b - begin, min(1 + e - begin, len(part)), label)
                    for b, e, label in spans
                    if begin <= b < begin + 5 and b <= e and b < len(tokens)
                ]
                if len(inside) > 3:
                    # The middles of three equal parts.
                    middles = np.array([1, 3, 5]) * len(inside) / 6
                    inside = [inside[int(np.ceil(x)) - 1] for x in middles]
                row = [CLS, *part] + [0] * (5 - len(part))
                expected.append((row, (inside + [(0, 0, 0)] * 3)[:3]))
        self.assertAllEqual(output.token_ids, [row for row, _ in expected])
        actual = np.stack(
            [
                output.annotation_begins,
                output.annotation_ends,
                output.annotation_labels,
            ],
            axis=-1,
        )
        self.assertAllEqual(actual, [spans for _, spans in expected])

    @parameterized.parameters(
        (0, [[1, 2, 3, 10, 11], [20, 21, 22, 23, 31], [32, 33, 34]]),
        (
            1,
            [
                [1, 2, 3, 10, 11],
                [11, 20, 21, 22, 23],
                [23, 31, 32, 33, 34],
            ],
        ),
        (
            3,
            [
                [1, 2, 3, 10, 11],
                [10, 11, 20, 21, 22],
                [20, 21, 22, 23, 31],
                [23, 31, 32, 33, 34],
            ],
        ),
    )
    def test_overlaps_start_with_a_word(self, overlap, expected):
        """Cuts the original example, and a text with a long first word."""
        ids = ragged(
            [
                [1, 2, 3, 10, 11, 20, 21, 22, 23, 31, 32, 33, 34],
                [],
                [1, 2, 3, 4, 5, 6, 7, 8],
            ]
        )
        continues = ragged(
            [
                [0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
                [],
                [0, 1, 1, 1, 0, 0, 0, 0],
            ]
        )
        windows = segments.find_windows(
            continues, tf.constant([5, 5, 5]), overlap
        )
        rows = segments.lay_out_tokens(
            ids, windows, ragged([[7], [7], [6, 7]]), 8, fill=-1
        ).numpy()
        self.assertAllEqual(
            rows[windows.texts == 0],
            [([7, *x] + [-1] * 7)[:8] for x in expected],
        )
        second = [6, 7, 8] if overlap == 0 else [5, 6, 7, 8]
        self.assertAllEqual(
            rows[windows.texts == 2],
            [
                [6, 7, 1, 2, 3, 4, 5, -1],
                ([6, 7, *second] + [-1] * 3)[:8],
            ],
        )

    def test_texts_with_different_room(self):
        words = ragged([[0] * 5, [0] * 5, [0] * 2])
        windows = segments.find_windows(words, tf.constant([2, 4, 4]), 1)
        self.assertAllEqual([0, 0, 0, 0, 1, 1, 2], windows.texts)
        self.assertAllEqual([0, 1, 2, 3, 0, 3, 0], windows.starts)
        self.assertAllEqual([2, 3, 4, 5, 4, 5, 2], windows.ends)

    def test_mentions_in_overlaps(self):
        """A window has all mentions that begin in it, even in an overlap."""
        windows = segments.Windows(
            tf.constant([0, 0, 1]),
            tf.constant([0, 3, 0]),
            tf.constant([5, 7, 2]),
        )
        begins, ends, labels, cut = segments.lay_out_mentions(
            ragged([[2, 3, 4], [0]]),
            ragged([[3, 5, 3], [0]]),
            ragged([[5, 6, 7], [8]]),
            windows,
            tf.constant([1, 1, 2]),
            2,
        )
        # The first window cuts the second mention.
        self.assertAllEqual([[3, 4], [1, 0], [2, 0]], begins)
        self.assertAllEqual([[4, 5], [3, 0], [2, 0]], ends)
        self.assertAllEqual([[5, 6], [6, 0], [8, 0]], labels)
        self.assertAllEqual([0, 0, 0], cut)

    def test_empty_documents(self):
        output = self.cut([[], []], [[], []])
        self.assertEqual([0, 4], output.token_ids.shape)
        self.assertEqual([0, 2], output.annotation_labels.shape)

    @parameterized.parameters(
        (dict(block_length=1), "block_length is 1"),
        (dict(max_num_annotations=0), "max_num_annotations is 0"),
    )
    def test_sizes(self, kwargs, message):
        with self.assertRaisesRegex(ValueError, message):
            segments.SegmentConfig(**kwargs)

    def test_entity_labels(self):
        labels = segments.entity_labels(
            tf.constant(["Q1", "", "Q2", "Q1"])
        ).numpy()
        self.assertEqual(labels[0], labels[3])
        self.assertEqual(1, labels[1])
        self.assertLen(set(labels.tolist()), 3)
        self.assertGreaterEqual(min(labels[0], labels[2]), 2)


if __name__ == "__main__":
    tf.test.main()
