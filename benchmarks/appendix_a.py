"""Global-local attention as the ETC paper's Appendix A describes it.

What the package's attention is measured against: the recipe with all that it
stores, in plain TensorFlow operations and in the dtype of the inputs.

*   Long tokens are cut into blocks of `radius + 1`; a block of queries meets
    the keys of three blocks, and the global keys, which are copied into every
    block. Masks and labels are spread over the same slots.
*   Scores with all label vectors are computed once; the one that a pair's label
    stands for is gathered.
*   A masked pair has 10,000 taken from its score.

`full_attention` does the same with all pairs of long tokens: attention without
any structure. `transformer_layer` is one whole layer around either.
"""

import math
from collections.abc import Callable

import tensorflow as tf

# Of long queries with local and with global keys.
Band = tuple[tf.Tensor, tf.Tensor]


def pair_attention(
    queries: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    mask: tf.Tensor,
    labels: tf.Tensor,
    tables: tuple[tf.Tensor, tf.Tensor],
    dropout_rate: float = 0.0,
) -> tf.Tensor:
    """Attends from every query to every key.

    Args:
        queries: `<float>[batch, from, heads, size]`.
        keys: `<float>[batch, to, heads, size]`.
        values: `<float>[batch, to, heads, size]`.
        mask: `<int32>[batch, from, to]`.
        labels: `<int32>[batch, from, to]`.
        tables: vectors `<float>[labels, heads, size]` and biases
            `<float>[labels, heads]` of the labels.
        dropout_rate: of the probabilities.

    Returns:
        `<float>[batch, from, heads, size]`.
    """
    vectors, biases = tables
    # [batch, from, labels, heads]
    label_scores = tf.einsum("bfhd,rhd->bfrh", queries, vectors) + biases
    # [batch, from, to, heads]
    pair_scores = tf.gather(label_scores, labels, axis=2, batch_dims=2)
    # [batch, heads, from, to]
    scores = tf.einsum("bfhd,bthd->bhft", queries, keys)
    scores += tf.transpose(pair_scores, [0, 3, 1, 2])
    scores /= math.sqrt(queries.shape[-1])
    scores -= 1e4 * tf.cast(1 - mask, scores.dtype)[:, tf.newaxis]
    probs = _dropout(tf.nn.softmax(scores), dropout_rate)
    return tf.einsum("bhft,bthd->bfhd", probs, values)


def blocked_attention(
    queries: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    side_keys: tf.Tensor,
    side_values: tf.Tensor,
    masks: Band,
    labels: Band,
    tables: tuple[tf.Tensor, tf.Tensor],
    dropout_rate: float = 0.0,
) -> tf.Tensor:
    """Attends from long queries to the keys around them and all global keys.

    All shapes are static, and the radius is that of the masks.

    Args:
        queries: `<float>[batch, long, heads, size]`.
        keys: `<float>[batch, long, heads, size]`.
        values: `<float>[batch, long, heads, size]`.
        side_keys: `<float>[batch, global, heads, size]`.
        side_values: `<float>[batch, global, heads, size]`.
        masks: `<int32>[batch, long, 2*radius + 1]` and
            `<int32>[batch, long, global]`.
        labels: of the same shapes.
        tables: see `pair_attention`.
        dropout_rate: of the probabilities.

    Returns:
        `<float>[batch, long, heads, size]`.
    """
    batch, length, heads, size = queries.shape
    block = masks[0].shape[-1] // 2 + 1

    def with_side(slots, side):
        """What belongs to the keys of a block: its slots, then the globals."""
        blocks = slots.shape[0] // batch
        # [batch * blocks, global, heads, size]
        return tf.concat([slots, tf.repeat(side, blocks, axis=0)], axis=1)

    def pairs(band, side):
        """What belongs to the pairs of a block, `[batch * blocks, b, to]`."""
        return tf.concat(
            [_band_to_slots(band), _to_blocks(side, block)], axis=-1
        )

    # [batch * blocks, radius + 1, heads, size]
    outputs = pair_attention(
        _to_blocks(queries, block),
        with_side(_three_blocks(keys, block), side_keys),
        with_side(_three_blocks(values, block), side_values),
        pairs(*masks),
        pairs(*labels),
        tables,
        dropout_rate,
    )
    return tf.reshape(outputs, [batch, -1, heads, size])[:, :length]


def full_attention(
    queries: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    side_keys: tf.Tensor,
    side_values: tf.Tensor,
    masks: Band,
    labels: Band,
    tables: tuple[tf.Tensor, tf.Tensor],
    dropout_rate: float = 0.0,
) -> tf.Tensor:
    """Computes `blocked_attention` by way of all pairs of long tokens."""

    def pairs(band, side):
        return tf.concat([_band_to_square(band), side], axis=-1)

    return pair_attention(
        queries,
        tf.concat([keys, side_keys], axis=1),
        tf.concat([values, side_values], axis=1),
        pairs(*masks),
        pairs(*labels),
        tables,
        dropout_rate,
    )


def long_pairs(side_inputs: dict[str, tf.Tensor]) -> tuple[Band, Band]:
    """Returns masks and labels of the long queries."""
    return tuple(
        (side_inputs[f"l2l_{kind}"], side_inputs[f"l2g_{kind}"])
        for kind in ("att_mask", "relative_att_ids")
    )


def transformer_layer(
    layer,
    attend: Callable[..., tf.Tensor],
    long_input: tf.Tensor,
    global_input: tf.Tensor,
    side_inputs: dict[str, tf.Tensor],
    training: bool = False,
) -> list[tf.Tensor]:
    """Applies one layer: attention and feed-forward part of both streams.

    Args:
        layer: the `GlobalLocalTransformerLayers` whose first layer's weights,
            and whose rates of dropout, are taken.
        attend: attention of the long queries, `blocked_attention` or
            `full_attention`.
        long_input: `<float>[batch, long, hidden]`.
        global_input: `<float>[batch, global, hidden]`.
        side_inputs: masks and labels by the names of the layer's arguments.
        training: whether dropout is applied.

    Returns:
        The long and the global output, shaped as the inputs.
    """
    attention = layer.fused_att_layers[0].inner_layer
    att_rate = layer.attention_probs_dropout_prob if training else 0.0
    hidden_rate = layer.hidden_dropout_prob if training else 0.0

    def project(name, inputs):
        """Projects to heads, `[batch, length, heads, size]`."""
        linear = getattr(attention, f"{name}_projection").linear
        outputs = _dense(linear, inputs)
        shape = [*inputs.shape[:2], layer.num_attention_heads, -1]
        return tf.reshape(outputs, shape)

    def tables(qkv_layer):
        dtype = long_input.dtype
        return (
            tf.cast(qkv_layer.relative_emb_table, dtype),
            tf.cast(qkv_layer.relative_bias_table, dtype),
        )

    long_heads = attend(
        project("long_query", long_input),
        project("l2l_key", long_input),
        project("l2l_value", long_input),
        project("l2g_key", global_input),
        project("l2g_value", global_input),
        *long_pairs(side_inputs),
        tables(attention.long_qkv_attention.qkv_relative_attention),
        att_rate,
    )

    def both(kind):
        """Global and long keys or values, `[batch, global + long, ...]`."""
        of_global = project(f"g2g_{kind}", global_input)
        return tf.concat(
            [of_global, project(f"g2l_{kind}", long_input)], axis=1
        )

    def pairs(kind):
        """Masks or labels, `[batch, global, global + long]`."""
        pieces = [side_inputs[f"g2g_{kind}"], side_inputs[f"g2l_{kind}"]]
        return tf.concat(pieces, axis=2)

    global_heads = pair_attention(
        project("global_query", global_input),
        both("key"),
        both("value"),
        pairs("att_mask"),
        pairs("relative_att_ids"),
        tables(attention.global_qkv_attention),
        att_rate,
    )
    return [
        _finish(layer, "long", 0, long_input, long_heads, hidden_rate),
        _finish(layer, "global", 1, global_input, global_heads, hidden_rate),
    ]


def _finish(layer, stream, index, inputs, heads, dropout_rate):
    """What follows attention: `<float>[batch, length, hidden]` of a stream."""

    def add(norm, inputs, outputs):
        return _normalize(norm, inputs + _dropout(outputs, dropout_rate))

    part = layer.fused_att_layers[0]
    projection = getattr(part.inner_layer, f"{stream}_output_projection")
    outputs = _dense(projection, tf.reshape(heads, [*heads.shape[:2], -1]))
    middle = add(part.normalization_layers[index], inputs, outputs)
    part = getattr(layer, f"{stream}_feed_forward_layers")[0]
    first, second = part.inner_layer.layers
    inner = tf.nn.gelu(_dense(first, middle), approximate=True)
    return add(part.normalization_layers[0], middle, _dense(second, inner))


def _dense(linear, inputs):
    """A Keras layer `Dense` without its activation."""
    outputs = tf.tensordot(inputs, tf.cast(linear.kernel, inputs.dtype), 1)
    return outputs + tf.cast(linear.bias, inputs.dtype)


def _normalize(norm, inputs):
    """A Keras `LayerNormalization`, in float32 at least."""
    dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
    mean, variance = tf.nn.moments(tf.cast(inputs, dtype), -1, keepdims=True)
    outputs = tf.nn.batch_normalization(
        tf.cast(inputs, dtype),
        mean,
        variance,
        tf.cast(norm.beta, dtype),
        tf.cast(norm.gamma, dtype),
        norm.epsilon,
    )
    return tf.cast(outputs, inputs.dtype)


def _dropout(tensor, rate):
    return tf.nn.dropout(tensor, rate) if rate else tensor


def _cut(tensor, block):
    """`[batch, length, ...]` as `[batch, blocks, block, ...]`, zero-padded."""
    batch, length, *inner = tensor.shape
    missing = -length % block
    tensor = tf.pad(tensor, [[0, 0], [0, missing], *[[0, 0] for _ in inner]])
    return tf.reshape(
        tensor, [batch, (length + missing) // block, block, *inner]
    )


def _join(blocks):
    """`[batch, blocks, ...]` as `[batch * blocks, ...]`."""
    return tf.reshape(blocks, [-1, *blocks.shape[2:]])


def _to_blocks(tensor, block):
    """`[batch, length, ...]` as `[batch * blocks, block, ...]`."""
    return _join(_cut(tensor, block))


def _three_blocks(tensor, block):
    """Each block between its neighbours, `[batch * blocks, 3 * block, ...]`."""
    blocks = _cut(tensor, block)
    ends = [
        [1, 1] if axis == 1 else [0, 0] for axis in range(blocks.shape.rank)
    ]
    padded = tf.pad(blocks, ends)
    return _join(
        tf.concat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], axis=2)
    )


def _shift_rows(rows, first, width):
    """Puts row `i` to column `first + i` of zeros, `[..., count, width]`."""
    *outer, count, old_width = rows.shape
    # A row that is one too long pushes the next one by one.
    padding = [[0, 0]] * (len(outer) + 1) + [[0, width + 1 - old_width]]
    flat = tf.reshape(tf.pad(rows, padding), [*outer, count * (width + 1)])
    flat = tf.pad(flat, [[0, 0]] * len(outer) + [[first, 0]])
    return tf.reshape(flat[..., : count * width], [*outer, count, width])


def _band_to_slots(band):
    """A band over the slots of three blocks, `[batch * blocks, b, 3 * b]`.

    Slots before the first and after the last token are 0.
    """
    length = band.shape[1]
    block = band.shape[2] // 2 + 1
    # [batch, blocks, block, 3 * block]
    slots = _shift_rows(_cut(band, block), 1, 3 * block)
    # [blocks, 1, 3 * block]
    position = block * (
        tf.range(slots.shape[1])[:, tf.newaxis, tf.newaxis] - 1
    ) + tf.range(3 * block)
    exists = (position >= 0) & (position < length)
    return _join(slots * tf.cast(exists, slots.dtype))


def _band_to_square(band):
    """A band over all pairs of tokens, `[batch, length, length]`."""
    length = band.shape[1]
    radius = band.shape[2] // 2
    wide = _shift_rows(band, 0, length + 2 * radius)
    return wide[:, :, radius : radius + length]
