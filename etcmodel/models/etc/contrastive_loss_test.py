import numpy as np
import pytest
import tensorflow as tf

from etcmodel.models.etc import contrastive_loss
from testing import model_references
from testing.helpers import call_in_fresh_process
from testing.helpers import run_on_replicas
from testing.helpers import two_device_strategy
from testing.layer_checks import randomize

ITEMS, HIDDEN = 6, 4
WEIGHTS = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]


def make_loss(dtype="float64"):
    """Returns a built loss with random weights."""
    layer = contrastive_loss.BatchContrastiveLoss(dtype=dtype)
    layer.build((None, HIDDEN))
    randomize(layer, 0)
    return layer


def make_items():
    """Returns predictions and encodings."""
    rng = np.random.default_rng(1)
    return [rng.normal(size=[ITEMS, HIDDEN]) for _ in range(2)]


def run(strategy):
    """Returns a `Contrast` and the gradients of a run with a strategy."""
    with strategy.scope():
        layer = make_loss()

    def replica_step(predictions, encodings, weights):
        with tf.GradientTape() as tape:
            tape.watch([predictions, encodings])
            contrast = layer(predictions, encodings, weights)
            loss = tf.reduce_sum(contrast.losses)
        gradients = tape.gradient(
            loss, [predictions, encodings, layer.bilinear.kernel]
        )
        return [*contrast, *gradients[:2], gradients[2][tf.newaxis]]

    predictions, encodings = make_items()
    batch = dict(
        predictions=predictions, encodings=encodings, weights=np.array(WEIGHTS)
    )
    *rows, kernel = run_on_replicas(strategy, replica_step, batch)
    return [*rows, kernel.sum(axis=0)]


def run_on_two_devices():
    return run(two_device_strategy())


class BatchContrastiveLossTest(tf.test.TestCase):
    @pytest.mark.both_kerases
    def test_equals_the_reference(self):
        layer = make_loss()
        predictions, encodings = make_items()
        kernel = np.array(layer.bilinear.kernel)
        losses, right = model_references.contrastive_loss(
            kernel, predictions, encodings, WEIGHTS
        )
        contrast = layer(
            *(tf.constant(x) for x in (predictions, encodings)),
            tf.constant(WEIGHTS),
        )
        self.assertAllClose(losses, contrast.losses, 1e-12, 1e-12)
        self.assertAllEqual(right, contrast.is_correct)
        self.assertAllClose(0.25 * np.array(WEIGHTS), contrast.chance)
        # The vectors of padding do not matter.
        predictions[2] = encodings[5] = 1e3
        other = layer(
            *(tf.constant(x) for x in (predictions, encodings)),
            tf.constant(WEIGHTS),
        )
        self.assertAllClose(contrast.losses, other.losses, 1e-12, 1e-12)

    def test_two_replicas_have_the_same_batch(self):
        one = run(tf.distribute.get_strategy())
        two = call_in_fresh_process(run_on_two_devices)
        for x, y in zip(one, two, strict=True):
            self.assertAllClose(x, y, 1e-9, 1e-9)

    def test_batch_without_sentences(self):
        layer = make_loss("float32")
        contrast = layer(
            tf.ones([2, HIDDEN]), tf.ones([2, HIDDEN]), tf.zeros([2])
        )
        self.assertAllEqual([0.0, 0.0], contrast.losses)
        self.assertAllEqual([0.0, 0.0], contrast.is_correct)

    def test_half_precision_is_compared_in_float32(self):
        layer = make_loss("mixed_bfloat16")
        items = [tf.cast(x, tf.bfloat16) for x in make_items()]
        contrast = layer(*items, tf.constant(WEIGHTS))
        self.assertEqual(tf.float32, contrast.losses.dtype)
        expected, _ = model_references.contrastive_loss(
            np.array(layer.bilinear.kernel, np.float64),
            *(np.float64(x) for x in items),
            WEIGHTS,
        )
        self.assertAllClose(expected, contrast.losses, 1e-5, 1e-5)

    def test_errors(self):
        layer = make_loss()
        with self.assertRaisesRegex(ValueError, "predictions"):
            layer(tf.ones([2, 3, HIDDEN]), tf.ones([2, HIDDEN]), tf.ones([2]))
        with self.assertRaisesRegex(ValueError, "encodings"):
            layer(tf.ones([2, HIDDEN]), tf.ones([3, HIDDEN]), tf.ones([2]))


if __name__ == "__main__":
    tf.test.main()
