import tensorflow as tf

from etcmodel.feature_utils import ragged_rows


def _int64(values):
    return tf.constant(values, tf.int64)


class RaggedRowsTest(tf.test.TestCase):
    def test_examples(self):
        """Uses the examples of the docstrings."""
        splits = _int64([0, 2, 2, 3])
        self.assertAllEqual([0, 2, 2, 5], ragged_rows.cumulative([2, 0, 3]))
        self.assertAllEqual(
            [2, 0, 3], ragged_rows.sum_rows(_int64([2, 0, 3]), splits)
        )
        self.assertAllEqual([2, 0, 1], ragged_rows.lengths(splits))
        owner = ragged_rows.owners(splits)
        self.assertAllEqual([0, 0, 2], owner)
        self.assertAllEqual([0, 1, 0], ragged_rows.index_in(owner, splits))
        ragged = tf.ragged.constant([[7, 8], [], [9]])
        self.assertAllEqual([0, 0, 2], ragged_rows.owners_in(ragged))
        kept = ragged_rows.keep(ragged, tf.constant([True, False, True]))
        self.assertEqual([[7], [], [9]], kept.to_list())
        nested = tf.ragged.constant([[[7, 8], []], [[9]]])
        self.assertEqual([[7, 8], [9]], ragged_rows.merge(nested).to_list())

    def test_types_of_values(self):
        splits = _int64([0, 2, 2, 3])
        for dtype in (tf.bool, tf.int32, tf.int64):
            values = tf.cast([1, 0, 1], dtype)
            self.assertAllEqual([0, 1, 1, 2], ragged_rows.cumulative(values))
            self.assertAllEqual([1, 0, 1], ragged_rows.sum_rows(values, splits))
        short = tf.ragged.constant([["a", "b"], []], row_splits_dtype=tf.int32)
        kept = ragged_rows.keep(short, tf.constant([False, True]))
        self.assertEqual([[b"b"], []], kept.to_list())
        nested = tf.ragged.constant([[[7, 8], []], [[9]]])
        kept = ragged_rows.keep(nested, tf.constant([True, False, True]))
        self.assertEqual([[[7, 8]], [[9]]], kept.to_list())

    def test_nothing(self):
        for rows in ([], [[]], [[], []]):
            ragged = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
            self.assertAllEqual([], ragged_rows.owners_in(ragged))
            mask = tf.zeros([0], tf.bool)
            self.assertEqual(rows, ragged_rows.keep(ragged, mask).to_list())

    def test_a_graph_calls_one_trace(self):
        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False
        )
        def twice(splits):
            owner = ragged_rows.owners(splits)
            return ragged_rows.index_in(owner, splits), ragged_rows.owners(
                splits[:-1]
            )

        graph = twice.get_concrete_function().graph
        calls = [x for x in graph.get_operations() if "Call" in x.type]
        self.assertLen(calls, 3)
        self.assertLen({x.get_attr("f").name for x in calls}, 2)
        for call, expected in zip(
            twice(_int64([0, 2, 2, 3])), ([0, 1, 0], [0, 0]), strict=True
        ):
            self.assertAllEqual(expected, call)


if __name__ == "__main__":
    tf.test.main()
