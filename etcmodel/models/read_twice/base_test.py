import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import fused_side_attention_test as fused_test
from etcmodel.layers import side_attention_test as side_test
from etcmodel.models.read_twice import read_twice_model_test as model_test


class EmbeddedTokensTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(None, 5)
    def test_equals_the_reference(self, embedding_size):
        model = model_test.make_model(
            embedding_size=embedding_size, dtype="float64"
        )
        ids = np.array([[3, 0, 7], [9, 9, 1]])
        lookup = model.token_emb_lookup
        tokens = np.array(lookup.embedding_table, np.float64)[ids]
        if embedding_size:
            tokens = fused_test.dense(lookup.projection, tokens)
        table = np.array(model.position_emb_lookup_long.embedding_table)
        for positions in (None, np.array([[5, 1, 0], [2, 2, 4]])):
            rows = np.arange(3) if positions is None else positions
            expected = side_test.normalize(
                model.emb_layer_norm, tokens + table[rows]
            )
            actual = model._embed(ids, positions, training=False)
            self.assertAllClose(expected, actual)

    def test_dropout_in_training_only(self):
        model = model_test.make_model(hidden_dropout_prob=0.5)
        ids = np.arange(36).reshape(6, 6)
        for training, share in ((True, 0.5), (False, 0.0)):
            embedded = model._embed(ids, None, training).numpy()
            self.assertAllClose(share, np.mean(embedded == 0), atol=0.15)


if __name__ == "__main__":
    tf.test.main()
