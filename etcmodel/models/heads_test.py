import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.models import heads
from etcmodel.models import pretraining_heads
from etcmodel.models import span_prediction
from testing import references


class LogitsTest(tf.test.TestCase, parameterized.TestCase):
    def test_layer_is_float32_in_a_half_precision_policy(self):
        before = tf.keras.mixed_precision.global_policy()
        self.addCleanup(tf.keras.mixed_precision.set_global_policy, before)
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
        layer = heads.make_logits_layer(3, 0.02, "some_logits")
        inputs = np.random.default_rng(2).normal(size=[2, 4, 8])
        logits = layer(tf.constant(inputs, tf.float32))
        self.assertEqual(tf.float32, logits.dtype)
        self.assertAllClose(references.dense(layer, inputs), logits, 1e-5, 1e-6)

    def test_initial_weights(self):
        # The head's `logit` layer comes from `make_logits_layer`.
        layer = heads.GlobalChoiceHead(6, 16, initializer_range=0.5).logit
        layer.build([None, 4096])
        # A normal distribution truncated at two standard deviations has 0.88 of
        # the original standard deviation.
        kernel = np.array(layer.kernel)
        self.assertLess(np.abs(kernel).max(), 1.000001)
        self.assertAllClose(0.44, kernel.std(), rtol=0.05)
        self.assertAllEqual([0.0], layer.bias)

    def test_mask(self):
        logits = tf.constant([[1.0, -2.0], [3e4, -3e4], [0.0, 5.0]])
        can_be_chosen = tf.constant([[True, False], [True, False], [False] * 2])
        masked = heads.mask_logits(logits, can_be_chosen)
        self.assertEqual(tf.float32, masked.dtype)
        self.assertAllEqual([[1.0, -1e4], [3e4, -1e4], [-1e4, -1e4]], masked)
        # Masked tokens have a softmax probability of 0. The softmax is finite
        # even if all tokens are masked.
        self.assertAllEqual(
            [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]], tf.nn.softmax(masked)
        )


class FormerNamesTest(tf.test.TestCase):
    def test_saved_heads_may_have_former_names(self):
        for head, number in (
            (pretraining_heads.LanguageModelHead(9, 4, "relu"), 1),
            (span_prediction.SpanPredictionHead(4, "tanh", 0.5), 2),
        ):
            former = head._FORMER_NAMES
            self.assertLen(former, number)
            config = head.get_config()
            for old, new in former.items():
                config[old] = config.pop(new)
            loaded = type(head).from_config(config)
            self.assertEqual(head.get_config(), loaded.get_config())


class GlobalChoiceHeadTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(1)
        self.inputs = self.rng.normal(size=[2, 5, 8]).astype(np.float32)
        self.types = np.array([[6, 6, 5, 7, 0], [6, 5, 5, 7, 0]], np.int32)

    def _head(self, **kwargs):
        return heads.GlobalChoiceHead(6, intermediate_size=16, **kwargs)

    def _randomized(self, head):
        """Sets every weight to random values; returns them by name."""
        head(self.inputs, self.types)
        values = [
            self.rng.normal(size=weight.shape) for weight in head.get_weights()
        ]
        head.set_weights(values)

    @parameterized.parameters(True, False)
    def test_matches_the_formula(self, add_final_layer):
        head = self._head(add_final_layer=add_final_layer)
        self._randomized(head)
        x = self.inputs.astype(np.float64)
        if add_final_layer:
            x = references.residual_block(
                head.transform,
                x,
                references.feed_forward(head.transform.inner_layer, x),
            )
        logits = references.dense(head.logit, x)[..., 0]
        expected = np.where(self.types == 6, logits, -10000.0)
        self.assertAllClose(
            expected, head(self.inputs, self.types), rtol=1e-4, atol=1e-4
        )
        self.assertLen(head.trainable_variables, 8 if add_final_layer else 2)


if __name__ == "__main__":
    tf.test.main()
