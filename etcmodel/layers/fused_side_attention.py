"""Attention of a sequence to itself and to a side sequence at once.

The functions below are shared with `side_attention`. They have the heads
outermost, so that all positions of all examples meet a side sequence that they
share in one matrix product, and a mask of a batch needs no axis for the heads.
"""

import math

import tensorflow as tf

from etcmodel import tensor_utils
from etcmodel.attention import core
from etcmodel.layers import building
from etcmodel.layers import dropout
from etcmodel.layers import graph_layer
from etcmodel.layers import initializers
from etcmodel.layers import relative_attention


@tf.keras.utils.register_keras_serializable(package="etcmodel")
class FusedSideAttention(graph_layer.GraphLayer):
    """Self-attention in which side vectors compete with the tokens.

    Every token of the main input attends to all tokens of its example and to
    all rows of the side input under one softmax, without any relative labels.
    The side input does not change. With shared projections the weights are
    those of BERT's self-attention.

    A token that may attend to nothing gets the output projection of zeros,
    which is its bias.

    The projections are attributes: `main_query_projection`,
    `main_key_projection`, `main_value_projection`, `side_key_projection`,
    `side_value_projection`, `output_projection`. Shared ones are the same layer
    under two names.

    Args:
        hidden_size: width of both inputs and of the output.
        num_heads: number of attention heads.
        att_dropout_prob: dropout on the attention probabilities.
        share_kv_projections: whether keys and values of the side input are
            made by the projections of the main input.
        initializer: initializer of the kernels; None for Keras's default.
        name: name of the layer.
        **kwargs: passed to `tf.keras.layers.Layer`.

    Raises:
        ValueError: `hidden_size` is no multiple of `num_heads`.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        att_dropout_prob: float = 0.0,
        share_kv_projections: bool = True,
        initializer=None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        relative_attention.check_divisible(num_heads, hidden_size=hidden_size)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.att_dropout_prob = att_dropout_prob
        self.share_kv_projections = share_kv_projections
        self.initializer = tf.keras.initializers.get(initializer)

        def project(name):
            return relative_attention.ProjectAttentionHeads(
                num_heads,
                hidden_size // num_heads,
                initializer=self.initializer,
                dtype=self.dtype_policy,
                name=name,
            )

        self.main_query_projection = project("main_query_projection")
        self.main_key_projection = project("main_key_projection")
        self.main_value_projection = project("main_value_projection")
        if share_kv_projections:
            self.side_key_projection = self.main_key_projection
            self.side_value_projection = self.main_value_projection
        else:
            self.side_key_projection = project("side_key_projection")
            self.side_value_projection = project("side_value_projection")
        self.att_dropout = dropout.RecomputingDropout(
            att_dropout_prob, dtype=self.dtype_policy, name="att_dropout"
        )
        self.output_projection = tf.keras.layers.Dense(
            hidden_size,
            kernel_initializer=initializers.clone_kernel(self.initializer),
            dtype=self.dtype_policy,
            name="output_projection",
        )

    def build(self, input_shape):
        """Builds everything; the sizes are the constructor's."""
        for layer in (
            self.main_query_projection,
            self.main_key_projection,
            self.main_value_projection,
            self.side_key_projection,
            self.side_value_projection,
            self.output_projection,
        ):
            building.build_once(layer, (None, None, self.hidden_size))
        super().build(input_shape)

    def call(
        self,
        main_input,
        side_input=None,
        att_mask=None,
        training=None,
        side_att_mask=None,
    ):
        """Attends.

        The masks are `<int32 or bool>`, 1 where attending is allowed and
        everywhere if None. Without the axis `main` they hold for all tokens of
        an example alike.

        Args:
            main_input: `<float>[batch, main, hidden_size]`.
            side_input: `<float>[side, hidden_size]`, one for all examples, or
                `<float>[batch, side, hidden_size]`, one for each. None is as
                good as one without any rows.
            att_mask: `[batch, main, main + side]` or `[batch, main + side]`,
                of the tokens and then the side input; only of the tokens where
                there is no side input or a mask of its own.
            training: whether dropout is applied.
            side_att_mask: `[batch, main, side]` or `[batch, side]`.

        Returns:
            `<float>[batch, main, hidden_size]`.

        Raises:
            ValueError: an input or a mask has another rank, or a mask another
                number of columns.
        """
        tensor_utils.assert_rank(main_input, 3, "main_input")
        masks = [as_mask(att_mask, "att_mask")]
        # [heads, batch, main, size]
        queries = scale_queries(
            heads_first(self.main_query_projection(main_input))
        )
        keys = [heads_first(self.main_key_projection(main_input))]
        values = [heads_first(self.main_value_projection(main_input))]
        if side_input is not None:
            tensor_utils.assert_rank(side_input, [2, 3], "side_input")
            side_input = tf.cast(side_input, main_input.dtype)
            masks = split_masks(att_mask, side_att_mask, main_input, side_input)
            # [heads, side, size] or [heads, batch, side, size]
            keys.append(heads_first(self.side_key_projection(side_input)))
            values.append(heads_first(self.side_value_projection(side_input)))
        # [heads, batch, main, main] and [heads, batch, main, side]
        scores = [attention_scores(queries, k) for k in keys]
        for piece, mask in zip(scores, masks, strict=True):
            check_columns(mask, piece)
        probs = core.joint_softmax(scores, masks)
        if self.att_dropout_prob:
            probs = [self.att_dropout(p, training=training) for p in probs]
        # [heads, batch, main, size]
        output = tf.add_n(
            [weighted_sum(p, v) for p, v in zip(probs, values, strict=True)]
        )
        return self.output_projection(merge_heads(output))

    def compute_output_shape(self, input_shape):
        """The shape of the first input, with the hidden size."""
        return (*input_shape[:-1], self.hidden_size)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "att_dropout_prob": self.att_dropout_prob,
            "share_kv_projections": self.share_kv_projections,
            "initializer": initializers.serialize(self.initializer),
        }


def heads_first(tensor) -> tf.Tensor:
    """Moves the last axis but one to the front.

    Args:
        tensor: `<any>[..., length, heads, size]`.

    Returns:
        `<any>[heads, ..., length, size]`.
    """
    rank = tensor.shape.rank
    return tf.transpose(tensor, [rank - 2, *range(rank - 2), rank - 1])


def merge_heads(tensor) -> tf.Tensor:
    """Puts the heads of each position side by side.

    Args:
        tensor: `<any>[heads, batch, length, size]`.

    Returns:
        `<any>[batch, length, heads * size]`.
    """
    return tensor_utils.flatten_dims(
        tf.transpose(tensor, [1, 2, 0, 3]), first_dim=-2
    )


def scale_queries(queries) -> tf.Tensor:
    """Divides by the root of the size, before products can overflow."""
    return queries * (1.0 / math.sqrt(queries.shape[-1]))


def attention_scores(queries, keys) -> tf.Tensor:
    """Products of queries and keys.

    Args:
        queries: `<float>[heads, batch, from, size]`.
        keys: `<float>[heads, to, size]`, the same for all examples, or
            `<float>[heads, batch, to, size]`.

    Returns:
        `<float32 or float64>[heads, batch, from, to]`.
    """
    if keys.shape.rank == 4:
        scores = tf.matmul(queries, keys, transpose_b=True)
    else:
        scores = _per_head(
            lambda rows: tf.matmul(rows, keys, transpose_b=True), queries
        )
    return core.to_score_dtype(scores)


def weighted_sum(probs, values) -> tf.Tensor:
    """Values summed with probabilities.

    Args:
        probs: `<float>[heads, batch, from, to]`.
        values: `<float>[heads, to, size]`, the same for all examples, or
            `<float>[heads, batch, to, size]`.

    Returns:
        `<dtype of values>[heads, batch, from, size]`.
    """
    probs = tf.cast(probs, values.dtype)
    if values.shape.rank == 4:
        return tf.matmul(probs, values)
    return _per_head(lambda rows: tf.matmul(rows, values), probs)


def _per_head(function, tensor):
    """A function of each head's rows, of all examples together.

    Args:
        function: from `<float>[heads, rows, a]` to `<float>[heads, rows, b]`.
        tensor: `<float>[heads, batch, length, a]`.

    Returns:
        `<float>[heads, batch, length, b]`.
    """
    heads, batch, length, size = tensor_utils.get_shape_list(tensor)
    # [heads, batch * length, b]
    rows = function(tf.reshape(tensor, [heads, batch * length, size]))
    return tf.reshape(
        rows, [heads, batch, length, tensor_utils.get_shape_list(rows)[-1]]
    )


def as_mask(att_mask, name: str) -> tf.Tensor | None:
    """A mask that fits scores of `[heads, batch, from, to]`.

    `[[1, 0], [1, 1]]`, of two examples and two keys, becomes
    `[[[True, False]], [[True, True]]]`.

    Args:
        att_mask: `<any>[batch, from, to]` or `<any>[batch, to]`, not 0 where
            attending is allowed; or None.
        name: what to call it in an error message.

    Returns:
        `<bool>[batch, from or 1, to]`, or None for None.

    Raises:
        ValueError: it has another rank.
    """
    if att_mask is None:
        return None
    tensor_utils.assert_rank(att_mask, [2, 3], name)
    mask = tf.cast(att_mask, tf.bool)
    # [batch, from or 1, to]
    return mask[:, tf.newaxis] if mask.shape.rank == 2 else mask


def split_masks(att_mask, side_att_mask, main_input, side_input) -> list:
    """The masks of the main and of the side columns.

    Two tokens and a side input of one row, all in one mask: `[[[1, 1, 0],
    [0, 1, 1]]]` gives `[[[True, True], [False, True]]]` and `[[[False],
    [True]]]`.

    Args:
        att_mask: see `FusedSideAttention.call`.
        side_att_mask: likewise.
        main_input: `<float>[batch, main, hidden_size]`.
        side_input: `<float>[..., side, hidden_size]`.

    Returns:
        Two masks, `<bool>[batch, main or 1, main]` and
        `<bool>[batch, main or 1, side]`, or None.

    Raises:
        ValueError: a mask has another rank, or another number of columns.
    """
    att_mask = as_mask(att_mask, "att_mask")
    if att_mask is None or side_att_mask is not None:
        return [att_mask, as_mask(side_att_mask, "side_att_mask")]
    main_len = tensor_utils.get_shape_list(main_input)[1]
    side_len = tensor_utils.get_shape_list(side_input)[-2]
    columns = att_mask.shape[-1]
    if columns is not None and main_input.shape[1] is not None:
        rest = columns - main_len
        if rest < 0 or side_input.shape[-2] not in (None, rest):
            raise ValueError(
                f"att_mask has {columns} columns, but {main_len} tokens and a "
                f"side input of {side_input.shape[-2]} rows need one each. "
                "Give a mask of the tokens alone together with side_att_mask."
            )
    # [batch, main or 1, main] and [batch, main or 1, side]
    return tf.split(att_mask, [main_len, side_len], axis=-1)


def check_columns(mask, scores):
    """Raises a ValueError unless a mask has a column a key.

    One column would be taken for all keys.

    Args:
        mask: `<bool>[..., to]` or None.
        scores: `<float>[..., to]`.

    Raises:
        ValueError: the numbers are known and differ.
    """
    if mask is None or None in (mask.shape[-1], scores.shape[-1]):
        return
    if mask.shape[-1] != scores.shape[-1]:
        raise ValueError(
            f"a mask of {mask.shape[-1]} columns (shape {mask.shape}) does not "
            f"fit {scores.shape[-1]} keys."
        )
