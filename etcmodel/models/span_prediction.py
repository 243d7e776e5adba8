"""Where an answer begins and ends: extractive question answering.

ReadTwice paper, Appendix C.1. A batch is a list of segments ("blocks") of
documents; what belongs to one document is compared in `span_loss`.
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.layers.activations import get_activation
from etcmodel.layers.residual_block import ResidualBlock
from etcmodel.models import heads
from etcmodel.models.pretraining_heads import static_size
from etcmodel.ops import shapes

# The logits of tokens that are no part of an answer.
MASKED_LOGIT = -1e6


class BestSpans(NamedTuple):
    """The best spans of each block, the best one first.

    Attributes:
        begins: `<int32>[blocks, k]` first token of each.
        ends: `<int32>[blocks, k]` last token of each.
        scores: `<float32>[blocks, k]`, its two logits added.
    """

    begins: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SpanPredictionHead(graph_layer.GraphLayer):
    """Two logits for each token: whether an answer begins or ends there.

    `W_b FFN(H)` and `W_e FFN(H)` with one feed-forward part for both (ReadTwice
    paper, Appendix C.1, equations 5 and 6), which is a block with dropout,
    residual connection and layer normalization.

    Args:
        intermediate_size: inner size of the feed-forward part; None for no such
            part.
        intermediate_activation: name of its activation, as in `get_activation`;
            "gelu" is the tanh form.
        dropout_rate: dropout on its output.
        initializer_range: standard deviation of the kernels' truncated normal
            initializer; None for Keras's default, which the original code has.
        name: name of the layer.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        ValueError: there is no such activation.
    """

    def __init__(
        self,
        intermediate_size: int | None,
        intermediate_activation: str | None = "gelu",
        dropout_rate: float = 0.0,
        initializer_range: float | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.intermediate_size = intermediate_size
        self.intermediate_activation = intermediate_activation
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range
        self.transform = None
        if intermediate_size is not None:
            self.transform = ResidualBlock(
                normalization_layer=normalization.LayerNormalization(
                    epsilon=1e-3, dtype=self.dtype_policy, name="layer_norm"
                ),
                dropout_probability=dropout_rate,
                inner_intermediate_size=intermediate_size,
                inner_activation=get_activation(intermediate_activation),
                inner_kernel_initializer=heads.make_kernel_initializer(
                    initializer_range
                ),
                name="transform",
                dtype=self.dtype_policy,
            )
        self.span_logits = heads.make_logits_layer(
            2, initializer_range, "span_logits"
        )

    def build(self, input_shape):
        """Makes the weights.

        Args:
            input_shape: shape of `hidden_states`.

        Raises:
            ValueError: the last axis has no static size.
        """
        size = static_size(self.name, "hidden_states", input_shape)
        if self.transform is not None:
            keras_compat.build_once(self.transform, (None, None, size))
        keras_compat.build_once(self.span_logits, (None, None, size))
        super().build(input_shape)

    def call(
        self,
        hidden_states,
        token_ids=None,
        padding_token_id=None,
        ignore_prefix_length=None,
        training=None,
    ):
        """Calculates the logits.

        With a `padding_token_id` of 9, an `ignore_prefix_length` of 1 and
        logits `b` and `e`:

            token_ids         5     7     0     9
            begin          -1e6   b_1   b_2  -1e6
            end            -1e6   e_1   e_2  -1e6

        Args:
            hidden_states: `<float>[blocks, length, hidden_size]`.
            token_ids: `<int>[blocks, length]`, given together with
                `padding_token_id`.
            padding_token_id: the token that is no part of an answer. An int.
            ignore_prefix_length: `<int>[blocks]`, how many of the first tokens
                are no part of an answer, such as those of the question.
            training: whether dropout is applied.

        Returns:
            `<float32>[blocks, length, 2]` in every precision policy: begin and
            end; -1e6 for what is no part of an answer.

        Raises:
            ValueError: of `token_ids` and `padding_token_id` only one is given,
                or an argument has another rank.
        """
        if (token_ids is None) != (padding_token_id is None):
            given, missing = "token_ids", "padding_token_id"
            if token_ids is None:
                given, missing = missing, given
            raise ValueError(
                f"{self.name}: {given} is given without {missing}; give both "
                "or neither"
            )
        _, length, _ = shapes.get_shape_list(hidden_states, 3, "hidden_states")
        if self.transform is not None:
            hidden_states = self.transform(hidden_states, training=training)
        # [blocks, length, 2]
        logits = self.span_logits(tf.cast(hidden_states, tf.float32))
        if token_ids is not None:
            shapes.assert_rank(token_ids, 2, "token_ids")
            logits = _mask(logits, tf.not_equal(token_ids, padding_token_id))
        if ignore_prefix_length is not None:
            shapes.assert_rank(ignore_prefix_length, 1, "ignore_prefix_length")
            prefix = tf.cast(ignore_prefix_length, tf.int32)[:, tf.newaxis]
            # [blocks, length]
            logits = _mask(logits, tf.range(length)[tf.newaxis] >= prefix)
        return logits

    def compute_output_shape(self, input_shape):
        """Two logits for each token."""
        return (*input_shape[:-1], 2)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "intermediate_size": self.intermediate_size,
            "intermediate_activation": self.intermediate_activation,
            "dropout_rate": self.dropout_rate,
            "initializer_range": self.initializer_range,
        }


def best_spans(logits: tf.Tensor, max_length: int, k: int) -> BestSpans:
    """The spans of each block with the highest scores.

    All spans of up to `max_length` tokens are compared, not only those of the
    best begins and ends. Example, with `max_length=2` and `k=2`, one block:

        begin logits   1    0    2.5
        end logits     0    3    1

        begins [[0, 2]], ends [[1, 2]], scores [[4, 3.5]]

    Of spans with equal scores, the first ones come first, and the shortest of
    those that begin with the same token.

    Args:
        logits: `<float>[blocks, length, 2]`, begin and end, see
            `SpanPredictionHead`.
        max_length: number of tokens of the longest spans. An int.
        k: number of spans. An int.

    Returns:
        A `BestSpans`. Where there are less than `k` spans, those that fill up
        have a score of -2e6 and some positions in the block. A score of about
        -1e6 is that of a span with a masked end.

    Raises:
        ValueError: `max_length` or `k` is below 1, or the logits have another
            rank.
    """
    if min(max_length, k) < 1:
        raise ValueError(
            f"max_length ({max_length}) and k ({k}) must be at least 1"
        )
    logits = tf.cast(logits, tf.float32)
    blocks, length, _ = shapes.get_shape_list(logits, 3, "logits")
    last = length - 1
    # [length, max_length]
    ends = tf.range(length)[:, tf.newaxis] + tf.range(max_length)
    # [blocks, length, max_length]
    scores = logits[:, :, :1] + tf.gather(
        logits[:, :, 1], tf.minimum(ends, last), axis=1
    )
    lowest = scores.dtype.min
    scores = tf.where(ends <= last, scores, lowest)
    # [blocks, length * max_length + k]
    scores = tf.pad(
        tf.reshape(scores, [blocks, length * max_length]),
        [[0, 0], [0, k]],
        constant_values=lowest,
    )
    # [blocks, k]
    scores, indices = tf.math.top_k(scores, k)
    begins = indices // max_length
    ends = begins + indices % max_length
    scores = tf.where(ends <= last, scores, 2 * MASKED_LOGIT)
    return BestSpans(tf.minimum(begins, last), tf.minimum(ends, last), scores)


def _mask(logits, can_be_chosen):
    """The logits, masked for tokens that cannot be chosen.

    Args:
        logits: `<float32>[blocks, length, 2]`.
        can_be_chosen: `<bool>[blocks, length]`.

    Returns:
        `<float32>[blocks, length, 2]`.
    """
    return heads.mask_logits(
        logits, can_be_chosen[..., tf.newaxis], MASKED_LOGIT
    )
