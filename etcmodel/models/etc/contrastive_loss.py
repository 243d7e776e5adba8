"""Contrastive loss: a masked sentence's global token predicts the sentence."""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.models import pair_loss
from etcmodel.models.pretraining_heads import static_size
from etcmodel.ops import collectives
from etcmodel.ops import shapes

# A score far below all others, so its probability in a softmax is 0.
_NEVER = -1e9


class Contrast(NamedTuple):
    """The result of `BatchContrastiveLoss`, `<float32>[items]`, 0 for padding.

    `losses` are in nats. `is_correct` is 1 where the right encoding has the
    highest score. `chance` is the accuracy of guessing, 1 / number of items.
    """

    losses: tf.Tensor
    is_correct: tf.Tensor
    chance: tf.Tensor


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class BatchContrastiveLoss(pair_loss.PairLoss):
    """Trains each masked sentence's global token to predict the sentence.

    Contrastive predictive coding as a dual encoder (ETC paper, Appendix B):
    `c_i` is the global token of a masked sentence in its text, and `z_i` the
    global token of the sentence encoded alone. The score of each pair is
    bilinear, as in Oord et al. (2018). The loss is noise contrastive estimation
    with all sentences `j` of the batch on all replicas as candidates:

        loss_i = -log(exp(c_i W z_i) / sum_j exp(c_i W z_j))
    """

    def __init__(self, initializer_range: float = 0.02, **kwargs):
        super().__init__(initializer_range, **kwargs)
        self.bilinear = None

    def build(self, input_shape):
        """Creates the weights; `predictions` needs a static last axis."""
        size = static_size(self.name, "predictions", input_shape)
        if self.bilinear is None:
            self.bilinear = self._make_dense("bilinear", size)
        super().build(input_shape)

    def call(self, predictions, encodings, weights):
        """Returns the `Contrast` of this replica's items.

        Args:
            predictions: `<float>[items, hidden_size]`, the same number on each
                replica.
            encodings: `<float>[items, hidden_size]`, the target of each item.
            weights: `<int or float>[items]`, 0 for padding, which has no loss
                and is not a candidate.

        Raises:
            ValueError: an argument has the wrong rank, or the sizes differ.
        """
        for name, x in (("predictions", predictions), ("encodings", encodings)):
            shapes.assert_rank(x, 2, name)
        if not predictions.shape.is_compatible_with(encodings.shape):
            raise ValueError(
                f"{self.name}: predictions have the shape {predictions.shape}, "
                f"but encodings {encodings.shape}. Expected the same shape."
            )
        is_real = tf.not_equal(weights, 0)
        # [all, hidden_size]
        everywhere = collectives.all_gather(
            tf.cast(encodings, self._score_dtype)
        )
        # [all]
        is_there = collectives.all_gather(tf.cast(is_real, tf.float32)) > 0
        # [items, all]
        scores = tf.matmul(
            self.bilinear(tf.cast(predictions, self._score_dtype)),
            everywhere,
            transpose_b=True,
        )
        scores = tf.where(is_there, scores, tf.constant(_NEVER, scores.dtype))
        items = shapes.get_shape_list(predictions)[0]
        # [items]
        own = collectives.replica_id() * items + tf.range(items)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(own, scores)
        best = tf.argmax(scores, axis=1, output_type=tf.int32)
        number = tf.reduce_sum(tf.cast(is_there, tf.float32))
        return Contrast(
            losses=tf.where(is_real, losses, tf.zeros([], losses.dtype)),
            is_correct=tf.cast(tf.equal(best, own) & is_real, tf.float32),
            chance=tf.cast(is_real, tf.float32) / tf.maximum(number, 1.0),
        )

    def compute_output_shape(self, input_shape):
        """Returns a loss for each item."""
        items = tuple(input_shape[:-1])
        return Contrast(losses=items, is_correct=items, chance=items)
