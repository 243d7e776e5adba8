"""Local attention with side keys, a chunk of queries at a time.

The numbers are those of `attention_core.banded_attention`. Scores exist for one
chunk of queries only: the forward pass keeps the output and each query's
maximum and denominator of the softmax, and the backward pass computes the
probabilities again from them. So memory does not grow with heads x length x
window.
"""

import math

import tensorflow as tf

from etcmodel import attention_specs
from etcmodel import tensor_utils
from etcmodel.layers import streaming_labels
from etcmodel.layers import streaming_tools as tools

# Blocks of queries are no shorter than this, so that products stay efficient.
MIN_BLOCK_LEN = 64


def streaming_local_attention(
    queries: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    local_radius: int,
    att_mask=None,
    relative_att_ids=None,
    side_keys: tf.Tensor | None = None,
    side_values: tf.Tensor | None = None,
    side_att_mask=None,
    side_relative_att_ids=None,
    labels=None,
    dropout: tools.Dropout | None = None,
) -> tf.Tensor:
    """Queries against the keys near them and all side keys, chunk by chunk.

    Args:
        queries: `<float>[batch, long, heads, size_per_head]`.
        keys: `<float>[batch, long, heads, size_per_head]`.
        values: `<float>[batch, long, heads, value_size]`.
        local_radius: how many positions a query sees to each side, at least 1.
        att_mask: `<int32 or bool>[batch, long, 2*local_radius + 1]`, a
            `SegmentMask` or None.
        relative_att_ids: `<int32>[batch, long, 2*local_radius + 1]`,
            `DistanceLabels` or None.
        side_keys: `<float>[batch, side, heads, size_per_head]`.
        side_values: `<float>[batch, side, heads, value_size]`.
        side_att_mask: `<int32 or bool>[batch, long, side]`, a `LongGlobalMask`
            or None.
        side_relative_att_ids: `<int32>[batch, long, side]`,
            `LongGlobalLabels` or None.
        labels: `attention_core.RelativeLabels` that the ids index into.
        dropout: of the probabilities, drawn again in the backward pass.

    Returns:
        `<float>[batch, long, heads, value_size]`. It can be differentiated
        once.
    """
    inputs = {"queries": queries, "keys": keys, "values": values}
    scorers = {"band": streaming_labels.band_labels(relative_att_ids, labels)}
    if side_keys is not None:
        inputs |= {"side_keys": side_keys, "side_values": side_values}
        scorers["side"] = streaming_labels.pair_labels(
            side_relative_att_ids, labels
        )
    for kind, scorer in scorers.items():
        if scorer is not None:
            inputs[f"{kind}_table"], inputs[f"{kind}_bias"] = (
                streaming_labels.select(scorer, labels)
            )

    return tools.attend_with_gradients(
        inputs,
        lambda named: _LocalAttention(
            named, local_radius, att_mask, side_att_mask, scorers, dropout
        ),
    )


class _LocalAttention:
    """One call: its inputs, cut into chunks, and both passes over them."""

    def __init__(
        self, named, local_radius, att_mask, side_att_mask, scorers, dropout
    ):
        queries = named["queries"]
        self.batch, self.length, self.heads, size = tensor_utils.get_shape_list(
            queries
        )
        self.dtype = queries.dtype
        self.named = named
        self.radius = local_radius
        self.att_mask = att_mask
        self.side_att_mask = side_att_mask
        self.scorers = scorers
        self.dropout = dropout
        self.scale = 1.0 / math.sqrt(size)
        self.has_side = "side_keys" in named
        side_len = 0
        if self.has_side:
            side_len = tensor_utils.get_shape_list(named["side_keys"])[1]
        self.side_len = side_len
        self._plan()
        self._prepare()

    def _plan(self):
        """Cuts the queries into blocks, and the blocks into chunks."""
        self.block_len = max(self.radius, MIN_BLOCK_LEN)
        self.window = self.block_len + 2 * self.radius
        num_blocks = tools.ceil_div(self.length, self.block_len)
        self.blocks, self.num_chunks = tools.plan_chunks(
            num_blocks,
            self.block_len
            * tools.known(self.batch, 1)
            * self.heads
            * (
                self.window + tools.known(self.side_len, tools.TYPICAL_SIDE_LEN)
            ),
        )
        self.chunk_len = self.blocks * self.block_len
        self.cutter = tools.Cutter(self.length, self.chunk_len, self.num_chunks)

    def _prepare(self):
        """Prepares all that is cut along the long axis."""
        named, r = self.named, self.radius
        prepare = self.cutter.prepare
        self.queries = prepare(named["queries"])
        self.keys = prepare(named["keys"], r)
        self.values = prepare(named["values"], r)
        if self.has_side:
            # [batch, heads, size, side]
            self.side_keys = tf.transpose(named["side_keys"], [0, 2, 3, 1])
            # [batch, heads, side, value_size]
            self.side_values = tools.heads_outer(named["side_values"])
        self.columns = {}
        self.ids = {}
        for kind, scorer in self.scorers.items():
            if scorer is not None:
                self.columns[kind] = streaming_labels.Columns(
                    named[f"{kind}_table"], named[f"{kind}_bias"], self.scale
                )
                tensors = (
                    scorer.band_tensors(self.block_len)
                    if kind == "band"
                    else scorer.long_tensors()
                )
                self.ids[kind] = [prepare(x) for x in tensors]
        if isinstance(self.att_mask, attention_specs.SegmentMask):
            self.segment_ids = prepare(self.att_mask.segment_ids, r)
        elif self.att_mask is not None:
            # [batch, long, window]
            windows = tools.band_to_windows(
                tf.cast(tf.cast(self.att_mask, tf.bool), tf.int8),
                self.block_len,
            )
            self.band_mask = prepare(windows)
        if isinstance(self.side_att_mask, attention_specs.LongGlobalMask):
            self.side_mask = [
                prepare(x) for x in self.side_att_mask.long_tensors()
            ]
        elif self.side_att_mask is not None:
            self.side_mask = prepare(tf.cast(self.side_att_mask, tf.bool))

    # A chunk's pieces.

    def _blocked(self, tensor):
        """`[batch, heads, chunk_len, x]` as `[.., blocks, block_len, x]`."""
        batch, heads, _, size = tensor_utils.get_shape_list(tensor)
        return tf.reshape(
            tensor, [batch, heads, self.blocks, self.block_len, size]
        )

    def _flat(self, tensor):
        """`[batch, heads, blocks, block_len, x]` without the blocks."""
        batch, heads, _, _, size = tensor_utils.get_shape_list(tensor)
        return tf.reshape(tensor, [batch, heads, self.chunk_len, size])

    def _windows(self, rows):
        """`[batch, heads, chunk_len + 2r, x]` as `[.., blocks, window, x]`."""
        r, b, n = self.radius, self.block_len, self.chunk_len
        before = self._blocked(rows[:, :, :n])
        middle = self._blocked(rows[:, :, r : r + n])
        after = self._blocked(rows[:, :, 2 * r :])
        return tf.concat(
            [before[:, :, :, :r], middle, after[:, :, :, b - r :]], axis=3
        )

    def _add_windows(self, windows):
        """The transpose of `_windows`: sums what the windows share."""
        r, b = self.radius, self.block_len

        def put(part, before, after, offset):
            if before or after:
                part = tf.pad(part, [[0, 0]] * 3 + [[before, after], [0, 0]])
            margins = [offset, 2 * r - offset]
            return tf.pad(self._flat(part), [[0, 0]] * 2 + [margins, [0, 0]])

        # [batch, heads, chunk_len + 2r, x]
        return (
            put(windows[:, :, :, :r], 0, b - r, 0)
            + put(windows[:, :, :, r : r + b], 0, 0, r)
            + put(windows[:, :, :, r + b :], b - r, 0, 2 * r)
        )

    def _chunk(self, index):
        """A chunk's queries, window keys and values, and pieces of scores."""
        r = self.radius
        # [batch, heads, chunk_len, size]
        queries = tools.heads_outer(self.cutter.cut(self.queries, index))
        queries *= tf.constant(self.scale, self.dtype)
        # [batch, heads, blocks, window, size]
        keys, values = (
            self._windows(tools.heads_outer(self.cutter.cut(x, index, r)))
            for x in (self.keys, self.values)
        )
        # [batch, heads, blocks, block_len, window]
        raw = tf.matmul(self._blocked(queries), keys, transpose_b=True)
        band = tools.Piece(self._flat(raw), bias=self._band_bias(index))
        self._add_labels("band", band, queries, index)
        pieces = {"band": band}
        if self.has_side:
            # [batch, heads, chunk_len, side]
            side = tools.Piece(
                tf.matmul(queries, self.side_keys), bias=self._side_bias(index)
            )
            self._add_labels("side", side, queries, index)
            pieces["side"] = side
        return queries, keys, values, pieces

    def _add_labels(self, kind, piece, queries, index):
        scorer = self.scorers[kind]
        if scorer is None:
            return
        ids = [self.cutter.cut(x, index) for x in self.ids[kind]]
        piece.label_ids = ids
        products = self.columns[kind].products(queries)
        if kind == "band":
            piece.label, piece.chosen = scorer.to_windows(
                products, ids, self.block_len, self.window
            )
        else:
            piece.label, piece.chosen = scorer.lookup(
                products, ids, self.side_len
            )

    def _band_bias(self, index):
        """`<float>[1 or batch, 1, chunk_len, window]`."""
        r, b = self.radius, self.block_len
        # [1, 1, chunk_len + 2r, 1]
        in_sequence = tf.reshape(self.cutter.exists(index, r), [1, 1, -1, 1])
        # [1, 1, blocks, 1, window]
        allowed = tf.linalg.matrix_transpose(self._windows(in_sequence))
        if self.att_mask is None or isinstance(
            self.att_mask, attention_specs.SegmentMask
        ):
            # [block_len, window]
            distance = tf.range(self.window) - tf.range(b)[:, tf.newaxis]
            # [1, 1, blocks, block_len, window]
            allowed &= (distance >= 0) & (distance <= 2 * r)
            if self.att_mask is not None:
                # [batch, 1, chunk_len + 2r, 1]
                ids = self.cutter.cut(self.segment_ids, index, r)
                ids = ids[:, tf.newaxis, :, tf.newaxis]
                # [batch, 1, blocks, 1, window]
                near = tf.linalg.matrix_transpose(self._windows(ids))
                allowed &= near == self._blocked(ids[:, :, r:-r])
        else:
            # [batch, 1, chunk_len, window]
            in_band = self.cutter.cut(self.band_mask, index)[:, tf.newaxis]
            allowed &= self._blocked(in_band) != 0
        return tools.bias_of_mask(self._flat(allowed), self.dtype)

    def _side_bias(self, index):
        """`<float>[batch, 1, chunk_len, side]`, or None for no mask."""
        mask = self.side_att_mask
        if mask is None:
            return None
        if isinstance(mask, attention_specs.LongGlobalMask):
            allowed = mask.part(
                [self.cutter.cut(x, index) for x in self.side_mask]
            )
        else:
            allowed = self.cutter.cut(self.side_mask, index)
        return tools.bias_of_mask(allowed, self.dtype)[:, tf.newaxis]

    def _keep(self, index, stream, probs):
        """Dropout's factors of a piece of a chunk, or None."""
        if self.dropout is None:
            return None
        return self.dropout.factors(
            tf.shape(probs), 2 * index + stream, probs.dtype
        )

    # The two passes.

    def forward(self):
        """The output and what normalizes each query's softmax."""

        def body(index, outputs, normalizers):
            queries, keys, values, pieces = self._chunk(index)
            del queries, keys
            weights, total, normalizer = tools.softmax_weights(
                list(pieces.values()), self.dtype
            )
            for stream, weight in enumerate(weights):
                keep = self._keep(index, stream, weight)
                if keep is not None:
                    weights[stream] = weight * keep
            # [batch, heads, chunk_len, value_size]
            output = self._flat(tf.matmul(self._blocked(weights[0]), values))
            if self.has_side:
                output += tf.matmul(weights[1], self.side_values)
            output /= tf.cast(total, output.dtype)
            return [
                outputs.write(index, tools.heads_outer(output)),
                normalizers.write(index, normalizer),
            ]

        outputs, normalizers = tools.loop(
            self.num_chunks,
            body,
            [
                tf.TensorArray(self.dtype, self.num_chunks),
                tf.TensorArray(tools.score_dtype(self.dtype), self.num_chunks),
            ],
        )
        # [chunks, batch, heads, chunk_len, 1]
        normalizers = normalizers.stack()
        return tools.concat_chunks(outputs)[:, : self.length], normalizers

    def backward(self, output, normalizers, upstream):
        """The gradients, named as the inputs."""
        output = self.cutter.prepare(output)
        upstream = self.cutter.prepare(upstream)
        dtype = tools.score_dtype(self.dtype)
        # What is summed over all chunks.
        sums = {
            name: tf.zeros_like(tensor, dtype)
            for name, tensor in self.named.items()
            if name not in ("queries", "keys", "values")
        }
        # What a chunk adds to the rows of the next.
        margins = [
            tf.zeros(
                [self.batch, self.heads, 2 * self.radius, x.shape[-1]], dtype
            )
            for x in (self.keys, self.values)
        ]
        names = list(sums)

        def body(index, d_queries, d_keys, d_values, *state):
            rows, margins, sums = self._chunk_gradients(
                index,
                output,
                normalizers[index],
                upstream,
                state[:2],
                dict(zip(names, state[2:], strict=True)),
            )
            return [
                d_queries.write(index, rows[0]),
                d_keys.write(index, rows[1]),
                d_values.write(index, rows[2]),
                *margins,
                *[sums[name] for name in names],
            ]

        d_queries, d_keys, d_values, *state = tools.loop(
            self.num_chunks,
            body,
            [
                *[tf.TensorArray(self.dtype, self.num_chunks) for _ in "qkv"],
                *margins,
                *sums.values(),
            ],
        )
        gradients = {
            "queries": tools.concat_chunks(d_queries)[:, : self.length]
        }
        for name, array, margin in (
            ("keys", d_keys, state[0]),
            ("values", d_values, state[1]),
        ):
            margin = tools.heads_outer(tf.cast(margin, self.dtype))
            # [batch, padded_len + 2r, heads, x], from position -r on
            rows = tf.concat([tools.concat_chunks(array), margin], axis=1)
            gradients[name] = rows[:, self.radius :][:, : self.length]
        for name, total in zip(names, state[2:], strict=True):
            gradients[name] = tf.cast(total, self.named[name].dtype)
        return gradients

    def _chunk_gradients(
        self, index, output, normalizer, upstream, margins, sums
    ):
        """Gradients of a chunk's rows, and the margins and sums after it."""
        queries, keys, values, pieces = self._chunk(index)
        # [chunk_len, 1, 1]
        exists = self.cutter.exists(index)[:, tf.newaxis, tf.newaxis]
        # [batch, heads, chunk_len, value_size]
        d_output = tools.heads_outer(
            self.cutter.cut(upstream, index) * tf.cast(exists, self.dtype)
        )
        # [batch, heads, chunk_len, 1]
        delta = tools.row_products(
            d_output, tools.heads_outer(self.cutter.cut(output, index))
        )
        # [batch, heads, chunk_len, window]
        d_probs = self._flat(
            tf.matmul(self._blocked(d_output), values, transpose_b=True)
        )
        probs, d_scores = tools.gradients(
            pieces["band"],
            normalizer,
            delta,
            d_probs,
            self._keep(index, 0, d_probs),
            self.dtype,
        )
        # [batch, heads, chunk_len, size]
        d_queries = self._flat(tf.matmul(self._blocked(d_scores), keys))
        # [batch, heads, blocks, window, x]
        d_windows = [
            tf.matmul(
                self._blocked(left), self._blocked(right), transpose_a=True
            )
            for left, right in ((d_scores, queries), (probs, d_output))
        ]
        rows, margins = zip(
            *[
                self._carry(windows, margin)
                for windows, margin in zip(d_windows, margins, strict=True)
            ],
            strict=True,
        )
        side_d_scores = None
        if self.has_side:
            # [batch, heads, chunk_len, side]
            d_probs = tf.matmul(d_output, self.side_values, transpose_b=True)
            probs, side_d_scores = tools.gradients(
                pieces["side"],
                normalizer,
                delta,
                d_probs,
                self._keep(index, 1, d_probs),
                self.dtype,
            )
            d_queries += tf.matmul(
                side_d_scores, self.side_keys, transpose_b=True
            )
            for name, left, right in (
                ("side_keys", side_d_scores, queries),
                ("side_values", probs, d_output),
            ):
                # [batch, heads, side, x]
                product = tf.matmul(left, right, transpose_a=True)
                sums[name] += tools.heads_outer(tools.to_score_dtype(product))
        for kind, columns in self.columns.items():
            scorer, piece = self.scorers[kind], pieces[kind]
            # [batch, heads, chunk_len, columns]
            if kind == "band":
                d_columns = scorer.to_windows_gradient(
                    d_scores, piece.label_ids, piece.chosen, self.block_len
                )
            else:
                d_columns = scorer.lookup_gradient(
                    side_d_scores, piece.label_ids, piece.chosen
                )
            d_of_queries, d_table, d_bias = columns.gradients(
                d_columns, queries
            )
            d_queries += d_of_queries
            sums[f"{kind}_table"] += d_table
            sums[f"{kind}_bias"] += d_bias
        d_queries *= tf.constant(self.scale, self.dtype)
        return [tools.heads_outer(d_queries), *rows], margins, sums

    def _carry(self, windows, margin):
        """Sums windows' gradients by row, and hands rows on.

        Args:
            windows: `<float>[batch, heads, blocks, window, x]`.
            margin: `<float>[batch, heads, 2r, x]`, what the chunk before adds.

        Returns:
            `[batch, chunk_len, heads, x]`, the rows from `r` before the chunk
            on, and the margin for the next chunk.
        """
        # [batch, heads, chunk_len + 2r, x]
        rows = self._add_windows(windows)
        first = tools.to_score_dtype(rows[:, :, : 2 * self.radius]) + margin
        rows = tf.concat(
            [tf.cast(first, rows.dtype), rows[:, :, 2 * self.radius :]], axis=2
        )
        return (
            tools.heads_outer(rows[:, :, : self.chunk_len]),
            tools.to_score_dtype(rows[:, :, self.chunk_len :]),
        )
