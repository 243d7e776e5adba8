import numpy as np
import tensorflow as tf

from testing.attention_cases import reference_attention


def heads(rows):
    """Reshapes `[length, size]` to `[1, length, 1, size]`."""
    return np.array(rows, np.float64)[np.newaxis, :, np.newaxis]


class ReferenceAttentionTest(tf.test.TestCase):
    # One head of size 4: two queries, three keys with the values 1, 2, 3.
    queries = heads([[1, 0, 0, 0], [0, 2, 0, 0]])
    keys = heads([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]])
    values = heads([[1], [2], [3]])

    def test_worked_example_with_labels_and_mask(self):
        # The values are one-hot, so the outputs are the probabilities.
        probs = reference_attention(
            self.queries,
            self.keys,
            heads(np.eye(3)),
            att_mask=[[[1, 1, 0], [1, 1, 1]]],
            relative_att_ids=[[[0, 1, 2], [2, 0, 1]]],
            emb_table=np.array([[[0] * 4], [[1, 0, 0, 0]], [[0, 1, 0, 0]]]),
            bias_table=np.array([[0.0], [0.5], [-0.5]]),
        )
        self.assertAllClose(
            [[0.437823, 0.562177, 0.0], [0.254275, 0.326496, 0.419229]],
            probs[0, :, 0],
            atol=1e-6,
        )

    def test_computed_by_hand(self):
        # Two heads of size 1, so a score is query times key. The first head has
        # the scores ln 1 and ln 3, and the weights 1/4 and 3/4. The second head
        # has the scores 2 ln 3 and 2 ln 1, and the weights 9/10 and 1/10.
        queries = [[[[1.0], [2.0]]]]
        keys = np.log([[[[1.0], [3.0]], [[3.0], [1.0]]]])
        values = [[[[0, 4], [10, 0]], [[8, 0], [0, 20]]]]
        self.assertAllClose(
            [[[[6.0, 1.0], [9.0, 2.0]]]],
            reference_attention(queries, keys, values),
        )

    def test_nothing_to_attend_to_gives_zeros(self):
        output = reference_attention(
            self.queries,
            self.keys,
            self.values,
            att_mask=[[[0, 0, 0], [0, 0, 1]]],
        )
        self.assertAllEqual(heads([[0.0], [3.0]]), output)


if __name__ == "__main__":
    tf.test.main()
