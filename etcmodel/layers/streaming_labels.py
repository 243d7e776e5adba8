"""What labels add to the scores of a chunk, and the gradients of it.

A scorer chooses *columns*: label vectors of which each query's products are
taken once. Its labels are those products, spread over the pairs.
"""

import numpy as np
import tensorflow as tf

from etcmodel import attention_specs
from etcmodel import tensor_utils
from etcmodel.layers import streaming_tools as tools


class PatternLabels:
    """Labels of a band that depend on the distance alone.

    Its columns are the label of the run that the pattern begins with, those
    of the middle, and that of the run it ends with. In the windows of a block
    of queries, the first slots have the first label for all of them, the last
    slots the last one. In between, which column a slot gets differs from query
    to query but not from block to block: a product with a constant spreads
    the columns. (To shift each row by its index takes about as long, and far
    longer when compiled.)
    """

    def __init__(self, pattern: attention_specs.DistanceLabels):
        self.lead, self.columns, self.trail = pattern.runs()
        self.width = len(pattern.pattern)

    def band_tensors(self, block_len) -> list[tf.Tensor]:
        """Tensors to be cut like the queries: none."""
        del block_len
        return []

    def to_windows(self, columns, ids, block_len, window):
        """What the labels add to the scores of windows.

        Args:
            columns: `<float>[batch, heads, queries, columns]`.
            ids: the empty list.
            block_len: queries of a block; there are whole blocks only.
            window: `block_len` plus twice the radius.

        Returns:
            What `streaming_tools.Piece` takes as `label` and `chosen`: here
            `<float>[batch, heads, queries, window]`, anything beyond the band,
            and None.
        """
        del ids
        batch, heads, queries, num_columns = tensor_utils.get_shape_list(
            columns
        )
        # [block_len, batch*heads*blocks, columns]
        by_row = tf.transpose(
            tf.reshape(columns, [-1, block_len, num_columns]), [1, 0, 2]
        )
        spread = self._spread_matrix(block_len, columns.dtype)
        # [block_len, batch*heads*blocks, middle]
        middle = tf.matmul(by_row, spread)
        middle = tf.reshape(
            tf.transpose(middle, [1, 0, 2]),
            [batch, heads, queries, spread.shape[2]],
        )
        trail = window - self.lead - spread.shape[2]
        windows = tf.concat(
            [
                tf.broadcast_to(
                    columns[..., :1], [batch, heads, queries, self.lead]
                ),
                middle,
                tf.broadcast_to(
                    columns[..., -1:], [batch, heads, queries, trail]
                ),
            ],
            axis=-1,
        )
        return windows, None

    def to_windows_gradient(self, d_scores, ids, chosen, block_len):
        """Gradients of the columns from those of the scores of windows.

        Args:
            d_scores: `<float>[batch, heads, queries, window]`, 0 beyond the
                band.
            ids: the empty list.
            chosen: None, as `to_windows` returned it.
            block_len: queries of a block.

        Returns:
            `<float>[batch, heads, queries, columns]`.
        """
        del ids, chosen
        batch, heads, queries, _ = tensor_utils.get_shape_list(d_scores)
        spread = self._spread_matrix(block_len, d_scores.dtype)
        num_middle = spread.shape[2]
        end = self.lead + num_middle
        # [block_len, batch*heads*blocks, middle]
        by_row = tf.transpose(
            tf.reshape(
                d_scores[..., self.lead : end], [-1, block_len, num_middle]
            ),
            [1, 0, 2],
        )
        # [block_len, batch*heads*blocks, columns]
        d_columns = tf.matmul(by_row, spread, transpose_b=True)
        # [batch, heads, queries, columns]
        d_columns = tf.reshape(
            tf.transpose(d_columns, [1, 0, 2]),
            [batch, heads, queries, len(self.columns)],
        )
        return tf.concat(
            [
                d_columns[..., :1] + _sum(d_scores[..., : self.lead]),
                d_columns[..., 1:-1],
                d_columns[..., -1:] + _sum(d_scores[..., end:]),
            ],
            axis=-1,
        )

    def _spread_matrix(self, block_len, dtype):
        """`<dtype>[block_len, columns, middle]`, 1 where a slot has a column.

        The middle slots are those between the first `lead` ones and the
        first that the run at the end reaches for all queries.
        """
        num_columns = len(self.columns)
        # [middle]
        slot = np.arange(self.lead, self.width - self.trail + block_len - 1)
        # [block_len, middle]
        offset = slot - np.arange(block_len)[:, np.newaxis]
        column = np.clip(offset - self.lead + 1, 0, num_columns - 1)
        # [block_len, middle, columns]
        one_hot = np.eye(num_columns)[column]
        return tf.constant(one_hot.transpose(0, 2, 1), dtype)


class LinkLabels:
    """Labels of linked pairs, and one for the others."""

    def __init__(self, spec: attention_specs.LongGlobalLabels):
        self.spec = spec
        self.columns = spec.columns

    def long_tensors(self) -> list[tf.Tensor]:
        """Tensors to be cut along the long axis."""
        return self.spec.long_tensors()

    def lookup(self, columns, ids, global_len, of_global=False):
        """What `streaming_tools.Piece` takes as `label` and `chosen`.

        Args:
            columns: `<float>[batch, heads, queries, columns]`.
            ids: the tensors of `long_tensors`, cut.
            global_len: int or `<int32>[]`.
            of_global: whether the queries are the global tokens.

        Returns:
            The columns, and `<bool or int32>[batch, 1, queries, keys]`.
        """
        linked = self.spec.part(ids, global_len)[:, tf.newaxis]
        if of_global:
            linked = tf.linalg.matrix_transpose(linked)
        return columns, linked

    def lookup_gradient(self, d_scores, ids, chosen):
        """Gradients of the columns from those of the scores."""
        del ids
        if chosen.dtype != tf.bool:
            # Of so few columns it takes half of the time of a sum by index.
            return _one_hot_gradient(d_scores, chosen[:, 0], len(self.columns))
        total = _sum(d_scores)
        of_linked = _sum(d_scores * tf.cast(chosen, d_scores.dtype))
        return tf.concat([total - of_linked, of_linked], axis=-1)


class IdLabels:
    """Any labels, given as an id for each pair.

    Each pair chooses from its query's products with all label vectors. With
    `use_one_hot_lookup` it does so through a product with a one-hot vector,
    whose gradient is one, too; without, the gradient is a scatter.
    """

    def __init__(
        self, ids: tf.Tensor, vocab_size: int, use_one_hot_lookup: bool
    ):
        self.ids = tf.cast(ids, tf.int32)
        self.vocab_size = vocab_size
        self.use_one_hot_lookup = use_one_hot_lookup
        self.columns = None

    def long_tensors(self) -> list[tf.Tensor]:
        """Tensors to be cut like the pairs."""
        return [self.ids]

    def band_tensors(self, block_len) -> list[tf.Tensor]:
        """Tensors to be cut like the queries, for `to_windows`."""
        if self.use_one_hot_lookup:
            return [self.ids]
        # [batch, long, window]
        return [tools.band_to_windows(self.ids, block_len)]

    def to_windows(self, columns, ids, block_len, window):
        """As `PatternLabels.to_windows`, with ids of `band_tensors`."""
        label, chosen = self.lookup(columns, ids)
        if chosen is None:
            # [batch, heads, queries, window + 1]
            row = tf.pad(label, [[0, 0]] * 3 + [[0, block_len]])
            label = tools.skew(row, block_len, window)
        return label, chosen

    def to_windows_gradient(self, d_scores, ids, chosen, block_len):
        """As `PatternLabels.to_windows_gradient`."""
        if chosen is None:
            # [batch, heads, queries, width]
            d_scores = tools.unskew(d_scores, block_len, ids[0].shape[-1])
        return self.lookup_gradient(d_scores, ids, chosen)

    def lookup(self, columns, ids, global_len=None, of_global=False):
        """As `LinkLabels.lookup`; ids are laid out like the pairs.

        Args:
            columns: `<float>[batch, heads, queries, vocab_size]`.
            ids: list of one `<int32>[batch, queries, keys]`.
            global_len: does not matter.
            of_global: does not matter.

        Returns:
            The columns and the ids, `<int32>[batch, 1, queries, keys]`; or the
            scores, `<float>[batch, heads, queries, keys]`, and None.
        """
        del global_len, of_global
        if not self.use_one_hot_lookup:
            return columns, ids[0][:, tf.newaxis]
        # [batch, queries, keys, heads]
        found = tf.matmul(
            # [batch, queries, keys, vocab_size]
            tf.one_hot(ids[0], self.vocab_size, dtype=columns.dtype),
            # [batch, queries, vocab_size, heads]
            tf.transpose(columns, [0, 2, 3, 1]),
        )
        return tf.transpose(found, [0, 3, 1, 2]), None

    def lookup_gradient(self, d_scores, ids, chosen):
        """Gradients of the columns from those of the scores."""
        if chosen is not None:
            return tools.choose_gradient(
                d_scores, chosen, num_columns=self.vocab_size
            )
        return _one_hot_gradient(d_scores, ids[0], self.vocab_size)


def band_labels(ids, labels):
    """The scorer of `l2l_relative_att_ids`, or None."""
    if isinstance(ids, attention_specs.DistanceLabels):
        return PatternLabels(ids)
    return _id_labels(ids, labels)


def pair_labels(ids, labels):
    """The scorer of labels between long and global tokens, or None."""
    if isinstance(ids, attention_specs.LongGlobalLabels):
        return LinkLabels(ids)
    return _id_labels(ids, labels)


def select(scorer, labels) -> tuple[tf.Tensor, tf.Tensor]:
    """The label vectors and biases of a scorer's columns.

    Args:
        scorer: one of the above.
        labels: `attention_core.RelativeLabels`.

    Returns:
        `<float>[columns, heads, size]` and `<float>[columns, heads]`.
    """
    table, bias = labels.emb_table, labels.bias_table
    if scorer.columns is None:
        return table, bias
    vocab_size, heads, size = tensor_utils.get_shape_list(table)
    # By a product, as its gradient is one.
    # [columns, vocab_size]
    chosen = tf.one_hot(scorer.columns, vocab_size, dtype=table.dtype)
    flat = tf.matmul(chosen, tf.reshape(table, [vocab_size, heads * size]))
    return tf.reshape(flat, [-1, heads, size]), tf.matmul(chosen, bias)


class Columns:
    """The label vectors of a scorer's columns, and queries' products with them.

    Args:
        table: `<float>[columns, heads, size]`.
        bias: `<float>[columns, heads]`.
        scale: what the queries are scaled with.
    """

    def __init__(self, table: tf.Tensor, bias: tf.Tensor, scale: float):
        # [heads, columns, size]
        self.table = tf.transpose(table, [1, 0, 2])
        # [heads, 1, columns]
        self.bias = tf.transpose(tools.to_score_dtype(bias) * scale)[
            :, tf.newaxis
        ]
        self.scale = scale

    def products(self, queries):
        """Products of scaled queries with each column.

        Args:
            queries: `<float>[batch, heads, queries, size]`.

        Returns:
            `<float>[batch, heads, queries, columns]`.
        """
        return (
            tools.to_score_dtype(
                tf.matmul(queries, self.table, transpose_b=True)
            )
            + self.bias
        )

    def gradients(self, d_columns, queries):
        """Gradients of the queries, the table and the bias.

        Args:
            d_columns: `<float>[batch, heads, queries, columns]`.
            queries: `<float>[batch, heads, queries, size]`.

        Returns:
            Shaped as the queries, `table` and `bias` of the constructor.
        """
        # [columns, heads]
        d_bias = (
            tf.transpose(
                tf.reduce_sum(tools.to_score_dtype(d_columns), axis=[0, 2])
            )
            * self.scale
        )
        d_columns = tf.cast(d_columns, queries.dtype)
        # [batch, heads, columns, size]
        d_table = tf.matmul(d_columns, queries, transpose_a=True)
        # [columns, heads, size]
        d_table = tf.transpose(
            tf.reduce_sum(tools.to_score_dtype(d_table), axis=0), [1, 0, 2]
        )
        return tf.matmul(d_columns, self.table), d_table, d_bias


def _id_labels(ids, labels):
    if ids is None:
        return None
    return IdLabels(ids, labels.emb_table.shape[0], labels.use_one_hot_lookup)


def _one_hot_gradient(d_scores, ids, num_columns):
    """Gradients of columns by products with one-hot vectors.

    Args:
        d_scores: `<float>[batch, heads, queries, keys]`.
        ids: `<int32>[batch, queries, keys]`.
        num_columns: number of columns.

    Returns:
        `<float>[batch, heads, queries, columns]`.
    """
    # [batch, queries, heads, columns]
    d_columns = tf.matmul(
        # [batch, queries, heads, keys]
        tf.transpose(d_scores, [0, 2, 1, 3]),
        # [batch, queries, keys, columns]
        tf.one_hot(ids, num_columns, dtype=d_scores.dtype),
    )
    return tf.transpose(d_columns, [0, 2, 1, 3])


def _sum(tensor):
    return tf.reduce_sum(tensor, axis=-1, keepdims=True)
