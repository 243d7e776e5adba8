import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import EmbeddingLookup
from etcmodel.models import pretraining_heads
from etcmodel.models.read_twice.config import ReadTwiceConfig
from etcmodel.models.read_twice.read_twice_model import ReadTwiceModel
from testing import model_references
from testing import small_read_twice
from testing.layer_checks import randomize

HIDDEN, EMBEDDING, VOCAB = 6, 4, 11


def make_head(hidden_act="gelu", seed=0, **kwargs):
    """Returns a built head with random weights."""
    head = pretraining_heads.LanguageModelHead(
        VOCAB, EMBEDDING, hidden_act, **kwargs
    )
    head.build((None, None, HIDDEN))
    randomize(head, seed)
    return head


class MaskedLmLossesTest(tf.test.TestCase):
    def test_hand_computed_case(self):
        # The first position's probabilities are 1/8, 2/8 and 5/8; the second's
        # are 1/3.
        logits = np.log([[[1.0, 2.0, 5.0], [3.0, 3.0, 3.0]]])
        values = pretraining_heads.masked_lm_losses(logits, [[1, 2]])
        self.assertAllClose(values, np.log([[4.0, 3.0]]))
        self.assertEqual(tf.float32, values.dtype)


class LanguageModelHeadTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        self.states = rng.normal(size=[2, 3, HIDDEN])
        self.table = rng.normal(size=[VOCAB, EMBEDDING])

    @parameterized.parameters(
        (None, 1e-3), ("gelu", 0.5), ("relu", 1e-3), ("tanh", 0.5)
    )
    def test_equals_the_reference(self, hidden_act, epsilon):
        head = make_head(
            hidden_act, dtype="float64", layer_norm_epsilon=epsilon
        )
        expected = model_references.language_model_head(
            head, self.states, self.table
        )
        logits = head(self.states, self.table)
        self.assertEqual(tf.float32, logits.dtype)
        self.assertAllClose(logits, expected, 1e-6, 1e-6)
        # The head accepts any number of leading axes.
        for index in (0, np.s_[:, :, None], np.s_[:, :0]):
            logits = head(self.states[index], self.table)
            self.assertAllClose(logits, expected[index], 1e-6, 1e-6)

    def test_initial_weights(self):
        head = pretraining_heads.LanguageModelHead(300, 200)
        head.build((None, None, 400))
        # A normal distribution truncated at two standard deviations has 0.88 of
        # the original standard deviation.
        kernel = np.array(head.dense.kernel)
        self.assertLess(np.abs(kernel).max(), 0.0400001)
        self.assertAllClose(0.0176, kernel.std(), rtol=0.05)
        self.assertAllEqual(head.output_bias, np.zeros(300))
        self.assertAllEqual(head.dense.bias, np.zeros(200))
        names = {w.name.split("/")[-1].split(":")[0] for w in head.weights}
        self.assertEqual(
            {"kernel", "bias", "gamma", "beta", "output_bias"}, names
        )
        self.assertEqual("dense", head.dense.name)
        self.assertLen(head.trainable_weights, 5)

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision(self, policy):
        head = make_head(dtype=policy)
        lookup = EmbeddingLookup(VOCAB, EMBEDDING, dtype=policy)
        lookup.build(None)
        lookup.set_weights([self.table])
        # The compute dtype would round this bias away; float32 keeps it.
        weights = head.get_weights()
        bias = 1000 + np.arange(VOCAB) / 8
        head.set_weights([bias if w.shape == (VOCAB,) else w for w in weights])
        logits = head(tf.constant(self.states, tf.bfloat16), self.table)
        expected = (
            model_references.language_model_head(head, self.states, self.table)
            - bias
        )
        self.assertEqual(tf.float32, logits.dtype)
        error = np.abs(logits - bias - expected).mean()
        self.assertLess(error, 0.02 * np.abs(expected).mean())
        self.assertAllEqual(
            head(tf.constant(self.states, tf.bfloat16), lookup.embedding_table),
            logits,
        )

    def test_errors(self):
        make = pretraining_heads.LanguageModelHead
        for sizes in ((0, 4), (4, 0)):
            with self.assertRaisesRegex(ValueError, "must be at least 1"):
                make(*sizes)
        with self.assertRaisesRegex(ValueError, "Unknown activation 'swish'"):
            make(4, 4, hidden_act="swish")
        for shape in (None, (None, None)):
            with self.assertRaisesRegex(ValueError, "hidden_states needs a st"):
                make(4, 4).build(shape)
        with self.assertRaisesRegex(ValueError, r"is \[11, 4\]"):
            make_head()(self.states, self.table.T)


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class Pretraining(tf.keras.layers.Layer):
    """Computes the logits of all tokens with an encoder and its head."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = ReadTwiceConfig(**config)
        self.encoder = ReadTwiceModel(self.config)
        self.head = pretraining_heads.LanguageModelHead(
            self.config.vocab_size, self.config.embedding_size
        )

    def build(self, input_shape):
        self.encoder.build(None)
        self.head.build((None, None, self.config.hidden_size))
        super().build(input_shape)

    def call(self, token_ids):
        states = self.encoder(token_ids).final_hidden_states
        return self.head(states, self.encoder.get_token_embedding_table())

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


class WithTheEncoderTest(tf.test.TestCase):
    def test_encoder_and_head_share_one_table(self):
        """Uses a functional model that is saved and loaded."""
        config = small_read_twice.make_config(embedding_size=EMBEDDING)
        layer = Pretraining(config.to_dict())
        ids = small_read_twice.make_batch()["token_ids"]
        inputs = tf.keras.Input(ids.shape[1:], dtype=ids.dtype)
        model = tf.keras.Model(inputs, layer(inputs))
        randomize(layer)
        # The model has a single token table.
        shapes = [tuple(w.shape) for w in model.trainable_weights]
        self.assertEqual(1, shapes.count((small_read_twice.VOCAB, EMBEDDING)))
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        (copy,) = [x for x in loaded.layers if isinstance(x, Pretraining)]
        self.assertLen(copy.weights, len(layer.weights))
        # A change of the table affects embeddings and logits.
        for factor in (1, 2):
            for each in (layer, copy):
                table = each.encoder.token_emb_lookup.embedding_table
                table.assign(factor * table)
            logits = model_references.language_model_head(
                layer.head,
                layer.encoder(ids).final_hidden_states.numpy(),
                np.array(layer.encoder.get_token_embedding_table()),
            )
            self.assertAllClose(model(ids), logits, 1e-4, 1e-4)
            self.assertAllClose(loaded(ids), logits, 1e-4, 1e-4)


if __name__ == "__main__":
    tf.test.main()
