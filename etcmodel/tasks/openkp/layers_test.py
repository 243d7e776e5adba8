from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.datasets.openkp import FEATURES
from etcmodel.tasks.openkp import layers


def node(**values):
    """Returns the features of a node; features that are not given are 0."""
    return [float(values.get(name, 0)) for name in FEATURES]


class VisualTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        # From the tests of the original code.
        *((0, 0), (1, 1), (8, 1), (9, 2), (12, 5), (20, 13), (24, 17)),
        *((25, 18), (29, 18), (30, 19), (35, 20), (44, 21), (49, 22)),
        *((50, 23), (99, 23), (8.5, 1), (9.5, 3)),
    )
    def test_font_buckets(self, size, bucket):
        """Font sizes are rounded; halves are rounded to even numbers."""
        got = layers.visual_classes(
            tf.constant([node(font_size=size), node(parent_font_size=size)])
        )
        self.assertAllEqual([0, 8 + bucket, 32], np.flatnonzero(got[0]))
        self.assertAllEqual([0, 8, 32 + bucket], np.flatnonzero(got[1]))

    def test_kinds(self):
        for flags, kind in (((0, 1, 0), 2), ((1, 0, 1), 5), ((1, 0, 0), 4)):
            names = ("is_block", "is_heading", "is_bold")
            values = node(**dict(zip(names, flags, strict=True)))
            got = layers.visual_classes(tf.constant(values))
            self.assertEqual([56], got.shape)
            self.assertAllEqual([kind, 8, 32], np.flatnonzero(got), str(flags))

    def test_numbers(self):
        got = layers.visual_numbers(
            tf.constant(
                [
                    # The numbers are from a real record.
                    node(x=44, y=78, width=728, height=45, is_inline=1),
                    node(parent_x=-99, parent_height=99999, parent_is_leaf=1),
                ]
            )
        )
        least = [-0.935484, -1, -0.983471, -1]
        self.assertAllClose(
            [
                [-0.87871, -0.02933, -0.95769, -0.995, *least, 1, 0, 0, 0, 0],
                [*least, -1, -1, least[2], 1, 0, 0, 0, 1, 0],
            ],
            got,
            atol=1e-5,
        )

    def test_embedding(self):
        layer = layers.VisualEmbedding(
            6, 2, hidden_act="relu", initializer_range=0.5
        )
        features = np.random.default_rng(0).uniform(0, 30, [2, 3, 20])
        got = layer(tf.constant(features, tf.float32))
        classes, *dense = layer.get_weights()
        hidden = layers.visual_numbers(tf.constant(features, tf.float32))
        for kernel, bias in zip(dense[::2], dense[1::2], strict=True):
            hidden = np.maximum(hidden @ kernel + bias, 0)
        looked_up = layers.visual_classes(tf.constant(features, tf.float32))
        self.assertAllClose(looked_up @ classes + hidden, got, 1e-5)

    def test_half_precision_keeps_positions(self):
        """In bfloat16, the scaled heights of 40 and 45 would be equal."""
        layer = layers.VisualEmbedding(
            6, initializer_range=0.5, dtype="mixed_bfloat16"
        )
        with mock.patch.object(layer.dense_layers[0], "call") as call:
            call.side_effect = lambda x: (
                tf.zeros([*x.shape[:-1], 6]) + x[..., :1]
            )
            self.assertEqual(tf.bfloat16, layer(tf.constant([node()])).dtype)
            layer(tf.constant([node(height=40), node(height=45)]))
        (given,) = call.call_args.args
        self.assertEqual(tf.float32, given.dtype)
        self.assertNotAllClose(given[0], given[1], 0.0, 1e-4)

    def test_no_dense_layers(self):
        with self.assertRaisesRegex(ValueError, "0 dense layers"):
            layers.VisualEmbedding(6, 0)


class NgramHeadTest(tf.test.TestCase, parameterized.TestCase):
    def test_sum_words(self):
        tokens = tf.reshape(tf.range(20.0), [2, 5, 2])
        got = layers.sum_words(
            tokens, tf.constant([[1, 1, 2, 0, 0], [0, 1, 2, 2, 2]])
        )
        self.assertAllEqual(
            [
                [[2, 4], [4, 5], [0, 0], [0, 0], [0, 0]],
                [[12, 13], [48, 51], [0, 0], [0, 0], [0, 0]],
            ],
            got,
        )

    def test_words_of_another_row(self):
        head = layers.NgramHead(4, 3)
        for word in (-1, 4):
            with self.assertRaisesRegex(
                ValueError, f"words is {word} in row 0 .* number of long tokens"
            ):
                head(
                    tf.zeros([2, 3, 4]), tf.constant([[1, word, 0], [1, 1, 0]])
                )

    def test_by_numpy(self):
        head = layers.NgramHead(4, 3, hidden_act="relu", initializer_range=0.5)
        rng = np.random.default_rng(1)
        output = rng.standard_normal([2, 6, 4]).astype(np.float32)
        words = np.array([[1, 2, 2, 3, 4, 0], [1, 1, 2, 0, 0, 0]], np.int32)
        got = head(tf.constant(output), tf.constant(words))
        self.assertEqual([2, 3, 6], got.shape)

        def normalize(x):
            x = x - x.mean(-1, keepdims=True)
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)

        for row in range(2):
            number = words[row].max()
            vectors = normalize(
                np.stack(
                    [
                        output[row][words[row] == i + 1].sum(0)
                        for i in range(number)
                    ]
                )
            )
            for size in (1, 2, 3):
                kernel, bias = head.convolutions[size - 1].get_weights()
                (logit,) = head.logits[size - 1].get_weights()
                for i in range(6):
                    expected = -10000.0
                    if i + size <= number:
                        phrase = np.tensordot(
                            vectors[i : i + size],
                            kernel.reshape([size, 4, 4]),
                            [[0, 1], [0, 1]],
                        )
                        phrase = normalize(np.maximum(phrase + bias, 0))
                        expected = (phrase @ logit)[0]
                    self.assertAllClose(
                        expected, got[row, size - 1, i], 1e-4, 1e-4
                    )

    def test_deviations_of_weights(self):
        head = layers.NgramHead(64)
        head.build((None, None, 64))
        for i, convolution in enumerate(head.convolutions):
            # Standard deviation of a normal distribution truncated at two
            # deviations.
            expected = 0.88 * 0.02 / np.sqrt(i + 1)
            kernel = convolution.get_weights()[0]
            self.assertAllClose(expected, kernel.std(), rtol=0.1)


if __name__ == "__main__":
    tf.test.main()
