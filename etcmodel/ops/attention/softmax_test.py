from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import compilation
from etcmodel.ops.attention import softmax


class JointSoftmaxTest(tf.test.TestCase):
    def test_computed_by_hand(self):
        # The exponentials are 1 and 3, and 2 and 4; the 3 is masked.
        scores = [np.log([[1.0, 3.0]]), np.log([[2.0, 4.0]])]
        masks = [tf.constant([[True, False]]), None]
        probs = softmax.joint_softmax([tf.constant(x) for x in scores], masks)
        self.assertAllClose([[1 / 7, 0.0]], probs[0])
        self.assertAllClose([[2 / 7, 4 / 7]], probs[1])

    def test_nothing_to_attend_to(self):
        probs = softmax.joint_softmax(
            [tf.constant([[5.0]]), tf.zeros([1, 0])],
            [tf.constant([[False]]), None],
        )
        self.assertAllEqual([[0.0]], probs[0])
        self.assertEqual((1, 0), probs[1].shape)


class ChooseTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        # Compiled or not; up to which number of columns `tf.where` is used.
        min_compiled=[0, 2**18],
        most_selected=[3, 8, 64, 8 * 64],
        columns=[3, 7],
    )
    def test_values_and_gradients(self, min_compiled, most_selected, columns):
        rng = np.random.default_rng(1)
        chosen = rng.integers(columns, size=(2, 1, 5, 9))
        # Indices out of range give 0.
        chosen[..., :4] = [-1, columns, -columns, 100]
        of_column = rng.standard_normal((2, 3, 5, columns))
        d_scores = rng.standard_normal((2, 3, 5, 9))
        with (
            mock.patch.object(compilation, "MIN_ELEMENTS", min_compiled),
            mock.patch.object(softmax, "MAX_SELECTED_COLUMNS", most_selected),
        ):
            scores = softmax._scores(
                tf.zeros([2, 3, 5, 9], tf.float64),
                None,
                tf.constant(of_column),
                tf.constant(chosen, tf.int32),
            )
            gradient = softmax.choose_gradient(
                tf.constant(d_scores),
                tf.constant(chosen, tf.int32),
                num_columns=columns,
            )
        # [batch, 1, queries, keys, columns]
        is_chosen = chosen[..., np.newaxis] == np.arange(columns)
        self.assertAllClose(
            scores, np.sum(of_column[:, :, :, np.newaxis] * is_chosen, axis=-1)
        )
        self.assertAllClose(
            gradient, np.sum(d_scores[..., np.newaxis] * is_chosen, axis=-2)
        )

    def test_of_two_columns(self):
        chosen = tf.constant([[[[False, True, True]]]])
        self.assertAllEqual(
            [[[[5.0, 7.0, 7.0]]]],
            softmax.choose(tf.constant([[[[5.0, 7.0]]]]), chosen),
        )
        self.assertAllEqual(
            [[[[1.0, 6.0]]]],
            softmax.choose_gradient(
                tf.constant([[[[1.0, 2.0, 4.0]]]]), chosen, num_columns=2
            ),
        )


class PartTest(tf.test.TestCase):
    def test_part(self):
        tensor = tf.reshape(tf.range(12), [2, 6])
        self.assertAllEqual(tensor[:, 1:4], softmax.part(tensor, 1, 1, 3))
        self.assertAllEqual(
            tensor[1:], softmax.part(tensor, 0, tf.constant(1), tf.constant(1))
        )


class MergeTest(tf.test.TestCase):
    def test_equals_attention_to_all(self):
        rng = np.random.default_rng(0)
        # [batch, heads, queries, keys] and [batch, heads, keys, size]
        scores = tf.constant(30 * rng.standard_normal((1, 2, 3, 8)))
        values = tf.constant(rng.standard_normal((1, 2, 8, 4)))
        allowed = rng.random((1, 3, 8)) < 0.6
        allowed[0, 0] = False
        allowed[0, 1, :5] = False

        def attend(start, end):
            keys = slice(start, end)
            return softmax.attend(
                [
                    softmax.KeyBlock(
                        scores[..., keys],
                        values[:, :, keys],
                        tf.constant(allowed[..., keys]),
                    )
                ]
            )

        merged = softmax.merge([attend(0, 5), attend(5, 6), attend(6, 8)])
        (probs,) = softmax.joint_softmax(
            [scores], [tf.constant(allowed)[:, tf.newaxis]]
        )
        self.assertAllClose(
            tf.matmul(probs, values), merged.output, 1e-12, 1e-12
        )
        self.assertAllEqual(tf.zeros([2, 4]), merged.output[0, :, 0])


if __name__ == "__main__":
    tf.test.main()
