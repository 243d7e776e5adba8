"""Extractive question answering: predicts where an answer begins and ends.

ReadTwice paper, Appendix C.1. A batch is a list of segments ("blocks");
`span_loss` normalizes over the segments of a document.
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

# The logits of tokens that cannot be part of an answer.
MASKED_LOGIT = -1e6


class BestSpans(NamedTuple):
    """The spans with the highest scores in each block, the best first.

    `begins` and `ends` are the first and last tokens, `<int32>[blocks, k]`;
    `scores` are sums of logits, `<float32>[blocks, k]`.
    """

    begins: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class SpanPredictionHead(
    keras_compat.ConstructorConfig, graph_layer.GraphLayer
):
    """Computes each token's logits of being an answer's begin and end.

    The logits are `W_b FFN(H)` and `W_e FFN(H)` (ReadTwice paper, Appendix C.1,
    equations 5 and 6). Both logits share one feed-forward block `FFN` with
    dropout, a residual connection and layer normalization.

    Args:
        intermediate_size: inner size of the feed-forward block; None to skip
            it.
        hidden_act: name of the block's activation; "gelu" is the tanh form.
        hidden_dropout_prob: dropout on the block's output.
        initializer_range: standard deviation of the initial kernels; None for
            Keras's default, as in the original code.
    """

    _FORMER_NAMES = {
        "intermediate_activation": "hidden_act",
        "dropout_rate": "hidden_dropout_prob",
    }

    def __init__(
        self,
        intermediate_size: int | None,
        hidden_act: str | None = "gelu",
        hidden_dropout_prob: float = 0.0,
        initializer_range: float | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.initializer_range = initializer_range
        self.transform = None
        if intermediate_size is not None:
            self.transform = ResidualBlock(
                normalization_layer=normalization.LayerNormalization(
                    epsilon=1e-3, dtype=self.dtype_policy, name="layer_norm"
                ),
                dropout_probability=hidden_dropout_prob,
                inner_intermediate_size=intermediate_size,
                inner_activation=get_activation(hidden_act),
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
        """Creates the weights; the last axis needs a static size."""
        size = static_size(self.name, "hidden_states", input_shape)
        keras_compat.build_all(
            (None, None, size), self.transform, self.span_logits
        )
        super().build(input_shape)

    def call(
        self,
        hidden_states,
        token_ids=None,
        padding_token_id=None,
        ignore_prefix_length=None,
        training=None,
    ):
        """Computes `<float32>[blocks, length, 2]` logits.

        Tokens that cannot be part of an answer get -1e6. With a
        `padding_token_id` of 9, an `ignore_prefix_length` of 1 and logits `b`
        and `e`:

            token_ids         5     7     0     9
            begin          -1e6   b_1   b_2  -1e6
            end            -1e6   e_1   e_2  -1e6

        Args:
            hidden_states: `<float>[blocks, length, hidden_size]`.
            token_ids: `<int>[blocks, length]`.
            padding_token_id: id of padding, required with `token_ids`.
            ignore_prefix_length: `<int>[blocks]`, number of tokens at the start
                that cannot be part of an answer, such as the question.
            training: whether dropout is applied.

        Raises:
            ValueError: only one of `token_ids` and `padding_token_id` is given,
                or an argument has the wrong rank.
        """
        if (token_ids is None) != (padding_token_id is None):
            given, missing = "token_ids", "padding_token_id"
            if token_ids is None:
                given, missing = missing, given
            raise ValueError(
                f"{self.name}: {given} is given without {missing}. Give both "
                "or neither."
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
        """Returns two logits for each token."""
        return (*input_shape[:-1], 2)


def best_spans(logits: tf.Tensor, max_length: int, k: int) -> BestSpans:
    """Finds the `k` spans of each block with the highest scores.

    Compares all spans of up to `max_length` tokens, not only combinations of
    the best begins and ends. Example with one block, `max_length=2` and `k=2`:

        begin logits   1    0    2.5
        end logits     0    3    1

        begins [[0, 2]], ends [[1, 2]], scores [[4, 3.5]]

    Ties go to the first span, and then to the shortest. If a block has fewer
    than `k` spans, the missing ones have the score -2e6 and arbitrary
    positions. Spans with a masked begin or end have scores of about -1e6.

    Raises:
        ValueError: `max_length` or `k` is below 1, or the logits are not
            `<float>[blocks, length, 2]`.
    """
    if min(max_length, k) < 1:
        raise ValueError(
            f"max_length ({max_length}) and k ({k}) must be at least 1."
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
    return heads.mask_logits(
        logits, can_be_chosen[..., tf.newaxis], MASKED_LOGIT
    )
