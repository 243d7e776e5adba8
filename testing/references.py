"""References for outputs of layers, from their weights, in float64 NumPy."""

import numpy as np

from testing import attention_cases


def project(projection, x):
    kernel = np.array(projection.linear.kernel, np.float64)
    flat = np.array(x, np.float64) @ kernel + np.array(projection.linear.bias)
    heads, size = projection.num_heads, projection.size_per_head
    return flat.reshape(*flat.shape[:-1], heads, size)


def dense(layer, x):
    return x @ np.array(layer.kernel, np.float64) + np.array(layer.bias)


def fused_side_attention(layer, main, side=None, mask=None):
    """Computes a `FusedSideAttention`; `mask` has the columns of all keys."""
    keys = project(layer.main_key_projection, main)
    values = project(layer.main_value_projection, main)
    if side is not None:
        side = np.broadcast_to(side, (len(main), *np.shape(side)[-2:]))
        keys = np.concatenate(
            [keys, project(layer.side_key_projection, side)], axis=1
        )
        values = np.concatenate(
            [values, project(layer.side_value_projection, side)], axis=1
        )
    output = attention_cases.reference_attention(
        project(layer.main_query_projection, main), keys, values, mask
    )
    output = output.reshape(*output.shape[:2], -1)
    return dense(layer.output_projection, output)


def normalize(layer, x, epsilon=1e-12):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
    return x * np.array(layer.gamma, np.float64) + np.array(layer.beta)


def _softmax_of_best(scores, k):
    """Computes a softmax of the k highest scores, 0 for all other scores."""
    probs = np.zeros(len(scores))
    best = np.argsort(-np.array(scores), kind="stable")[:k]
    if len(best):
        weights = np.exp(np.array(scores)[best] - max(scores))
        probs[best] = weights / weights.sum()
    return probs


def side_attention(
    layer,
    main,
    side,
    att_mask=None,
    main_pos=None,
    side_pos=None,
    att_value_mask=None,
):
    """Computes a `SideAttention`, one token and head at a time."""
    main, side = np.asarray(main, np.float64), np.asarray(side, np.float64)
    batch, main_len, hidden = main.shape
    side = np.broadcast_to(side, (batch, *side.shape[-2:]))
    heads = max(layer.num_heads, 1)
    size = hidden // heads

    def split(x):
        return x.reshape(*x.shape[:-1], heads, size)

    if layer.num_heads:
        queries = project(layer.query_projection, main)
        keys = project(layer.key_projection, side)
        values = project(layer.value_projection, side)
    else:
        queries, keys, values = split(main), split(side), split(side)
    mode, limit = layer.pos_embed_mode, layer.pos_embed_size
    if mode is not None:
        table = np.array(
            layer.block_position_emb_lookup.embedding_table, np.float64
        )
        side_pos = np.broadcast_to(side_pos, side.shape[:2])
        if mode.startswith("absolute"):
            # Positions beyond the table use the table's last row.
            main_pos, side_pos = (
                np.minimum(x, len(table) - 1) for x in (main_pos, side_pos)
            )
    if mode == "absolute_add_ln":
        norm = layer.block_position_emb_layer_norm
        queries = normalize(norm, queries + split(table[main_pos])[:, None])
        keys = normalize(norm, keys + split(table[side_pos]))
    output = np.zeros([batch, main_len, heads, size])
    for b, i, h in np.ndindex(batch, main_len, heads):
        query = queries[b, i, h]
        scores, candidates = [], []
        for j in range(side.shape[1]):
            if att_mask is not None and not att_mask[b, i, j]:
                continue
            score = query @ keys[b, j, h]
            if mode == "absolute":
                score += (
                    split(table[main_pos[b]])[h]
                    @ split(table[side_pos[b, j]])[h]
                )
            elif mode in ("simple_relative", "query_dot_relative"):
                distance = int(main_pos[b]) - int(side_pos[b, j])
                row = table[max(-limit, min(limit, distance)) + limit]
                if mode == "simple_relative":
                    score += row[h]
                else:
                    score += query @ split(row)[h]
            scores.append(score / np.sqrt(size))
            candidates.append(values[b, j, h])
        if layer.enable_default_side_input:
            default = np.array(layer.default_side_input, np.float64)
            scores.append(query @ split(default)[h] / np.sqrt(size))
            candidates.append(np.zeros(size))
        probs = _softmax_of_best(scores, layer.top_k_attention)
        for prob, value in zip(probs, candidates, strict=True):
            output[b, i, h] += prob * value
    output = output.reshape(batch, main_len, hidden)
    if layer.num_heads:
        output = dense(layer.output_projection, output)
    if att_value_mask is not None:
        output = output * att_value_mask[..., None]
    return output


def relative_attention(layer, from_seq, to_seq, att_mask, relative_att_ids):
    tables = layer.qkv_relative_attention
    attended = attention_cases.reference_attention(
        project(layer.query_projection, from_seq),
        project(layer.key_projection, to_seq),
        project(layer.value_projection, to_seq),
        att_mask,
        relative_att_ids,
        np.array(tables.relative_emb_table),
        np.array(tables.relative_bias_table),
    )
    attended = attended.reshape(*attended.shape[:2], -1)
    return dense(layer.output_projection, attended)


def fused_attention(layer, call):
    inputs = {"l": call["long_input"], "g": call["global_input"]}
    outputs = []
    # Long and global queries, and the masks of their keys in order.
    for name, pieces in (("long", ("l2l", "l2g")), ("global", ("g2g", "g2l"))):

        def projected(piece, kind):
            projection = getattr(layer, f"{piece}_{kind}_projection")
            return project(projection, inputs[piece[-1]])

        def keys(kind, pieces=pieces):
            return np.concatenate([projected(x, kind) for x in pieces], axis=1)

        def columns(kind, pieces=pieces):
            parts = [call.get(f"{piece}_{kind}") for piece in pieces]
            if parts[0] is None:
                return None
            if pieces[0] == "l2l":
                parts[0] = attention_cases.square_of_band(parts[0])
            return np.concatenate(parts, axis=-1)

        tables = getattr(layer, f"{name}_qkv_attention")
        tables = getattr(tables, "qkv_relative_attention", tables)
        labels = columns("relative_att_ids")
        projection = getattr(layer, f"{name}_query_projection")
        attended = attention_cases.reference_attention(
            project(projection, inputs[name[0]]),
            keys("key"),
            keys("value"),
            columns("att_mask"),
            labels,
            None if labels is None else np.array(tables.relative_emb_table),
            None if labels is None else np.array(tables.relative_bias_table),
        )
        outputs.append(
            dense(
                getattr(layer, f"{name}_output_projection"),
                attended.reshape(*attended.shape[:2], -1),
            )
        )
    return outputs


def residual_block(block, x, inner):
    """Computes a residual block whose inner layer returns `inner`."""
    return normalize(block.normalization_layers[0], x + inner)


def gelu(x):
    """Computes the tanh form of gelu."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def feed_forward(layer, x, activation=gelu):
    x = activation(dense(layer.layers[0], x))
    return dense(layer.layers[1], x)


def side_transformer(layer, main, sides, mask=None):
    """Computes a `TransformerWithSideInputLayers`.

    `mask` is `<int>[batch, main, main + side]`, the same for all layers.
    """
    x = np.asarray(main, np.float64)
    for i in range(layer.num_hidden_layers):
        block = layer.attention_layers[i]
        side = sides[i]
        if layer.num_cross_attention_heads is None:
            columns = None if mask is None else np.array(mask)
            if columns is not None and side is None:
                columns = columns[..., : x.shape[1]]
            inner = fused_side_attention(block.inner_layer, x, side, columns)
            x = residual_block(block, x, inner)
        else:
            main_mask, side_mask = None, None
            if mask is not None:
                main_mask = np.array(mask)[..., : x.shape[1]]
                side_mask = np.array(mask)[..., x.shape[1] :]
            inner = fused_side_attention(block.inner_layer, x, mask=main_mask)
            x = residual_block(block, x, inner)
            block = layer.cross_attention_layers[i]
            if side is None:
                side, side_mask = np.zeros([0, x.shape[-1]]), None
            inner = side_attention(block.inner_layer, x, side, side_mask)
            x = residual_block(block, x, inner)
        block = layer.feed_forward_layers[i]
        x = residual_block(block, x, feed_forward(block.inner_layer, x))
    return x


def _residual_streams(block, streams, inner, pre):
    """Applies a residual block whose inner layer is a function of arrays."""

    def normalized(streams):
        return [
            normalize(norm, x)
            for norm, x in zip(block.normalization_layers, streams, strict=True)
        ]

    outputs = inner(normalized(streams) if pre else streams)
    streams = [x + y for x, y in zip(streams, outputs, strict=True)]
    return streams if pre else normalized(streams)


def transformer(stack, streams, side_inputs, pre, activation=gelu):
    """Computes a `GlobalLocalTransformerLayers` (ETC paper, section 3)."""

    def attend(streams):
        inputs = dict(zip(("long_input", "global_input"), streams, strict=True))
        return fused_attention(block.inner_layer, side_inputs | inputs)

    def feed(streams):
        layer = block.inner_layer
        return [feed_forward(layer, *streams, activation)]

    feed_forwards = zip(
        stack.long_feed_forward_layers,
        stack.global_feed_forward_layers,
        strict=True,
    )
    for block, blocks in zip(
        stack.fused_att_layers, feed_forwards, strict=True
    ):
        streams = _residual_streams(block, streams, attend, pre)
        for i, block in enumerate(blocks):
            (streams[i],) = _residual_streams(block, [streams[i]], feed, pre)
    return streams
