import tensorflow as tf

from etcmodel.feature_utils.layout.tables import Table


class LayoutTablesTest(tf.test.TestCase):
    def test_table(self):
        """Adds tokens of two rows in any order; the rest is padding."""
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
        # A table without tokens, and a length that is a tensor.
        columns, _ = Table({"x": 4}).dense(
            tf.constant(1, tf.int64), tf.constant(2, tf.int64)
        )
        self.assertAllEqual(columns["x"], [[4, 4]])


if __name__ == "__main__":
    tf.test.main()
