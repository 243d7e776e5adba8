"""Cases of `side_attention` small enough to be computed by hand."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import side_attention


class HandComputedTest(parameterized.TestCase, tf.test.TestCase):
    """One head without projections, so `q`, `k` and `v` are the inputs."""

    def attend(self, main, side, weights=(), hidden=1, **kwargs):
        names = ("att_mask", "main_pos", "side_pos", "att_value_mask")
        call = {n: kwargs.pop(n) for n in names if n in kwargs}
        layer = side_attention.SideAttention(hidden, 0, **kwargs)
        layer.build((None, None, hidden))
        layer.set_weights([np.array(w) for w in weights])
        call = {n: tf.constant(x) for n, x in call.items()}
        output = layer(
            tf.constant(main, tf.float32), tf.constant(side, tf.float32), **call
        )
        return np.array(output)

    def test_no_op_memory(self):
        # Scores 0, log 2 of the memories and log 5 of the no-op memory, whose
        # value of 0 takes 5 of the 8 parts.
        logs = np.log([1.0, 2.0, 5.0])
        output = self.attend(
            [[[1.0]]],
            logs[:2, None],
            [logs[2:]],
            enable_default_side_input=True,
        )
        self.assertAllClose(output, [[[2 * logs[1] / 8]]])
        output = self.attend(
            [[[1.0]]],
            logs[:2, None],
            [logs[2:]],
            enable_default_side_input=True,
            att_mask=[[[0, 0]]],
        )
        self.assertAllEqual(output, [[[0.0]]])

    def test_no_op_memory_among_the_best(self):
        # Of 0, log 2, log 3 and the no-op memory's log 5, the best two.
        logs = np.log([1.0, 2.0, 3.0, 5.0])
        for k, expected in ((1, 0.0), (2, 3 * logs[2] / 8)):
            output = self.attend(
                [[[1.0]]],
                logs[:3, None],
                [logs[3:]],
                enable_default_side_input=True,
                top_k_attention=k,
            )
            self.assertAllClose(output, [[[expected]]])

    def test_the_best_of_each_token(self):
        # The second token turns the order around.
        logs = np.log([1.0, 2.0, 3.0])
        output = self.attend(
            [[[1.0], [-1.0]]], logs[:, None], top_k_attention=2
        )
        # Weights 2 and 3; 1 and 1/2.
        expected = [(2 * logs[1] + 3 * logs[2]) / 5, 0.5 * logs[1] / 1.5]
        self.assertAllClose(output[0, :, 0], expected)

    def test_what_is_masked_is_not_among_the_best(self):
        logs = np.log([1.0, 2.0, 3.0])
        for k in (1, 2, 3, 100):
            output = self.attend(
                [[[1.0]] * 3],
                logs[:, None],
                top_k_attention=k,
                att_mask=[[[0, 1, 0], [1, 1, 0], [0, 0, 0]]],
            )
            pair = 2 * logs[1] / 3 if k > 1 else logs[1]
            self.assertAllClose(output[0, :, 0], [logs[1], pair, 0.0])

    @parameterized.parameters(False, True)
    def test_simple_relative(self, one_hot):
        # Distances -3, -1, 0, 2 and 5 from the segment, clipped to -2 .. 2.
        output = self.attend(
            np.zeros([1, 1, 5]),
            np.eye(5),
            [np.log([[1.0], [2.0], [3.0], [4.0], [5.0]]) * np.sqrt(5)],
            hidden=5,
            pos_embed_mode="simple_relative",
            pos_embed_size=2,
            use_one_hot_embeddings=one_hot,
            main_pos=[5],
            side_pos=[8, 6, 5, 3, 0],
        )
        self.assertAllClose(output[0, 0], np.array([1, 2, 3, 5, 5]) / 16)

    @parameterized.parameters(False, True)
    def test_query_dot_relative(self, one_hot):
        # As above; a query of 2 makes squares of the weights, one of 0 ones.
        output = self.attend(
            [[[0, 0, 0, 0, 2.0], [0, 0, 0, 0, 0]]],
            np.eye(5)[[0, 1, 2, 3]],
            [
                np.log([[1.0], [2], [3], [4], [5]])
                * np.sqrt(5)
                * [0, 0, 0, 0, 1]
            ],
            hidden=5,
            pos_embed_mode="query_dot_relative",
            pos_embed_size=2,
            use_one_hot_embeddings=one_hot,
            main_pos=[5],
            side_pos=[8, 6, 5, 0],
        )
        expected = [
            np.array([1, 4, 9, 25, 0]) / 39,
            np.array([1] * 4 + [0]) / 4,
        ]
        self.assertAllClose(output[0], expected)

    def test_absolute(self):
        # P[1] is 2 and P[m] log(m + 1) / 2; position 9 is the last one.
        for one_hot in (False, True):
            output = self.attend(
                np.zeros([1, 1, 1]),
                [[0.0], [1.0], [10.0]],
                [[[0.0], [2.0], [np.log(3) / 2]]],
                pos_embed_mode="absolute",
                pos_embed_size=3,
                use_one_hot_embeddings=one_hot,
                main_pos=[1],
                side_pos=[0, 2, 9],
            )
            # Weights 1, 3 and 3.
            self.assertAllClose(output, [[[(3 * 1 + 3 * 10) / 7]]])

    def test_absolute_add_ln(self):
        # Vectors of two numbers, normalized, are (1, -1) or (-1, 1).
        for default, weight in ((None, 0.0), ([np.sqrt(2), 0.0], np.e)):
            output = self.attend(
                [[[0.0, 0.0]]],
                [[1.0, 0.0], [0.0, 0.0]],
                [
                    *([] if default is None else [default]),
                    [[3.0, 1.0], [0.0, 9.0], [0, 0], [0, 0], [2.0, 0.0]],
                    [1.0, 1.0],
                    [0.0, 0.0],
                ],
                hidden=2,
                enable_default_side_input=default is not None,
                pos_embed_mode="absolute_add_ln",
                pos_embed_size=2,
                use_one_hot_embeddings=False,
                main_pos=[0],
                # Memories at positions 7, which counts as 4, and 1.
                side_pos=[7, 1],
            )
            # Scores 2 / sqrt(2) and -2 / sqrt(2); that of the default key,
            # which is not normalized, is 1.
            weights = np.exp([np.sqrt(2), -np.sqrt(2)])
            self.assertAllClose(
                output,
                [[[weights[0] / (weights.sum() + weight), 0.0]]],
                rtol=1e-5,
            )

    def test_relative_positions(self):
        self.assertAllEqual(
            [[1, 0], [4, 4]],
            side_attention.relative_positions(
                tf.constant([1, 9]), tf.constant([2, 3]), 2
            ),
        )
        for one_hot in (False, True):
            self.assertAllEqual(
                [[[[7, 5], [0, 8]]]],
                side_attention.choose_columns(
                    tf.constant([[[[5.0, 6, 7], [8, 9, 0]]]]),
                    tf.constant([[2, 0]]),
                    one_hot,
                ),
            )

    def test_value_mask(self):
        output = self.attend([[[1.0], [1.0]]], [[3.0]], att_value_mask=[[0, 1]])
        self.assertAllEqual(output, [[[0.0], [3.0]]])


if __name__ == "__main__":
    tf.test.main()
