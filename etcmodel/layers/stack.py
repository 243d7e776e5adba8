"""Base class of stacks of transformer layers."""

from collections.abc import Callable
from collections.abc import Iterator

import tensorflow as tf

from etcmodel.layers import dense_layers
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.layers import residual_block
from etcmodel.ops import recompute


class TransformerStack(keras_compat.ConstructorConfig, graph_layer.GraphLayer):
    """A stack of transformer layers, whose options are attributes."""

    use_pre_activation_order = False
    grad_checkpointing_period = 0

    def _make_initializer(self):
        return tf.keras.initializers.TruncatedNormal(
            stddev=self.initializer_range
        )

    def _make_block(self, inner_layer, name, normalization_layer=None):
        return residual_block.ResidualBlock(
            inner_layer=inner_layer,
            normalization_layer=normalization_layer,
            dropout_probability=self.hidden_dropout_prob,
            use_pre_activation_order=self.use_pre_activation_order,
            dtype=self.dtype_policy,
            name=name,
        )

    def _make_dense_layers(self, intermediate_size, hidden_size):
        return dense_layers.DenseLayers(
            [intermediate_size, hidden_size],
            activation=self.hidden_act,
            kernel_initializer=self._make_initializer(),
            dtype=self.dtype_policy,
            name="dense_layers",
        )

    def _chains(
        self, apply_chain: Callable, training, return_attention_scores
    ) -> Iterator[tuple[int, int, Callable]]:
        """Yields the start, the end and the function of each chain."""
        is_kept = training is False or return_attention_scores
        for start, end, is_recomputed in chains(
            self.num_hidden_layers, self.grad_checkpointing_period
        ):
            if is_recomputed and not is_kept:
                yield start, end, recompute.recompute_grad(apply_chain)
            else:
                yield start, end, apply_chain


def chains(num_layers: int, period: int) -> list[tuple[int, int, bool]]:
    """Cuts layers into chains for recomputation.

    5 layers with period 2 give `[(0, 1, True), (1, 3, True), (3, 5, False)]`:
    for each chain, the first layer, the end (exclusive) and whether the chain
    is recomputed. The first chain may be shorter. If the period is 0 or at
    least `num_layers`, there is one chain, which is not recomputed.
    """
    if period <= 0 or period >= num_layers:
        return [(0, num_layers, False)]
    ends = list(range(num_layers, 0, -period))[::-1]
    starts = [0] + ends[:-1]
    return [
        (start, end, end < num_layers)
        for start, end in zip(starts, ends, strict=True)
    ]
