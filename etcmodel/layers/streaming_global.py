"""Attention of the global queries, a chunk of the long keys at a time.

The numbers are those of `attention_core.dense_attention` over the global and
the long keys together. The softmax over all of them is made in one pass: a
maximum and sums so far, corrected whenever a chunk raises the maximum. The
backward pass computes each chunk's probabilities again.
"""

import math

import tensorflow as tf

from etcmodel import attention_specs
from etcmodel import tensor_utils
from etcmodel.layers import streaming_labels
from etcmodel.layers import streaming_tools as tools


def streaming_global_attention(
    queries: tf.Tensor,
    global_keys: tf.Tensor,
    global_values: tf.Tensor,
    long_keys: tf.Tensor,
    long_values: tf.Tensor,
    g2g_att_mask: tf.Tensor | None = None,
    g2l_att_mask=None,
    g2g_relative_att_ids: tf.Tensor | None = None,
    g2l_relative_att_ids=None,
    labels=None,
    dropout: tools.Dropout | None = None,
) -> tf.Tensor:
    """Global queries against all global and all long keys, in one softmax.

    Args:
        queries: `<float>[batch, global, heads, size_per_head]`.
        global_keys: `<float>[batch, global, heads, size_per_head]`.
        global_values: `<float>[batch, global, heads, value_size]`.
        long_keys: `<float>[batch, long, heads, size_per_head]`.
        long_values: `<float>[batch, long, heads, value_size]`.
        g2g_att_mask: `<int32 or bool>[batch, global, global]` or None.
        g2l_att_mask: `<int32 or bool>[batch, global, long]`, a
            `LongGlobalMask` or None.
        g2g_relative_att_ids: `<int32>[batch, global, global]` or None.
        g2l_relative_att_ids: `<int32>[batch, global, long]`,
            `LongGlobalLabels` or None.
        labels: `attention_core.RelativeLabels` that the ids index into.
        dropout: of the probabilities, drawn again in the backward pass.

    Returns:
        `<float>[batch, global, heads, value_size]`. It can be differentiated
        once.
    """
    inputs = {
        "queries": queries,
        "global_keys": global_keys,
        "global_values": global_values,
        "long_keys": long_keys,
        "long_values": long_values,
    }
    scorers = {
        "global": streaming_labels.pair_labels(g2g_relative_att_ids, labels),
        "long": streaming_labels.pair_labels(g2l_relative_att_ids, labels),
    }
    for kind, scorer in scorers.items():
        if scorer is not None:
            inputs[f"{kind}_table"], inputs[f"{kind}_bias"] = (
                streaming_labels.select(scorer, labels)
            )

    return tools.attend_with_gradients(
        inputs,
        lambda named: _GlobalAttention(
            named, g2g_att_mask, g2l_att_mask, scorers, dropout
        ),
    )


class _GlobalAttention:
    """One call: its inputs, cut into chunks, and both passes over them."""

    def __init__(self, named, g2g_att_mask, g2l_att_mask, scorers, dropout):
        self.named = named
        self.g2l_att_mask = g2l_att_mask
        self.scorers = scorers
        self.dropout = dropout
        queries = named["queries"]
        self.dtype = queries.dtype
        self.batch, self.global_len, self.heads, size = (
            tensor_utils.get_shape_list(queries)
        )
        self.scale = 1.0 / math.sqrt(size)
        self.length = tensor_utils.get_shape_list(named["long_keys"])[1]
        self.chunk_len, self.num_chunks = tools.plan_chunks(
            self.length,
            tools.known(self.batch, 1)
            * self.heads
            * tools.known(self.global_len, tools.TYPICAL_SIDE_LEN),
        )
        self.cutter = tools.Cutter(self.length, self.chunk_len, self.num_chunks)

        # [batch, heads, global, size]
        self.queries = tools.heads_outer(queries) * tf.constant(
            self.scale, self.dtype
        )
        self.columns = {}
        self.products = {}
        for kind, scorer in scorers.items():
            if scorer is not None:
                self.columns[kind] = streaming_labels.Columns(
                    named[f"{kind}_table"], named[f"{kind}_bias"], self.scale
                )
                # [batch, heads, global, columns]
                self.products[kind] = self.columns[kind].products(self.queries)
        self._prepare(g2g_att_mask)

    def _prepare(self, g2g_att_mask):
        """Prepares what is cut along the long axis; the global piece."""
        named = self.named
        prepare = self.cutter.prepare
        self.long_keys = prepare(named["long_keys"])
        self.long_values = prepare(named["long_values"])
        mask = self.g2l_att_mask
        if isinstance(mask, attention_specs.LongGlobalMask):
            self.long_mask = [prepare(x) for x in mask.long_tensors()]
        elif mask is not None:
            # [batch, global, long]
            self.long_mask = prepare(tf.cast(mask, tf.bool), axis=2)
        scorer = self.scorers["long"]
        self.long_ids = []
        if scorer is not None:
            # Links are cut along axis 1; ids, [batch, global, long], along 2.
            self.ids_axis = 2 if scorer.columns is None else 1
            self.long_ids = [
                prepare(x, axis=self.ids_axis) for x in scorer.long_tensors()
            ]

        # [batch, heads, global, size]
        self.global_keys = tools.heads_outer(named["global_keys"])
        self.global_values = tools.heads_outer(named["global_values"])
        bias = None
        if g2g_att_mask is not None:
            # [batch, 1, global, global]
            bias = tools.bias_of_mask(
                tf.cast(g2g_att_mask, tf.bool), self.dtype
            )[:, tf.newaxis]
        self.global_piece = tools.Piece(
            tf.matmul(self.queries, self.global_keys, transpose_b=True), bias
        )
        scorer = self.scorers["global"]
        if scorer is not None:
            ids = scorer.long_tensors()
            self.global_piece.label_ids = ids
            self.global_piece.label, self.global_piece.chosen = scorer.lookup(
                self.products["global"], ids
            )

    def _long_piece(self, index):
        """A chunk's keys and values, `[batch, heads, chunk, x]`, and piece."""
        keys = tools.heads_outer(self.cutter.cut(self.long_keys, index))
        values = tools.heads_outer(self.cutter.cut(self.long_values, index))
        piece = tools.Piece(
            # [batch, heads, global, chunk]
            tf.matmul(self.queries, keys, transpose_b=True),
            bias=self._long_bias(index),
        )
        scorer = self.scorers["long"]
        if scorer is not None:
            ids = [
                self.cutter.cut(x, index, axis=self.ids_axis)
                for x in self.long_ids
            ]
            piece.label_ids = ids
            piece.label, piece.chosen = scorer.lookup(
                self.products["long"], ids, self.global_len, of_global=True
            )
        return keys, values, piece

    def _long_bias(self, index):
        """`<float>[1 or batch, 1, 1 or global, chunk]`, or None."""
        mask = self.g2l_att_mask
        # [1, 1, chunk]
        allowed = self.cutter.exists(index)[tf.newaxis, tf.newaxis]
        if isinstance(mask, attention_specs.LongGlobalMask):
            # [batch, chunk, global]
            part = mask.part(
                [self.cutter.cut(x, index) for x in self.long_mask]
            )
            allowed &= tf.linalg.matrix_transpose(part)
        elif mask is not None:
            # [batch, global, chunk]
            allowed &= self.cutter.cut(self.long_mask, index, axis=2)
        return tools.bias_of_mask(allowed, self.dtype)[:, tf.newaxis]

    def _keep(self, draw, probs):
        """Dropout's factors, or None; each `draw` has others."""
        if self.dropout is None:
            return None
        return self.dropout.factors(tf.shape(probs), draw, probs.dtype)

    # The two passes.

    def forward(self):
        """The output and what normalizes each query's softmax."""

        def add(piece, values, draw, state):
            output, maximum, total = state
            scores = tools.scores(piece)
            # [batch, heads, global, 1]
            new_maximum = tf.maximum(
                maximum, tf.reduce_max(scores, axis=-1, keepdims=True)
            )
            weights, new_total = tools.weights(scores, new_maximum, self.dtype)
            keep = self._keep(draw, weights)
            if keep is not None:
                weights *= keep
            correction = tf.exp(maximum - new_maximum)
            # [batch, heads, global, value_size]
            return [
                output * correction
                + tools.to_score_dtype(tf.matmul(weights, values)),
                new_maximum,
                total * correction + new_total,
            ]

        def body(index, *state):
            _, values, piece = self._long_piece(index)
            return add(piece, values, index + 1, state)

        dtype = tools.score_dtype(self.dtype)
        # [batch, heads, global, 1]
        nothing = tf.zeros_like(self.queries[..., :1], dtype)
        state = [
            tf.zeros_like(self.global_values[..., :1, :], dtype) + nothing,
            nothing + tools.LOWEST,
            nothing,
        ]
        state = add(self.global_piece, self.global_values, 0, state)
        output, maximum, total = tools.loop(self.num_chunks, body, state)
        total, normalizer = tools.close_softmax(total, maximum)
        output = tf.cast(output / total, self.dtype)
        return tools.heads_outer(output), normalizer

    def backward(self, output, normalizer, upstream):
        """The gradients, named as the inputs."""
        d_output = tools.heads_outer(upstream)
        # [batch, heads, global, 1]
        delta = tools.row_products(d_output, tools.heads_outer(output))

        def add(kind, keys, values, piece, draw, state):
            """The piece's gradients of keys and values, and the new state."""
            # [batch, heads, global, keys]
            d_probs = tf.matmul(d_output, values, transpose_b=True)
            probs, d_scores = tools.gradients(
                piece,
                normalizer,
                delta,
                d_probs,
                self._keep(draw, d_probs),
                self.dtype,
            )
            state = dict(state)
            state["queries"] += tools.to_score_dtype(tf.matmul(d_scores, keys))
            if self.scorers[kind] is not None:
                state[kind] += tools.to_score_dtype(
                    self.scorers[kind].lookup_gradient(
                        d_scores, piece.label_ids, piece.chosen
                    )
                )
            # [batch, keys, heads, x]
            rows = [
                tools.heads_outer(tf.matmul(left, right, transpose_a=True))
                for left, right in ((d_scores, self.queries), (probs, d_output))
            ]
            return rows, state

        dtype = tools.score_dtype(self.dtype)
        state = {
            name: tf.zeros_like(tensor, dtype)
            for name, tensor in (
                ("queries", self.queries),
                *self.products.items(),
            )
        }
        global_rows, state = add(
            "global",
            self.global_keys,
            self.global_values,
            self.global_piece,
            0,
            state,
        )
        names = list(state)

        def body(index, d_keys, d_values, *tensors):
            state = dict(zip(names, tensors, strict=True))
            rows, state = add(
                "long", *self._long_piece(index), index + 1, state
            )
            return [
                d_keys.write(index, rows[0]),
                d_values.write(index, rows[1]),
                *[state[name] for name in names],
            ]

        d_keys, d_values, *tensors = tools.loop(
            self.num_chunks,
            body,
            [
                *[tf.TensorArray(self.dtype, self.num_chunks) for _ in "kv"],
                *state.values(),
            ],
        )
        state = dict(zip(names, tensors, strict=True))
        gradients = {
            "global_keys": global_rows[0],
            "global_values": global_rows[1],
            "long_keys": tools.concat_chunks(d_keys)[:, : self.length],
            "long_values": tools.concat_chunks(d_values)[:, : self.length],
        }
        d_queries = state["queries"]
        for kind, columns in self.columns.items():
            of_queries, d_table, d_bias = columns.gradients(
                state[kind], self.queries
            )
            d_queries += tools.to_score_dtype(of_queries)
            gradients[f"{kind}_table"] = d_table
            gradients[f"{kind}_bias"] = d_bias
        gradients["queries"] = tools.heads_outer(d_queries * self.scale)
        return {
            name: tf.cast(gradient, self.named[name].dtype)
            for name, gradient in gradients.items()
        }
