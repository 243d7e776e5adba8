"""A standard transformer encoder that also attends to side inputs."""

import tensorflow as tf

from etcmodel.layers import fused_side_attention
from etcmodel.layers import keras_compat
from etcmodel.layers import relative_attention
from etcmodel.layers import side_attention
from etcmodel.layers import stack
from etcmodel.layers.activations import gelu
from etcmodel.layers.activations import get_layer_activation
from etcmodel.ops import shapes
from etcmodel.ops.attention import memory_attention


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class TransformerWithSideInputLayers(stack.TransformerStack):
    """Transformer layers whose tokens also attend to side vectors.

    Each layer attends to the tokens and the side input in one softmax
    (`FusedSideAttention`). With `num_cross_attention_heads`, it attends to the
    tokens first and then, in a separate block, to the side input
    (`SideAttention`, without positions). A feed-forward block follows. All
    blocks normalize their outputs; none changes the side input.

    Attributes:
        attention_layers: the attention `ResidualBlock` of each layer.
        cross_attention_layers: the `ResidualBlock` of each layer that attends
            to the side input; empty without `num_cross_attention_heads`.
        feed_forward_layers: the feed-forward `ResidualBlock` of each layer.

    Args:
        share_kv_projections: see `FusedSideAttention`. Always True with
            `num_cross_attention_heads`, since no block attends to both inputs.
        num_cross_attention_heads: see `SideAttention`.
        enable_default_side_input: see `SideAttention`.
        **kwargs: see `GlobalLocalTransformerLayers`.

    Raises:
        ValueError: `num_hidden_layers` is below 1; `hidden_size` is not a
            multiple of a number of heads; `num_cross_attention_heads` is
            negative, or None with `enable_default_side_input`.
    """

    _activations = ("hidden_act",)

    def __init__(
        self,
        hidden_size: int,
        num_hidden_layers: int,
        num_attention_heads: int,
        intermediate_size: int | None = None,
        hidden_act=gelu,
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        initializer_range: float = 0.02,
        share_kv_projections: bool = False,
        num_cross_attention_heads: int | None = None,
        enable_default_side_input: bool = False,
        grad_checkpointing_period: int = 0,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(
            name=keras_compat.default_name(name, "transformer_layers"), **kwargs
        )
        relative_attention.check_at_least_1(num_hidden_layers=num_hidden_layers)
        relative_attention.check_divisible(
            num_attention_heads, hidden_size=hidden_size
        )
        if enable_default_side_input and num_cross_attention_heads is None:
            raise ValueError(
                "enable_default_side_input needs num_cross_attention_heads: "
                "joint attention to tokens and side input has no default key. "
                "Set num_cross_attention_heads."
            )
        if num_cross_attention_heads is not None:
            if num_cross_attention_heads < 0:
                raise ValueError(
                    "num_cross_attention_heads must be at least 0, but is "
                    f"{num_cross_attention_heads}."
                )
            share_kv_projections = True
        self.supports_masking = True
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size or 4 * hidden_size
        self.hidden_act = get_layer_activation(hidden_act)
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.share_kv_projections = share_kv_projections
        self.num_cross_attention_heads = num_cross_attention_heads
        self.enable_default_side_input = enable_default_side_input
        self.grad_checkpointing_period = grad_checkpointing_period

        self.attention_layers = []
        self.cross_attention_layers = []
        self.feed_forward_layers = []
        for i in range(num_hidden_layers):
            self.attention_layers.append(self._make_attention_block(i))
            if num_cross_attention_heads is not None:
                self.cross_attention_layers.append(
                    self._make_cross_attention_block(i)
                )
            self.feed_forward_layers.append(
                self._make_block(
                    self._make_dense_layers(
                        self.intermediate_size, hidden_size
                    ),
                    f"feed_forward_layer_{i}",
                )
            )
        keras_compat.track_layers(
            self,
            "attention_layers",
            "cross_attention_layers",
            "feed_forward_layers",
        )

    def _make_attention_block(self, i):
        layer = fused_side_attention.FusedSideAttention(
            hidden_size=self.hidden_size,
            num_heads=self.num_attention_heads,
            att_dropout_prob=self.attention_probs_dropout_prob,
            share_kv_projections=self.share_kv_projections,
            initializer=self._make_initializer(),
            dtype=self.dtype_policy,
            name="fused_side_attention",
        )
        return self._make_block(layer, f"attention_layer_{i}")

    def _make_cross_attention_block(self, i):
        layer = side_attention.SideAttention(
            hidden_size=self.hidden_size,
            num_heads=self.num_cross_attention_heads,
            att_dropout_prob=self.attention_probs_dropout_prob,
            enable_default_side_input=self.enable_default_side_input,
            initializer=self._make_initializer(),
            dtype=self.dtype_policy,
            name="side_attention",
        )
        return self._make_block(layer, f"cross_attention_layer_{i}")

    def build(self, input_shape):
        """Builds all sublayers; the constructor determines their sizes."""
        keras_compat.build_all(
            (None, None, self.hidden_size),
            *self.attention_layers,
            *self.cross_attention_layers,
            *self.feed_forward_layers,
        )
        super().build(input_shape)

    def __call__(
        self,
        main_input,
        side_input=None,
        att_mask=None,
        training=None,
        side_att_mask=None,
        **kwargs,
    ):
        """Calls the layer; lists of side inputs may contain None."""
        # Keras 3 rejects lists that contain both tensors and None.
        return super().__call__(
            main_input,
            side_input=self._as_dict(side_input, "side_input"),
            att_mask=att_mask,
            training=training,
            side_att_mask=self._as_dict(side_att_mask, "side_att_mask"),
            **kwargs,
        )

    def call(
        self,
        main_input,
        side_input=None,
        att_mask=None,
        training=None,
        side_att_mask=None,
        return_attention_scores=False,
    ):
        """Applies all layers.

        The arguments are those of `FusedSideAttention`. `side_input` and
        `side_att_mask` may also be lists with one entry per layer; an entry may
        be None. If `att_mask` covers the side input, too, all layers' side
        inputs need the same number of rows. `return_attention_scores` switches
        recomputation off.

        Returns:
            `<float>[batch, main, hidden_size]`. With `return_attention_scores`,
            a pair of it and a list with one dict per layer: `"main"` and
            `"side"`, the scores of `FusedSideAttention`, or, with
            `num_cross_attention_heads`, `"side"` of `SideAttention`.

        Raises:
            ValueError: a list does not have one entry per layer, or a mask has
                the wrong number of columns.
        """
        side_inputs = self._for_each_layer(side_input, "side_input")
        side_masks = self._for_each_layer(side_att_mask, "side_att_mask")
        if side_att_mask is None:
            att_mask, side_mask = _split_for_all(
                att_mask, main_input, side_inputs
            )
            side_masks = [side_mask] * self.num_hidden_layers

        scores = []

        def apply_chain(output, sides, start, end):
            for i, side in zip(range(start, end), sides, strict=True):
                output, *scores_of_layer = self._apply_layer(
                    i,
                    output,
                    side,
                    att_mask,
                    side_masks[i],
                    training=training,
                    return_attention_scores=return_attention_scores,
                )
                scores.extend(scores_of_layer)
            return output

        output = main_input
        for start, end, apply in self._chains(
            apply_chain, training, return_attention_scores
        ):
            output = apply(output, side_inputs[start:end], start, end)
        return (output, scores) if return_attention_scores else output

    def _apply_layer(
        self,
        i,
        output,
        side,
        att_mask,
        side_mask,
        training,
        return_attention_scores,
    ):
        """Returns the output of layer `i` and, if requested, its scores."""
        has_own_part = self.num_cross_attention_heads is not None
        calls = [(self.attention_layers[i], {"att_mask": att_mask})]
        if has_own_part:
            # [0, hidden_size], for no side input
            rows = tf.zeros([0, self.hidden_size], output.dtype)
            calls.append(
                (
                    self.cross_attention_layers[i],
                    {"side_input": rows}
                    if side is None
                    else {"side_input": side, "att_mask": side_mask},
                )
            )
        elif side is not None:
            calls[0][1].update(side_input=side, side_att_mask=side_mask)
        found = []
        for layer, arguments in calls:
            output = layer(
                output,
                **arguments,
                training=training,
                return_attention_scores=return_attention_scores,
            )
            if return_attention_scores:
                output, scores = output
                found.append(scores)
        output = self.feed_forward_layers[i](output, training=training)
        if not found:
            return [output]
        # The scores of `FusedSideAttention` are a pair. The second is unused if
        # another block attends to the side input.
        main, side_scores = found[0]
        return output, {
            "main": main,
            "side": found[1] if has_own_part else side_scores,
        }

    def _as_dict(self, value, name):
        """Maps layer numbers to the entries of a list that are not None."""
        if not isinstance(value, list | tuple):
            return value
        if len(value) != self.num_hidden_layers:
            raise ValueError(
                f"{self.name}: {name} has {len(value)} entries, expected one "
                f"for each of the {self.num_hidden_layers} layers."
            )
        entries = {str(i): x for i, x in enumerate(value) if x is not None}
        return entries or None

    def _for_each_layer(self, value, name) -> list:
        """Returns one entry per layer; a single value applies to all layers."""
        value = self._as_dict(value, name)
        layers = range(self.num_hidden_layers)
        if isinstance(value, dict):
            return [value.get(str(i)) for i in layers]
        return [value for _ in layers]

    def compute_output_shape(self, input_shape):
        """Returns the shape of the input."""
        return tuple(input_shape)


def _split_for_all(att_mask, main_input, side_inputs):
    """Splits a mask into the columns of tokens and of side inputs."""
    sides = [side for side in side_inputs if side is not None]
    if att_mask is None or not sides:
        return att_mask, None
    lengths = {tf.TensorShape(side.shape)[-2] for side in sides} - {None}
    if len(lengths) > 1:
        raise ValueError(
            "Side inputs with different numbers of rows "
            f"({', '.join(map(str, sorted(lengths)))}) cannot share the "
            "columns of att_mask. Give a mask of the tokens alone, and a list "
            "of masks as side_att_mask."
        )
    shapes.assert_rank(sides[0], [2, 3], "side_input")
    return memory_attention.split_masks(att_mask, None, main_input, sides[0])
