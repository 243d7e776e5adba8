import dataclasses

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import layout_spec
from etcmodel.feature_utils.layout_spec import GlobalToken
from etcmodel.feature_utils.layout_spec import Link
from etcmodel.feature_utils.layout_spec import Section


class SectionTest(tf.test.TestCase, parameterized.TestCase):
    def test_defaults(self):
        section = Section("text")
        self.assertEqual("tail", section.cut)
        self.assertTrue(section.in_long)
        self.assertTrue(section.link_sentences)
        self.assertTrue(section.link_paragraphs)
        self.assertTrue(section.breaks)
        self.assertIsNone(section.segment_global)
        self.assertIsNone(section.max_segments)
        self.assertEqual(GlobalToken(7, 0), GlobalToken(7))
        with self.assertRaises(dataclasses.FrozenInstanceError):
            section.cut = "fit"

    @parameterized.parameters(
        (dict(), (1, 0, 0, 0)),
        (dict(token_global=GlobalToken(3)), (1, 1, 0, 0)),
        (dict(segment_global=GlobalToken(1)), (1, 0, 1, 0)),
        (
            dict(segment_global=GlobalToken(1), group_global=GlobalToken(5)),
            (1, 0, 1, 1),
        ),
        # In the global input only. A token id of 0 is one, too.
        (dict(token_global=GlobalToken(0), in_long=False), (0, 1, 0, 0)),
    )
    def test_costs(self, kwargs, expected):
        costs = Section("x", **kwargs).costs
        self.assertEqual(
            expected,
            (
                costs.token_long,
                costs.token_global,
                costs.segment_global,
                costs.group_global,
            ),
        )

    @parameterized.parameters(
        ("keep", None, 0),
        ("tail", None, 1),
        ("fit", None, 1),
        ("balanced", None, 1),
        ("keep", 2, 2),
        ("balanced", 0, 0),
    )
    def test_rank(self, cut, priority, expected):
        section = Section("x", cut=cut, priority=priority)
        self.assertEqual(expected, section.rank)

    def test_mistakes(self):
        with self.assertRaisesRegex(
            ValueError,
            r"Section 'text': cut='head', expected one of "
            r"\['balanced', 'fit', 'keep', 'tail'\]",
        ):
            Section("text", cut="head")
        with self.assertRaisesRegex(ValueError, "Section 'ids': max_tokens"):
            Section("ids", in_long=False, max_tokens=5)
        # All else may be limited outside the long input, too.
        Section("ids", in_long=False, max_segments=5)


class LinkTest(tf.test.TestCase):
    targets = tf.ragged.constant([[[[0]]]], ragged_rank=3)

    def test_defaults(self):
        link = Link("documents", self.targets, "candidates")
        self.assertEqual("segment", link.target_level)
        self.assertEqual("l2g_linked_ids", link.feature)

    def test_levels(self):
        for level in ("group", "segment", "token"):
            link = Link("a", self.targets, "b", target_level=level)
            self.assertEqual(level, link.target_level)
        with self.assertRaisesRegex(
            ValueError, "target_level is 'word'.*'group', 'segment', 'token'"
        ):
            Link("a", self.targets, "b", target_level="word")


class LiftingTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, lifted, expected):
        self.assertEqual(expected, lifted.to_list())
        self.assertEqual(3, lifted.ragged_rank)
        # All of one kind, so that sections can be joined.
        self.assertEqual(tf.int64, lifted.row_splits.dtype)
        self.assertEqual(tf.int32, lifted.dtype)

    @parameterized.parameters(tf.int32, tf.int64)
    def test_one_segment(self, splits):
        tokens = tf.ragged.constant(
            [[7, 8], [], [9]], ragged_rank=1, row_splits_dtype=splits
        )
        self._check(
            layout_spec.one_segment(tokens), [[[[7, 8]]], [[[]]], [[[9]]]]
        )

    @parameterized.parameters(tf.int32, tf.int64)
    def test_one_group(self, splits):
        segments = tf.ragged.constant(
            [[[7, 8], [9]], [], [[]]], ragged_rank=2, row_splits_dtype=splits
        )
        # A record without segments keeps its one group.
        self._check(
            layout_spec.one_group(segments), [[[[7, 8], [9]]], [[]], [[[]]]]
        )

    @parameterized.parameters(tf.int32, tf.int64)
    def test_groups_of_one(self, splits):
        segments = tf.ragged.constant(
            [[[7, 8], [9]], [], [[]]], ragged_rank=2, row_splits_dtype=splits
        )
        self._check(
            layout_spec.groups_of_one(segments),
            [[[[7, 8]], [[9]]], [], [[[]]]],
        )

    def test_constant_tokens(self):
        for batch in (0, 3):
            tokens = layout_spec.constant_tokens([101, 5], tf.constant(batch))
            self.assertEqual([[101, 5]] * batch, tokens.to_list())
            self._check(layout_spec.one_segment(tokens), [[[[101, 5]]]] * batch)

    def test_graph_code(self):
        @tf.function(
            input_signature=[
                tf.RaggedTensorSpec([None, None, None], tf.int32, 2)
            ]
        )
        def lift(segments):
            return (
                layout_spec.one_group(segments),
                layout_spec.groups_of_one(segments),
            )

        for value in ([[[1], [2, 3]]], [[[4]], []]):
            ragged = tf.ragged.constant(
                value, ragged_rank=2, row_splits_dtype=tf.int64
            )
            group, groups = lift(ragged)
            self.assertEqual([[record] for record in value], group.to_list())
            self.assertEqual(
                [[[segment] for segment in record] for record in value],
                groups.to_list(),
            )


if __name__ == "__main__":
    tf.test.main()
