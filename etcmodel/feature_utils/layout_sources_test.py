"""Tests of `layout_sources`."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import layout
from etcmodel.feature_utils import layout_sources

# Four records: groups of two, of no and of one segment; no groups at all; a
# group of no segments before one of two; nothing again.
_SEGMENTS = [[["a", "b"], [], ["c"]], [], [[], ["d", "e"]], []]
_TOKENS = [[[[3, 4], []], [], [[5]]], [], [[], [[], [6, 7, 8]]], []]

_PAD = (-1, -1, -1, -1)
_SOURCES = [
    [(0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 1), (1, 2, 0, 0), _PAD],
    [(0, 0, 0, 0), (0, 0, 1, 1), _PAD, _PAD, _PAD],
    # What is between them was cut.
    [(0, 0, 0, 0), (1, 1, 1, 0), (1, 1, 1, 2), (2, 0, 0, 0), _PAD],
    [_PAD] * 5,
]
# As of global tokens: those of groups, of segments and of tokens.
_GLOBAL_SOURCES = [
    [(1, 0, -1, -1), (1, 0, 0, -1), (1, 0, 1, -1), (1, 1, -1, -1)],
    [(0, 0, 0, -1), (0, 0, 0, 1), _PAD, _PAD],
    [(1, 0, -1, -1), (1, 1, -1, -1), (1, 1, 1, -1), (1, 1, 1, 2)],
    [_PAD] * 4,
]


def _content(rows, dtype):
    """Rows of any nesting; `tf.ragged.constant` needs to be told the depth."""
    depth = 2 if dtype == tf.string else 3
    return tf.ragged.constant(
        rows, dtype, ragged_rank=depth, row_splits_dtype=tf.int64
    )


class LayoutSourcesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(tf.int32, tf.int64)
    def test_segments(self, splits):
        content = _content(_SEGMENTS, tf.string).with_row_splits_dtype(splits)
        find = layout_sources.segment_indices
        for of_segments in (content, _content(_TOKENS, tf.int32)):
            found = find(tf.constant(_SOURCES), 1, of_segments)
            self.assertEqual(found.dtype, tf.int32)
            self.assertAllEqual(
                found,
                [[-1, 0, 0, 2, -1], [-1] * 5, [-1, 1, 1, -1, -1], [-1] * 5],
            )
        self.assertAllEqual(
            find(tf.constant(_GLOBAL_SOURCES), 1, content),
            [[-1, 0, 1, -1], [-1] * 4, [-1, -1, 1, 1], [-1] * 4],
        )
        # A section that is not there.
        self.assertAllEqual(
            find(tf.constant(_SOURCES), 3, content), -np.ones([4, 5])
        )

    @parameterized.parameters((tf.int32, -1), (tf.int64, 0), (tf.float32, -2.5))
    def test_values(self, dtype, default):
        x = default
        values = _content(_TOKENS, tf.int32)
        values = values.with_flat_values(tf.cast(values.flat_values, dtype))
        find = layout_sources.token_values
        for splits in (tf.int32, tf.int64):
            values = values.with_row_splits_dtype(splits)
            found = find(tf.constant(_SOURCES), 1, values, default)
            self.assertEqual(found.dtype, dtype)
            self.assertAllEqual(
                found, [[x, 3, 4, 5, x], [x] * 5, [x, 6, 8, x, x], [x] * 5]
            )
        # Of global tokens only those of tokens have values.
        self.assertAllEqual(
            find(tf.constant(_GLOBAL_SOURCES), 1, values, default),
            [[x] * 4, [x] * 4, [x, x, x, 8], [x] * 4],
        )
        # A section that is not there.
        found = find(tf.constant(_SOURCES), 3, values, default)
        self.assertAllEqual(found, np.full([4, 5], default))

    @parameterized.named_parameters(
        ("records_without_groups", [2, 2], [[], []]),
        ("groups_without_segments", [2, 2], [[[], []], [[]]]),
        ("segments_without_tokens", [2, 2], [[[[], []], []], [[[]]]]),
        ("no_records", [0, 3], []),
        ("no_length", [2, 0], [[[[1]]], []]),
    )
    def test_nothing(self, shape, rows):
        # Tokens of a section before it.
        sources = tf.broadcast_to(tf.constant([0, 3, 2, 9]), [*shape, 4])
        content = _content(rows, tf.int32)
        for find in (
            layout_sources.segment_indices,
            layout_sources.token_values,
        ):
            self.assertAllEqual(find(sources, 1, content), -np.ones(shape))

    @parameterized.parameters(("keep", "fit"), ("balanced", "tail"))
    def test_finds_what_the_engine_laid_out(self, *cuts):
        """Token ids and segments looked up are those that were laid out."""
        rng = np.random.default_rng(5)

        def rows(first):
            """Random content of 40 records; ids tell the segments."""
            made = []
            for _ in range(40):
                groups, count = [], 0
                for _ in range(rng.integers(0, 4)):
                    segments = []
                    for _ in range(rng.integers(0, 4)):
                        start = first + 100 * count
                        segments.append(
                            list(range(start, start + rng.integers(0, 6)))
                        )
                        count += 1
                    groups.append(segments)
                made.append(groups)
            return _content(made, tf.int32)

        contents = {"a": rows(10_000), "b": rows(20_000)}
        engine = layout.LayoutEngine(
            [
                layout.Section(
                    name,
                    group_global=layout.GlobalToken(1),
                    segment_global=layout.GlobalToken(2),
                    cut=cut,
                )
                for name, cut in zip(contents, cuts, strict=True)
            ],
            long_length=25,
            global_length=15,
        )

        @tf.function(autograph=False)
        def look_up():
            made = engine(contents)
            return made, [
                (
                    layout_sources.token_values(
                        made.long_sources, index, content, default=0
                    ),
                    layout_sources.segment_indices(
                        made.long_sources, index, content
                    ),
                    layout_sources.segment_indices(
                        made.global_sources, index, content
                    ),
                )
                for index, content in enumerate(contents.values())
            ]

        made, found = look_up()
        ids = made.features["long_token_ids"].numpy()
        self.assertGreater(np.count_nonzero(ids), 200)
        for first, (values, segments, global_segments) in zip(
            (10_000, 20_000), found, strict=True
        ):
            is_own = (ids >= first) & (ids < first + 10_000)
            self.assertAllEqual(values, np.where(is_own, ids, 0))
            self.assertAllEqual(
                segments, np.where(is_own, (ids - first) // 100, -1)
            )
            # Both inputs agree: a token's sentence is that of its segment.
            global_segments = global_segments.numpy()
            sentences = made.features["long_sentence_ids"].numpy()
            rows, columns = np.nonzero(is_own)
            self.assertAllEqual(
                global_segments[rows, sentences[rows, columns]],
                segments.numpy()[rows, columns],
            )
            is_segment = made.features["global_token_ids"].numpy() == 2
            self.assertAllEqual(
                (global_segments >= 0) & ~is_segment,
                np.zeros_like(is_segment),
            )


if __name__ == "__main__":
    tf.test.main()
