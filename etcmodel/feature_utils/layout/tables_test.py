"""Tests of `tables`."""

import tensorflow as tf

from etcmodel.feature_utils import layout
from etcmodel.feature_utils.layout import GlobalToken
from etcmodel.feature_utils.layout import LayoutEngine
from etcmodel.feature_utils.layout import LayoutSpec
from etcmodel.feature_utils.layout import Section
from etcmodel.feature_utils.layout.tables import Table


def ragged(values, rank):
    return tf.ragged.constant(values, ragged_rank=rank, dtype=tf.int32)


class LayoutTablesTest(tf.test.TestCase):
    def assertFeatures(self, features, **expected):
        for name, values in expected.items():
            values = [int(x) for x in values.split()]
            self.assertAllEqual(features[name][0], values, name)

    def test_table(self):
        """Tokens of two rows, in any order; what is not told is padding."""
        table = Table({"x": 0, "y": -1})
        row = lambda *values: tf.constant(values, tf.int64)  # noqa: E731
        table.add(row(1, 0), row(0, 2), x=row(7, 8), section=0)
        table.add(row(0), row(0), x=5, y=row(9), token_origin=row(3))
        columns, marks = table.dense(tf.constant(2, tf.int64), 3)
        self.assertAllEqual(columns["x"], [[5, 0, 8], [7, 0, 0]])
        self.assertAllEqual(columns["y"], [[9, -1, -1], [-1] * 3])
        self.assertAllEqual(marks["section"], [[-1, -1, 0], [0, -1, -1]])
        self.assertAllEqual(marks["token_origin"], [[3, -1, -1], [-1] * 3])
        self.assertEqual({"x", "y"}, {*columns})
        # Without any, of a length that is not known.
        columns, _ = Table({"x": 4}).dense(
            tf.constant(1, tf.int64), tf.constant(2, tf.int64)
        )
        self.assertAllEqual(columns["x"], [[4, 4]])

    def test_blocks(self):
        """A global token for every two tokens, whatever they are."""
        spec = LayoutSpec(
            [
                Section("question", 3, cut="keep", breaks=False),
                Section("text", 1, unit_global=GlobalToken(7)),
            ]
        ).with_blocks(2, GlobalToken(1, 4))
        contents = {
            "question": layout.one_unit(ragged([[8]], 1)),
            "text": layout.one_unit(ragged([[11, 12, 13, 14]], 1)),
        }
        made = LayoutEngine(spec, 7, 4)(contents)
        self.assertFeatures(
            made.features,
            long_token_ids="8 11 12 13 14 0 0",
            long_token_type_ids="3 1 1 1 1 0 0",
            long_sentence_ids="0 0 1 1 2 -1 -1",
            global_token_ids="1 1 1 0",
            global_token_type_ids="4 4 4 0",
            global_paragraph_breakpoints="0 0 1 0",
        )
        # What has no block has no place.
        made = LayoutEngine(spec, 7, 2)(contents)
        self.assertFeatures(
            made.features,
            long_token_ids="8 11 12 13 0 0 0",
            global_token_ids="1 1",
        )


if __name__ == "__main__":
    tf.test.main()
