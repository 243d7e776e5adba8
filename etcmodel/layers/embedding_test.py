import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import embedding


def _table(vocab_size, size):
    return np.arange(vocab_size * size).reshape(vocab_size, size) / 10.0


class EmbeddingLookupTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_mask_hides_ids_out_of_range_and_the_projection_bias(
        self, use_one_hot_lookup
    ):
        layer = embedding.EmbeddingLookup(
            6, 3, projection_size=2, use_one_hot_lookup=use_one_hot_lookup
        )
        layer.build((None, None))
        kernel = np.array([[1.0, 0], [0, 1], [1, 1]])
        layer.set_weights([_table(6, 3), kernel, np.array([10.0, 20.0])])
        output = layer(
            tf.constant([[3, 2, 1], [4, -1, 5]]),
            input_mask=tf.constant([[1, 1, 0], [1, 0, 0]]),
        )
        # Id 3 has the embedding (.9, 1, 1.1). Projection and bias make it
        # (.9 + 1.1 + 10, 1 + 1.1 + 20).
        self.assertAllClose(
            [
                [[12.0, 22.1], [11.4, 21.5], [0, 0]],
                [[12.6, 22.7], [0, 0], [0, 0]],
            ],
            output,
        )

    def test_names_and_sizes(self):
        layer = embedding.EmbeddingLookup(7, 4, projection_size=6)
        layer.build((None, None))
        self.assertEqual((7, 4), tuple(layer.embedding_table.shape))
        self.assertEqual((4, 6), tuple(layer.projection.kernel.shape))
        self.assertEqual("projection", layer.projection.name)
        same_size = embedding.EmbeddingLookup(7, 4, projection_size=4)
        self.assertIsNone(same_size.projection)
        for arguments in [(0, 2), (2, 0), (2, 2, -1)]:
            with self.assertRaisesRegex(ValueError, "at least"):
                embedding.EmbeddingLookup(*arguments)

    def test_initializer_range(self):
        layer = embedding.EmbeddingLookup(200, 50, initializer_range=0.3)
        layer.build((None,))
        # Truncation at two standard deviations reduces the standard deviation
        # to 0.8796 of its value.
        self.assertNear(0.2639, np.std(layer.get_weights()[0]), 0.01)

    @pytest.mark.both_kerases
    def test_reads_only_the_rows_of_the_ids(self):
        layer = embedding.EmbeddingLookup(7, 4)
        layer.build((None, None))
        graph = tf.function(layer).get_concrete_function(
            tf.TensorSpec([None, 2], tf.int32)
        )
        types = {x.type for x in graph.graph.get_operations()}
        self.assertIn("ResourceGather", types)
        self.assertNotIn("ReadVariableOp", types)


if __name__ == "__main__":
    tf.test.main()
