import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.layers import EmbeddingLookup
from etcmodel.layers import fused_side_attention_test as shared
from etcmodel.layers import token_selection
from etcmodel.models import coreference_loss
from etcmodel.models import coreference_loss_test
from etcmodel.models import losses
from etcmodel.models import pretraining_heads
from etcmodel.models import read_twice_model_test as model_test
from etcmodel.models.read_twice_config import ReadTwiceConfig
from etcmodel.models.read_twice_model import ReadTwiceModel

HIDDEN, EMBEDDING, VOCAB = 6, 4, 11
ITEMS, ALL = 5, 8
# Entities 7, 8 and 9; an unknown one, and one that is not there.
IDS = np.array([7, 8, 1, 7, 0, 8, 9, 1])

ACTIVATIONS = {
    None: lambda x: x,
    "gelu": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def head_reference(head, hidden_states, table):
    """The logits from the head's weights, in float64."""
    x = shared.dense(head.dense, hidden_states)
    x = ACTIVATIONS[head.activation](x)
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + head.layer_norm_epsilon)
    norm = head.layer_norm
    x = x * np.array(norm.gamma, np.float64) + np.array(norm.beta)
    return x @ table.T + np.array(head.output_bias, np.float64)


def make_head(activation="gelu", seed=0, **kwargs):
    """A built head with random weights."""
    head = pretraining_heads.LanguageModelHead(
        VOCAB, EMBEDDING, activation, **kwargs
    )
    head.build((None, None, HIDDEN))
    shared.randomize(head, seed)
    return head


class MaskedLmLossesTest(tf.test.TestCase):
    def test_hand_computed_case(self):
        # Probabilities of 1/8, 2/8 and 5/8, and of 1/3 each.
        logits = np.log([[[1.0, 2.0, 5.0], [3.0, 3.0, 3.0]]])
        values = pretraining_heads.masked_lm_losses(logits, [[1, 2]])
        self.assertAllClose(values, np.log([[4.0, 3.0]]))
        self.assertEqual(tf.float32, values.dtype)

    def test_loss_and_accuracy_of_a_batch(self):
        rng = np.random.default_rng(0)
        logits = rng.normal(size=[2, 3, VOCAB])
        labels = rng.integers(VOCAB, size=[2, 3])
        labels[0, 0], labels[1, 2] = logits.argmax(-1)[[0, 1], [0, 2]]
        labels[0, 1] = logits[0, 1].argmin()
        weights = np.array([[1, 1, 0], [0, 0, 1]], np.float32)
        values = pretraining_heads.masked_lm_losses(
            tf.constant(logits, tf.float32), labels
        )
        expected = 0.0
        for i, j in ((0, 0), (0, 1), (1, 2)):
            probs = np.exp(logits[i, j]) / np.exp(logits[i, j]).sum()
            expected -= np.log(probs[labels[i, j]]) / (3 + 1e-5)
        self.assertAllClose(losses.weighted_mean(values, weights), expected)
        self.assertAllClose(
            losses.weighted_mean(losses.is_correct(logits, labels), weights),
            2 / (3 + 1e-5),
        )


class LanguageModelHeadTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        self.states = rng.normal(size=[2, 3, HIDDEN])
        self.table = rng.normal(size=[VOCAB, EMBEDDING])

    @parameterized.product(
        activation=list(ACTIVATIONS), layer_norm_epsilon=[1e-3, 0.5]
    )
    def test_equals_the_reference(self, **kwargs):
        head = make_head(dtype="float64", **kwargs)
        expected = head_reference(head, self.states, self.table)
        logits = head(self.states, self.table)
        self.assertEqual(tf.float32, logits.dtype)
        self.assertAllClose(logits, expected, 1e-6, 1e-6)
        # Any number of leading axes.
        self.assertAllClose(
            head(self.states[0], self.table), expected[0], 1e-6, 1e-6
        )
        self.assertAllClose(
            head(self.states[:, :, None], self.table),
            expected[:, :, None],
            1e-6,
            1e-6,
        )
        self.assertEqual(
            [2, 0, VOCAB], head(self.states[:, :0], self.table).shape
        )

    def test_gradients(self):
        head = make_head(dtype="float64")
        shared.check_gradients(
            self,
            head,
            [self.states, self.table],
            lambda x, table: tf.cast(head(x, table), tf.float64),
            lambda x, table: head_reference(head, x, table),
        )

    def test_initial_weights(self):
        head = pretraining_heads.LanguageModelHead(300, 200)
        head.build((None, None, 400))
        # A normal distribution cut at two standard deviations, which leaves
        # 0.88 of its standard deviation.
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
        # Too fine for the compute dtype; it is added in float32.
        weights = head.get_weights()
        bias = 1000 + np.arange(VOCAB) / 8
        head.set_weights([bias if w.shape == (VOCAB,) else w for w in weights])
        logits = head(tf.constant(self.states, tf.bfloat16), self.table)
        expected = head_reference(head, self.states, self.table) - bias
        self.assertEqual(tf.float32, logits.dtype)
        error = np.abs(logits - bias - expected).mean()
        self.assertLess(error, 0.02 * np.abs(expected).mean())
        self.assertAllEqual(
            head(tf.constant(self.states, tf.bfloat16), lookup.embedding_table),
            logits,
        )
        # The table itself learns in float32.
        with tf.GradientTape() as tape:
            logits = head(self.states, lookup.embedding_table)
            loss = tf.reduce_sum(logits**2)
        gradients = tape.gradient(
            loss, head.trainable_variables + lookup.trainable_variables
        )
        for gradient in gradients:
            self.assertEqual(tf.float32, gradient.dtype)
            self.assertGreater(np.abs(gradient).max(), 0)

    def test_any_length_compiled(self):
        head = make_head()

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, HIDDEN], tf.float32),
                tf.TensorSpec([None, None], tf.bool),
            ],
            jit_compile=True,
        )
        def run(states, is_target):
            positions, weights = token_selection.true_positions(is_target, 2)
            with tf.GradientTape() as tape:
                tape.watch(states)
                logits = head(
                    token_selection.gather_positions(states, positions),
                    tf.constant(self.table, tf.float32),
                )
                values = pretraining_heads.masked_lm_losses(logits, positions)
                loss = losses.weighted_mean(values, weights)
            return logits, loss, tape.gradient(loss, states)

        for length in (2, 3):
            states = self.states[:, :length].astype(np.float32)
            is_target = np.array([[0, 1, 0], [1, 1, 1]])[:, :length] == 1
            logits, loss, gradient = run(states, is_target)
            expected = head_reference(
                head,
                np.stack([states[0, [1, 0]], states[1, [0, 1]]]),
                self.table,
            )
            self.assertAllClose(logits, expected, 1e-4, 1e-4)
            picked = np.stack(
                [expected[0, 0, 1], expected[1, 0, 0], expected[1, 1, 1]]
            )
            normalizers = np.log(np.exp(expected).sum(-1))
            mean = (normalizers[0, 0] + normalizers[1].sum() - picked.sum()) / (
                3 + 1e-5
            )
            self.assertAllClose(loss, mean, 1e-4, 1e-4)
            is_read = np.abs(gradient).sum(-1) > 0
            self.assertAllEqual(
                is_read, np.array([[0, 1, 0], [1, 1, 0]])[:, :length] == 1
            )

    def test_config_round_trip(self):
        head = make_head("relu", initializer_range=0.5, layer_norm_epsilon=0.1)
        config = head.get_config()
        self.assertEqual(
            [VOCAB, EMBEDDING, "relu", 0.5, 0.1, "language_model_head"],
            [
                config[name]
                for name in (
                    "vocab_size",
                    "embedding_size",
                    "activation",
                    "initializer_range",
                    "layer_norm_epsilon",
                    "name",
                )
            ],
        )
        copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(head))
        self.assertIsInstance(copy, pretraining_heads.LanguageModelHead)
        self.assertEqual(config, copy.get_config())
        if not copy.built:
            copy.build((None, HIDDEN))
        copy.set_weights(head.get_weights())
        self.assertAllEqual(
            copy(self.states, self.table), head(self.states, self.table)
        )

    def test_errors(self):
        make = pretraining_heads.LanguageModelHead
        for sizes in ((0, 4), (4, 0)):
            with self.assertRaisesRegex(ValueError, "must be at least 1"):
                make(*sizes)
        with self.assertRaisesRegex(ValueError, "unknown activation 'swish'"):
            make(4, 4, activation="swish")
        for shape in (None, (None, None)):
            with self.assertRaisesRegex(ValueError, "hidden_states needs a st"):
                make(4, 4).build(shape)
        with self.assertRaisesRegex(ValueError, r"is \[11, 4\]"):
            make_head()(self.states, self.table.T)


@tf.keras.utils.register_keras_serializable(package="etcmodel_test")
class Pretraining(tf.keras.layers.Layer):
    """Encoder and heads: the logits of some tokens, and the loss of items."""

    def __init__(self, config, most=2, **kwargs):
        super().__init__(**kwargs)
        self.most = most
        self.encoder = ReadTwiceModel(config)
        self.head = pretraining_heads.LanguageModelHead(
            config.vocab_size, config.embedding_size or config.hidden_size
        )
        self.coreference = coreference_loss.BatchCoreferenceResolutionLoss()

    def build(self, input_shape):
        size = self.encoder.config.hidden_size
        self.encoder.build(None)
        self.head.build((None, None, size))
        self.coreference.build((None, size))
        super().build(input_shape)

    def call(self, is_target, **features):
        output = self.encoder(**features)
        positions, _ = token_selection.true_positions(is_target, self.most)
        logits = self.head(
            token_selection.gather_positions(
                output.final_hidden_states, positions
            ),
            self.encoder.get_token_embedding_table(),
        )
        return logits, self.coreference(
            output.local_summary.states,
            output.local_summary.labels,
            output.global_summary.states,
            output.global_summary.labels,
        )

    def get_config(self):
        config = self.encoder.config.to_dict()
        return {**super().get_config(), "config": config, "most": self.most}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["config"] = ReadTwiceConfig.from_dict(config["config"])
        return cls(**config)


class WithTheEncoderTest(tf.test.TestCase):
    def test_one_table_for_both(self):
        """In a functional model that is saved and loaded."""
        layer = Pretraining(
            model_test.make_config(
                embedding_size=EMBEDDING,
                **model_test.PAPER,
                **model_test.NO_DROPOUT,
            )
        )
        layer.build(None)
        rng = np.random.default_rng(0)
        layer.set_weights(
            [w + 0.4 * rng.normal(size=w.shape) for w in layer.get_weights()]
        )
        batch = model_test.make_batch()
        batch["is_target"] = tf.equal(batch["token_ids"] % 3, 1)
        inputs = {
            name: tf.keras.Input(x.shape[1:], dtype=x.dtype, name=name)
            for name, x in batch.items()
        }
        model = tf.keras.Model(inputs, layer(**inputs))
        # The table of tokens is there once.
        shapes = [tuple(w.shape) for w in model.trainable_weights]
        self.assertEqual(1, shapes.count((model_test.VOCAB, EMBEDDING)))

        logits, values = model(batch)
        features = {k: v for k, v in batch.items() if k != "is_target"}
        output = layer.encoder(**features)
        table = np.array(layer.encoder.get_token_embedding_table())
        states = output.final_hidden_states.numpy().astype(np.float64)
        for i, row in enumerate(batch["is_target"].numpy()):
            (positions,) = np.nonzero(row)
            positions = positions[:2]
            self.assertAllClose(
                logits[i, : len(positions)],
                head_reference(layer.head, states[i, positions], table),
                1e-4,
                1e-4,
            )
        items = output.local_summary.states.numpy()
        ids = batch["annotation_labels"].numpy().reshape(-1)
        self.assertAllClose(
            values,
            coreference_loss_test.coreference_reference(
                layer.coreference, items, ids, items, ids
            ),
            1e-4,
            1e-4,
        )

        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = tf.keras.models.load_model(path)
        self.assertAllClose(loaded(batch), (logits, values), 1e-5, 1e-5)
        # It is still one table: what changes it changes the logits.
        (copy,) = [x for x in loaded.layers if isinstance(x, Pretraining)]
        self.assertLen(copy.weights, len(layer.weights))
        for each in (layer, copy):
            lookup = each.encoder.token_emb_lookup
            lookup.embedding_table.assign(table[::-1])
        self.assertNotAllClose(loaded(batch)[0], logits)
        self.assertAllClose(loaded(batch), model(batch), 1e-5, 1e-5)

    def test_both_ends_of_the_table_learn(self):
        lookup = EmbeddingLookup(VOCAB, HIDDEN, dtype="float64")
        lookup.build(None)
        head = pretraining_heads.LanguageModelHead(
            VOCAB, HIDDEN, dtype="float64"
        )
        head.build((None, HIDDEN))
        shared.randomize(head)
        shared.randomize(lookup)
        ids = np.array([3, 5])

        def expected():
            table = np.array(lookup.embedding_table)
            return head_reference(head, table[ids], table)

        shared.check_gradients(
            self,
            lookup,
            [],
            lambda: tf.cast(
                head(lookup(ids), lookup.embedding_table), tf.float64
            ),
            expected,
        )


if __name__ == "__main__":
    tf.test.main()
