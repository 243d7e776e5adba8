"""Stack of global-local transformer layers."""

import tensorflow as tf

from etcmodel.layers import fused_attention
from etcmodel.layers import graph_layer
from etcmodel.layers import keras_compat
from etcmodel.layers import normalization
from etcmodel.layers import stack
from etcmodel.layers.activations import gelu
from etcmodel.layers.activations import get_layer_activation


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class GlobalLocalTransformerLayers(stack.TransformerStack):
    """Global-local transformer layers (ETC paper, section 3).

    Each layer has a global-local attention block and a position-wise
    feed-forward block for each of the two streams, long and global. All blocks
    have residual connections and layer normalization. All layers get the same
    masks and labels.

    Attributes:
        fused_att_layers: the attention `ResidualBlock` of each layer.
        long_feed_forward_layers: the long stream's feed-forward
            `ResidualBlock` of each layer.
        global_feed_forward_layers: the global stream's feed-forward
            `ResidualBlock` of each layer. With shared parameters, the blocks
            contain the long stream's layers, but have their own dropout.

    Args:
        long_hidden_size: width of the long stream.
        global_hidden_size: width of the global stream.
        num_hidden_layers: number of layers, at least 1.
        local_radius: number of tokens that a long token sees on each side.
        att_size_per_head: by default, the hidden size divided by the number of
            heads.
        long_intermediate_size: inner size of the long stream's feed-forward
            blocks; by default 4 times its width.
        global_intermediate_size: the same for the global stream.
        hidden_act: activation of the feed-forward blocks, see `DenseLayers`.
        hidden_dropout_prob: dropout on the output of each block.
        initializer_range: standard deviation of the kernels' truncated normal
            initializer.
        relative_vocab_size: number of relative labels; None for no labels.
        share_feed_forward_params: whether the streams share the parameters of
            their feed-forward blocks. For the other `share_*` options, see
            `FusedGlobalLocalAttention`.
        use_pre_activation_order: see `ResidualBlock`; the output of the last
            layer is then not normalized.
        use_one_hot_lookup: see `QkvRelativeAttention`.
        grad_checkpointing_period: number of consecutive layers in a chain that
            keeps no activations but computes them again in the backward pass; 0
            for no recomputation. The first chain may be shorter. The last chain
            is not recomputed, since its backward pass follows immediately.

    Raises:
        ValueError: a hidden size is not a multiple of the number of heads, or
            parameters are shared between streams of different sizes.
    """

    _activations = ("hidden_act",)

    def __init__(
        self,
        long_hidden_size: int,
        global_hidden_size: int,
        num_hidden_layers: int,
        num_attention_heads: int,
        local_radius: int,
        att_size_per_head: int | None = None,
        long_intermediate_size: int | None = None,
        global_intermediate_size: int | None = None,
        hidden_act=gelu,
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        initializer_range: float = 0.02,
        relative_vocab_size: int | None = None,
        share_feed_forward_params: bool = True,
        share_kv_projections: bool = False,
        share_qkv_projections: bool = True,
        share_att_output_projection: bool = False,
        use_pre_activation_order: bool = False,
        use_one_hot_lookup: bool = False,
        grad_checkpointing_period: int = 0,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.long_hidden_size = long_hidden_size
        self.global_hidden_size = global_hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.local_radius = local_radius
        self.att_size_per_head = att_size_per_head
        self.long_intermediate_size = (
            long_intermediate_size or 4 * long_hidden_size
        )
        self.global_intermediate_size = (
            global_intermediate_size or 4 * global_hidden_size
        )
        self.hidden_act = get_layer_activation(hidden_act)
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.relative_vocab_size = relative_vocab_size
        self.share_feed_forward_params = share_feed_forward_params
        self.share_kv_projections = share_kv_projections
        self.share_qkv_projections = share_qkv_projections
        self.share_att_output_projection = share_att_output_projection
        self.use_pre_activation_order = use_pre_activation_order
        self.use_one_hot_lookup = use_one_hot_lookup
        self.grad_checkpointing_period = grad_checkpointing_period
        self._check_arguments()

        self.fused_att_layers = []
        self.long_feed_forward_layers = []
        self.global_feed_forward_layers = []
        for i in range(num_hidden_layers):
            self.fused_att_layers.append(self._make_attention_block(i))
            long_block, global_block = self._make_feed_forward_blocks(i)
            self.long_feed_forward_layers.append(long_block)
            self.global_feed_forward_layers.append(global_block)
        keras_compat.track_layers(
            self,
            "fused_att_layers",
            "long_feed_forward_layers",
            "global_feed_forward_layers",
        )

    def _check_arguments(self):
        if self.num_hidden_layers < 1:
            raise ValueError(
                f"{self.name}: num_hidden_layers must be at least 1, but is "
                f"{self.num_hidden_layers}."
            )
        heads = self.num_attention_heads
        for stream, size in (
            ("long", self.long_hidden_size),
            ("global", self.global_hidden_size),
        ):
            if self.att_size_per_head is None and size % heads:
                raise ValueError(
                    f"{self.name}: {stream}_hidden_size ({size}) must be a "
                    f"multiple of num_attention_heads ({heads}). Change one of "
                    "them, or set att_size_per_head."
                )
        for option, is_on in (
            ("share_feed_forward_params", self.share_feed_forward_params),
            ("share_kv_projections", self.share_kv_projections),
            ("share_qkv_projections", self.share_qkv_projections),
            ("share_att_output_projection", self.share_att_output_projection),
        ):
            if is_on and self.long_hidden_size != self.global_hidden_size:
                raise ValueError(
                    f"{self.name}: {option} needs equal hidden sizes, but "
                    f"long_hidden_size is {self.long_hidden_size} and "
                    f"global_hidden_size {self.global_hidden_size}. Make them "
                    f"equal, or set {option}=False."
                )
        if (
            self.share_feed_forward_params
            and self.long_intermediate_size != self.global_intermediate_size
        ):
            raise ValueError(
                f"{self.name}: share_feed_forward_params needs equal "
                "intermediate sizes, but long_intermediate_size is "
                f"{self.long_intermediate_size} and global_intermediate_size "
                f"{self.global_intermediate_size}. Make them equal, or set "
                "share_feed_forward_params=False."
            )

    def _make_layer_norm(self, name):
        return normalization.LayerNormalization(
            dtype=self.dtype_policy, name=name
        )

    def _make_attention_block(self, i):
        total_att_size = None
        if self.att_size_per_head is not None:
            total_att_size = self.att_size_per_head * self.num_attention_heads
        layer = fused_attention.FusedGlobalLocalAttention(
            long_hidden_size=self.long_hidden_size,
            global_hidden_size=self.global_hidden_size,
            num_heads=self.num_attention_heads,
            local_radius=self.local_radius,
            long_total_att_size=total_att_size,
            global_total_att_size=total_att_size,
            relative_vocab_size=self.relative_vocab_size,
            att_dropout_prob=self.attention_probs_dropout_prob,
            initializer=self._make_initializer(),
            share_kv_projections=self.share_kv_projections,
            share_qkv_projections=self.share_qkv_projections,
            share_att_output_projection=self.share_att_output_projection,
            use_one_hot_lookup=self.use_one_hot_lookup,
            dtype=self.dtype_policy,
            name="fused_global_local_att",
        )
        norms = [self._make_layer_norm(f"layer_norm_{j}") for j in range(2)]
        return self._make_block(layer, f"fused_att_layer_{i}", norms)

    def _make_feed_forward_blocks(self, i):
        """Returns the long and the global stream's block of layer `i`."""

        def make_layers(intermediate_size, hidden_size):
            dense = self._make_dense_layers(intermediate_size, hidden_size)
            return dense, self._make_layer_norm("layer_norm")

        dense, norm = global_dense, global_norm = make_layers(
            self.long_intermediate_size, self.long_hidden_size
        )
        long_name = f"feed_forward_layer_{i}"
        if not self.share_feed_forward_params:
            global_dense, global_norm = make_layers(
                self.global_intermediate_size, self.global_hidden_size
            )
            long_name = f"long_{long_name}"
        return (
            self._make_block(dense, long_name, norm),
            self._make_block(
                global_dense, f"global_feed_forward_layer_{i}", global_norm
            ),
        )

    def layers_of_one_output(self, stream: str) -> list:
        """Lists the sublayers that only one output, "long" or "global", needs.

        All are in the last layer. They get no gradient if this output is not
        used. Sublayers that both streams share are not included.
        """
        block = self.fused_att_layers[-1]
        layer = block.inner_layer
        long_feed_forward = self.long_feed_forward_layers[-1]
        global_feed_forward = self.global_feed_forward_layers[-1]
        needed = {
            "long": [
                layer.long_query_projection,
                layer.l2l_key_projection,
                layer.l2l_value_projection,
                layer.l2g_key_projection,
                layer.l2g_value_projection,
                layer.long_qkv_attention,
                layer.long_output_projection,
                long_feed_forward.inner_layer,
                *long_feed_forward.normalization_layers,
            ],
            "global": [
                layer.global_query_projection,
                layer.g2g_key_projection,
                layer.g2g_value_projection,
                layer.g2l_key_projection,
                layer.g2l_value_projection,
                layer.global_qkv_attention,
                layer.global_output_projection,
                global_feed_forward.inner_layer,
                *global_feed_forward.normalization_layers,
            ],
        }
        # In pre-activation order, both streams use the outputs of the norms.
        if not self.use_pre_activation_order:
            long_norm, global_norm = block.normalization_layers
            needed["long"].append(long_norm)
            needed["global"].append(global_norm)
        own = needed.pop(stream)
        (other,) = needed.values()
        return [x for x in own if not any(x is y for y in other)]

    def build(self, input_shape):
        """Builds all sublayers; the constructor determines their sizes."""
        long_shape = (None, None, self.long_hidden_size)
        global_shape = (None, None, self.global_hidden_size)
        for i in range(self.num_hidden_layers):
            keras_compat.build_once(
                self.fused_att_layers[i], [long_shape, global_shape]
            )
            keras_compat.build_once(
                self.long_feed_forward_layers[i], long_shape
            )
            keras_compat.build_once(
                self.global_feed_forward_layers[i], global_shape
            )
        super().build(input_shape)

    def call(
        self,
        long_input,
        global_input,
        l2l_att_mask=None,
        g2g_att_mask=None,
        l2g_att_mask=None,
        g2l_att_mask=None,
        l2l_relative_att_ids=None,
        g2g_relative_att_ids=None,
        l2g_relative_att_ids=None,
        g2l_relative_att_ids=None,
        att_implementation="auto",
        return_attention_scores=False,
        long_query_positions=None,
        global_query_positions=None,
        training=None,
    ):
        """Applies all layers.

        The arguments are those of `FusedGlobalLocalAttention`.
        `return_attention_scores` switches recomputation off.

        Returns:
            `[long_output, global_output]`, shaped as the inputs. With
            `return_attention_scores`, a pair of this list and a list with one
            dict per layer.
        """
        arguments = dict(
            l2l_att_mask=l2l_att_mask,
            g2g_att_mask=g2g_att_mask,
            l2g_att_mask=l2g_att_mask,
            g2l_att_mask=g2l_att_mask,
            l2l_relative_att_ids=l2l_relative_att_ids,
            g2g_relative_att_ids=g2g_relative_att_ids,
            l2g_relative_att_ids=l2g_relative_att_ids,
            g2l_relative_att_ids=g2l_relative_att_ids,
            att_implementation=att_implementation,
            long_query_positions=_as_tensor(long_query_positions),
            global_query_positions=_as_tensor(global_query_positions),
        )
        scores = []

        def apply_chain(long_stream, global_stream, start, end):
            for i in range(start, end):
                streams = self.fused_att_layers[i](
                    [long_stream, global_stream],
                    training=training,
                    return_attention_scores=return_attention_scores,
                    **arguments,
                )
                if return_attention_scores:
                    streams, scores_of_layer = streams
                    scores.append(scores_of_layer)
                long_stream, global_stream = streams
                long_stream = self.long_feed_forward_layers[i](
                    long_stream, training=training
                )
                global_stream = self.global_feed_forward_layers[i](
                    global_stream, training=training
                )
            return [long_stream, global_stream]

        outputs = [long_input, global_input]
        if graph_layer.needs_only_shapes() and not return_attention_scores:
            # One layer is enough to infer shapes, since every layer keeps them.
            return apply_chain(*outputs, 0, 1)
        for start, end, apply in self._chains(
            apply_chain, training, return_attention_scores
        ):
            outputs = apply(*outputs, start, end)
        return (outputs, scores) if return_attention_scores else outputs

    def compute_output_shape(
        self, long_input_shape=None, global_input_shape=None, input_shape=None
    ):
        """Returns the shapes of the inputs."""
        keras_compat.check_is_known(self, global_input_shape, input_shape)
        return [tuple(long_input_shape), tuple(global_input_shape)]


def _as_tensor(value):
    return None if value is None else tf.convert_to_tensor(value)
