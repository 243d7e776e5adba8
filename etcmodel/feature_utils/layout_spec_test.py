import tensorflow as tf
from absl.testing import parameterized

from etcmodel.feature_utils import layout_spec
from etcmodel.feature_utils import layout_units
from etcmodel.feature_utils.layout_spec import GlobalToken
from etcmodel.feature_utils.layout_spec import Link
from etcmodel.feature_utils.layout_spec import Section


class SectionTest(tf.test.TestCase, parameterized.TestCase):
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
        self.assertEqual(layout_units.Costs(*expected), costs)

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
        with self.assertRaisesRegex(
            ValueError, "target_level is 'word'.*'group', 'segment', 'token'"
        ):
            Link("a", None, "b", target_level="word")


class LiftingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        (
            dict(
                lift=layout_spec.one_segment,
                content=[[7, 8], [], [9]],
                expected=[[[[7, 8]]], [[[]]], [[[9]]]],
            ),
            # A record without segments keeps its one group.
            dict(
                lift=layout_spec.one_group,
                content=[[[7, 8], [9]], [], [[]]],
                expected=[[[[7, 8], [9]]], [[]], [[[]]]],
            ),
            dict(
                lift=layout_spec.groups_of_one,
                content=[[[7, 8], [9]], [], [[]]],
                expected=[[[[7, 8]], [[9]]], [], [[[]]]],
            ),
        ),
        splits=[tf.int32, tf.int64],
    )
    def test_lifting(self, lift, content, expected, splits):
        lifted = lift(tf.ragged.constant(content, row_splits_dtype=splits))
        self.assertEqual(expected, lifted.to_list())
        self.assertEqual(3, lifted.ragged_rank)
        # All of one kind, so that sections can be joined.
        self.assertEqual(tf.int64, lifted.row_splits.dtype)
        self.assertEqual(tf.int32, lifted.dtype)

    def test_constant_tokens(self):
        for batch in (0, 3):
            tokens = layout_spec.constant_tokens([101, 5], tf.constant(batch))
            self.assertEqual([[101, 5]] * batch, tokens.to_list())
            self.assertEqual(tf.int32, tokens.dtype)


if __name__ == "__main__":
    tf.test.main()
