import numpy as np
import tensorflow as tf

from testing.small_read_twice import make_model


class ReadTwiceBaseTest(tf.test.TestCase):
    def test_dropout_of_embeddings_in_training_only(self):
        model = make_model(hidden_dropout_prob=0.5)
        ids = np.arange(36).reshape(6, 6)
        for training, share in ((True, 0.5), (False, 0.0)):
            embedded = model._embed(tf.constant(ids), None, training).numpy()
            self.assertAllClose(share, np.mean(embedded == 0), atol=0.15)


if __name__ == "__main__":
    tf.test.main()
