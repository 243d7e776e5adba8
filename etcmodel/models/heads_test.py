import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import heads


def _gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _layer_norm(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)


class LogitsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("float32", "mixed_bfloat16", "mixed_float16")
    def test_layer_is_float32_in_every_policy(self, policy):
        before = tf.keras.mixed_precision.global_policy()
        self.addCleanup(tf.keras.mixed_precision.set_global_policy, before)
        tf.keras.mixed_precision.set_global_policy(policy)
        layer = heads.make_logits_layer(3, 0.02, "some_logits")
        inputs = np.random.default_rng(2).normal(size=[2, 4, 8])
        logits = layer(tf.constant(inputs, tf.float32))
        self.assertEqual("some_logits", layer.name)
        self.assertEqual(tf.float32, logits.dtype)
        self.assertEqual([2, 4, 3], logits.shape)
        self.assertAllClose(
            inputs @ np.array(layer.kernel) + np.array(layer.bias),
            logits,
            rtol=1e-5,
            atol=1e-6,
        )

    def test_initial_weights(self):
        layer = heads.make_logits_layer(2, 0.5, "logits")
        layer.build([None, 4096])
        # A normal distribution cut at two standard deviations, which leaves
        # 0.88 of its standard deviation.
        kernel = np.array(layer.kernel)
        self.assertLess(np.abs(kernel).max(), 1.000001)
        self.assertAllClose(0.44, kernel.std(), rtol=0.05)
        self.assertAllEqual([0.0, 0.0], layer.bias)

    def test_mask(self):
        logits = tf.constant([[1.0, -2.0], [3e4, -3e4], [0.0, 5.0]])
        can_be_chosen = tf.constant([[True, False], [True, False], [False] * 2])
        masked = heads.mask_logits(logits, can_be_chosen)
        self.assertEqual(tf.float32, masked.dtype)
        self.assertAllEqual([[1.0, -1e4], [3e4, -1e4], [-1e4, -1e4]], masked)
        # A softmax leaves nothing for them, and is defined without choices.
        self.assertAllEqual(
            [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]], tf.nn.softmax(masked)
        )


class GlobalChoiceHeadTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(1)
        self.inputs = self.rng.normal(size=[2, 5, 8]).astype(np.float32)
        self.types = np.array([[6, 6, 5, 7, 0], [6, 5, 5, 7, 0]], np.int32)

    def _head(self, **kwargs):
        return heads.GlobalChoiceHead(6, intermediate_size=16, **kwargs)

    def _randomized(self, head):
        """Gives every weight a value of its own; returns them by name."""
        head(self.inputs, self.types)
        values = [
            self.rng.normal(size=weight.shape) for weight in head.get_weights()
        ]
        head.set_weights(values)

    def test_matches_the_formula(self):
        head = self._head()
        self._randomized(head)
        dense = head.transform.inner_layer.layers
        norm = head.transform.normalization_layers[0]
        kernels = [np.array(layer.kernel) for layer in (*dense, head.logit)]
        biases = [np.array(layer.bias) for layer in (*dense, head.logit)]
        x = self.inputs.astype(np.float64)
        inner = _gelu(x @ kernels[0] + biases[0]) @ kernels[1] + biases[1]
        x = _layer_norm(x + inner) * np.array(norm.gamma) + np.array(norm.beta)
        logits = (x @ kernels[2] + biases[2])[..., 0]
        expected = np.where(self.types == 6, logits, -10000.0)
        self.assertAllClose(
            expected, head(self.inputs, self.types), rtol=1e-4, atol=1e-4
        )

    def test_without_final_layer(self):
        head = self._head(add_final_layer=False)
        self._randomized(head)
        self.assertLen(head.trainable_variables, 2)
        logits = self.inputs @ np.array(head.logit.kernel) + np.array(
            head.logit.bias
        )
        expected = np.where(self.types == 6, logits[..., 0], -10000.0)
        self.assertAllClose(expected, head(self.inputs, self.types))

    def test_initial_weights(self):
        head = heads.GlobalChoiceHead(
            6, intermediate_size=16, initializer_range=0.02
        )
        head(np.zeros([1, 3, 4096], np.float32), np.zeros([1, 3], np.int32))
        # A normal distribution cut at two standard deviations, which leaves
        # 0.88 of its standard deviation.
        kernel = np.array(head.logit.kernel)
        self.assertLess(np.abs(kernel).max(), 0.0400001)
        self.assertAllClose(0.0176, kernel.std(), rtol=0.05)
        self.assertAllEqual([0.0], head.logit.bias)

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    def test_mixed_precision_gives_finite_float32(self, policy):
        head = self._head(dtype=tf.keras.mixed_precision.Policy(policy))
        logits = head(self.inputs, self.types)
        self.assertEqual(tf.float32, logits.dtype)
        self.assertAllEqual(
            np.where(self.types == 6, True, False), logits.numpy() > -5000
        )
        self.assertAllInRange(logits, -10001.0, 100.0)

    def test_dropout_in_training_only(self):
        head = self._head(hidden_dropout_prob=0.5)
        first = head(self.inputs, self.types, training=False)
        self.assertAllEqual(
            first, head(self.inputs, self.types, training=False)
        )
        self.assertNotAllClose(
            first, head(self.inputs, self.types, training=True)
        )

    def test_config_round_trip_and_symbolic_call(self):
        head = self._head(hidden_act="relu", hidden_dropout_prob=0.3)
        copy = heads.GlobalChoiceHead.from_config(head.get_config())
        self.assertEqual(head.get_config(), copy.get_config())
        inputs = tf.keras.Input([None, 8])
        types = tf.keras.Input([None], dtype="int32")
        model = tf.keras.Model([inputs, types], copy(inputs, types))
        self._randomized(copy)
        self.assertAllClose(
            copy(self.inputs, self.types), model([self.inputs, self.types])
        )


if __name__ == "__main__":
    tf.test.main()
