"""Relative labels, with one class for each way to determine them.

A class determines the label of each pair of a query and a key. To score labels,
each query is multiplied by the vectors of all labels that occur
(`RelativeLabels.products`). Each pair then selects one of these products
(`softmax.choose`).
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from etcmodel.ops import shapes
from etcmodel.ops.attention import masks
from etcmodel.ops.attention import softmax


class RelativeLabels(masks.AttentionSpec):
    """Base class of the labels of all pairs of a query and a key.

    Attributes:
        columns: the labels that occur, or None for the whole table. Scores are
            selected from the products of each query with their vectors.
    """

    columns: Sequence[int] | None = None

    def select(self, table: softmax.LabelTable) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the columns' vectors `[columns, heads, size]` and biases."""
        if self.columns is None:
            return table.vectors, table.biases
        vocab_size, heads, size = shapes.get_shape_list(table.vectors)
        # A one-hot product, whose gradient is a product, too, not a scatter.
        # [columns, vocab_size]
        chosen = tf.one_hot(self.columns, vocab_size, dtype=table.vectors.dtype)
        flat = tf.matmul(
            chosen, tf.reshape(table.vectors, [vocab_size, heads * size])
        )
        return (
            tf.reshape(flat, [-1, heads, size]),
            tf.matmul(tf.cast(chosen, table.biases.dtype), table.biases),
        )

    def products(self, queries, vectors, biases) -> tf.Tensor:
        """Scores the columns, `<float>[batch, heads, queries, columns]`."""
        # [heads, columns, size]
        vectors = tf.transpose(vectors, [1, 0, 2])
        # [heads, 1, columns]
        biases = tf.transpose(softmax.to_score_dtype(biases))[:, tf.newaxis]
        if vectors.shape[0] == 1:
            # On CPUs, oneDNN's matrix product crashes if it must broadcast the
            # matrix of a single head over the batch.
            products = tf.tensordot(queries, vectors[0], [[3], [1]])
        else:
            products = tf.matmul(queries, vectors, transpose_b=True)
        return softmax.to_score_dtype(products) + biases * (
            vectors.shape[-1] ** -0.5
        )


class BandLabels(RelativeLabels):
    """Labels of long tokens and nearby long tokens."""

    def band_tensors(self, windows, dtype):
        """Returns tensors for `to_windows`: tensors to cut, and all others."""
        del windows, dtype
        return [], []

    def to_windows(self, products, rows, others, windows):
        """Returns `label` and `chosen` of `softmax.KeyBlock` in windows.

        Values outside of the band are arbitrary.

        Args:
            products: `<float>[batch, heads, queries, columns]`.
            rows: the first tensors of `band_tensors`, cut.
            others: the other tensors of `band_tensors`.
            windows: `blocks.Windows`, in which the queries are whole blocks.
        """
        raise NotImplementedError


class DistanceLabels(BandLabels):
    """Labels of nearby long tokens that depend on the distance alone.

    Use it as `l2l_relative_att_ids`. Label `k` of `2*local_radius + 1` labels
    belongs to the key `k - local_radius` positions after the query. With
    `DistanceLabels([2, 0, 1])` a token has label 0 for itself, 2 for the token
    before it and 1 for the one after.
    `RelativePositionGenerator.make_local_relative_att_spec` makes these labels.

    Raises:
        ValueError: there are fewer than 3 labels, or an even number.
    """

    def __init__(self, pattern: Sequence[int]):
        self.pattern = tuple(int(label) for label in pattern)
        if len(self.pattern) % 2 == 0 or len(self.pattern) < 3:
            raise ValueError(
                "pattern needs a label for each of 2*local_radius + 1 "
                "distances, an odd number of at least 3, but has "
                f"{len(self.pattern)}."
            )

    @property
    def columns(self) -> list[int]:
        """The columns that `runs` returns."""
        return self.runs()[1]

    def to_band(self, batch_size, length) -> tf.Tensor:
        """Returns labels as `<int32>[batch, long, 2*local_radius + 1]`."""
        return tf.broadcast_to(
            tf.constant(self.pattern, tf.int32),
            tf.stack([batch_size, length, len(self.pattern)]),
        )

    def runs(self) -> tuple[int, list[int], int]:
        """Splits the pattern into a leading run, a middle and a trailing run.

        The pattern 5 5 5 1 2 3 3 gives `(3, [5, 1, 2, 3], 2)`: the first column
        3 times, the middle columns once, and the last column twice.
        """
        pattern = self.pattern
        lead = 1
        while lead < len(pattern) - 1 and pattern[lead] == pattern[0]:
            lead += 1
        trail = 1
        while (
            trail < len(pattern) - lead and pattern[-1 - trail] == pattern[-1]
        ):
            trail += 1
        middle = list(pattern[lead : len(pattern) - trail])
        return lead, [pattern[0], *middle, pattern[-1]], trail

    def band_tensors(self, windows, dtype):
        """Returns the tensor that spreads columns over slots of a window.

        In a block's window, the first slots have the first label for all
        queries, and the last slots have the last label. In between, a slot's
        column depends on the query but not on the block. The tensor, `<float>[
        block_len, columns, slots]`, is 1 where a query's slot has a column, so
        a product with it spreads the columns. (Shifting each row by its index
        takes about as long, and far longer when compiled.)
        """
        lead, columns, trail = self.runs()
        block_len = windows.block_len
        # [middle]
        slot = tf.range(lead, len(self.pattern) - trail + block_len - 1)
        # [block_len, middle]
        column = slot - tf.range(block_len)[:, tf.newaxis] - lead + 1
        # [block_len, columns, middle]
        spread = tf.one_hot(
            tf.clip_by_value(column, 0, len(columns) - 1),
            len(columns),
            axis=1,
            dtype=dtype,
        )
        return [], [spread]

    def to_windows(self, products, rows, others, windows):
        """Returns `label` and `chosen` of `softmax.KeyBlock` in windows."""
        del rows
        (spread,) = others
        batch, heads, queries, columns = shapes.get_shape_list(products)
        block_len, _, num_middle = shapes.get_shape_list(spread)
        lead = self.runs()[0]
        # [block_len, batch*heads*blocks, columns]
        by_row = tf.transpose(
            tf.reshape(products, [-1, block_len, columns]), [1, 0, 2]
        )
        # [block_len, batch*heads*blocks, middle]
        middle = tf.transpose(tf.matmul(by_row, spread), [1, 0, 2])
        ends = [
            tf.broadcast_to(
                softmax.part(products, 3, column, 1),
                [batch, heads, queries, size],
            )
            for column, size in (
                (0, lead),
                (columns - 1, windows.window - lead - num_middle),
            )
        ]
        # [batch, heads, queries, window]
        label = tf.concat(
            [
                ends[0],
                tf.reshape(middle, [batch, heads, queries, num_middle]),
                ends[1],
            ],
            axis=-1,
        )
        return label, None


class BandIds(BandLabels):
    """Labels of a band, `<int>[batch, long, 2*local_radius + 1]`."""

    def __init__(self, ids: tf.Tensor, use_one_hot_lookup: bool = False):
        self.ids = tf.cast(ids, tf.int32)
        self.use_one_hot_lookup = use_one_hot_lookup

    def band_tensors(self, windows, dtype):
        """Returns the ids, in windows."""
        del dtype
        # [batch, long, window]
        return [windows.of_band(self.ids)], []

    def to_windows(self, products, rows, others, windows):
        """Returns `label` and `chosen` of `softmax.KeyBlock` in windows."""
        del others, windows
        return _choose_by_id(products, rows[0], self.use_one_hot_lookup)


class PairLabels(RelativeLabels):
    """Labels of pairs of long and global tokens.

    To define your own labels, subclass this class, set `columns` and implement
    `long_tensors` and `part`; see `docs/architecture.md`.
    """

    def long_tensors(self) -> list[tf.Tensor]:
        """Returns the tensors to cut into chunks, `<any>[batch, long, ...]`."""
        raise NotImplementedError

    def part(self, long_tensors: Sequence[tf.Tensor], global_len) -> tf.Tensor:
        """Returns the columns of a chunk of long tokens and all global tokens.

        The result is `<int32>[batch, part, global]`: indices into `columns`, or
        labels if `columns` is None. With two columns it may be `<bool>[batch,
        part, global]`, true for the second column.

        Args:
            long_tensors: the tensors of `long_tensors()`, cut to the chunk.
            global_len: number of global tokens, an int or `<int32>[]`.
        """
        raise NotImplementedError

    def lookup(self, products, long_tensors, global_len, of_global=False):
        """Returns `label` and `chosen` of `softmax.KeyBlock` for a chunk."""
        # [batch, part, global]
        chosen = self.part(long_tensors, global_len)
        if of_global:
            chosen = tf.linalg.matrix_transpose(chosen)
        return products, chosen[:, tf.newaxis]

    def to_tensor(self, global_len) -> tf.Tensor:
        """Returns all labels, `<int32>[batch, long, global]`."""
        return self.part_labels(self.long_tensors(), global_len)

    def part_labels(self, long_tensors, global_len) -> tf.Tensor:
        """Returns the labels of a chunk, `<int32>[batch, part, global]`."""
        part = self.part(long_tensors, global_len)
        if self.columns is None:
            return part
        return tf.gather(self.columns, tf.cast(part, tf.int32))


class PairIds(PairLabels):
    """Labels of long and global tokens, `<int>[batch, long, global]`."""

    def __init__(self, ids: tf.Tensor, use_one_hot_lookup: bool = False):
        self.ids = tf.cast(ids, tf.int32)
        self.use_one_hot_lookup = use_one_hot_lookup

    def long_tensors(self) -> list[tf.Tensor]:
        """Returns the ids."""
        return [self.ids]

    def part(self, long_tensors: Sequence[tf.Tensor], global_len) -> tf.Tensor:
        """Returns the ids of the chunk."""
        del global_len
        return long_tensors[0]

    def lookup(self, products, long_tensors, global_len, of_global=False):
        """Returns `label` and `chosen` of `softmax.KeyBlock` for a chunk."""
        _, chosen = super().lookup(
            products, long_tensors, global_len, of_global
        )
        return _choose_by_id(products, chosen[:, 0], self.use_one_hot_lookup)


class LongGlobalLabels(PairLabels):
    """Labels of linked long and global tokens, and one for all other pairs.

    Use the same object as `l2g_relative_att_ids` and as `g2l_relative_att_ids`
    (do not transpose it). With two global tokens, `links=[[[0, 1, -1]]]`,
    `linked=8` and `not_linked=7` give the labels `[[[8, 7], [7, 8], [7, 7]]]`.
    The links `[[0, 1, -1]]` and `[[0, 0, -1]]` with `linked=[8, 9]` give
    `[[[9, 7], [9, 8], [7, 7]]]`.

    Args:
        links: tensors `<int>[batch, long]`, each with indices of global tokens;
            indices out of range link nothing.
        linked: the label of a linked pair, or a list with one label for each
            link. If several links match a pair, the last one counts.
        not_linked: the label of all other pairs.

    Raises:
        ValueError: `links` is empty, or `linked` is neither one label nor a
            list with one label for each link.
    """

    def __init__(
        self,
        links: Sequence[tf.Tensor],
        linked: int | Sequence[int],
        not_linked: int,
    ):
        self.links = [tf.convert_to_tensor(link) for link in links]
        if not self.links:
            raise ValueError("links needs at least one tensor, but is empty.")
        labels = np.ravel(linked).tolist()
        if np.ndim(linked) == 0:
            labels *= len(self.links)
        if len(labels) != len(self.links):
            raise ValueError(
                f"linked needs one label, or one for each of the "
                f"{len(self.links)} links, but is {linked}."
            )
        distinct = list(dict.fromkeys(labels))
        self.columns = [int(not_linked), *distinct]
        self._column_of_link = [1 + distinct.index(label) for label in labels]

    def long_tensors(self) -> list[tf.Tensor]:
        """Returns the links."""
        return self.links

    def part(self, long_tensors: Sequence[tf.Tensor], global_len) -> tf.Tensor:
        """Returns the columns that the links give; see `PairLabels.part`."""
        if len(self.columns) == 2:
            return masks.linked(long_tensors, global_len)
        index = tf.constant(0)
        for link, column in zip(
            long_tensors, self._column_of_link, strict=True
        ):
            # [batch, part, global]
            index = tf.where(masks.linked([link], global_len), column, index)
        return index


def band_labels(ids, table: softmax.LabelTable | None) -> BandLabels | None:
    """Converts labels of a band to a description; None stays None.

    Args:
        ids: a `BandLabels`, `<int>[batch, long, 2*local_radius + 1]` or None.
        table: label table, whose `use_one_hot_lookup` applies to the ids.
    """
    if ids is None or isinstance(ids, masks.AttentionSpec):
        return ids
    return BandIds(ids, table.use_one_hot_lookup)


def pair_labels(
    ids, table: softmax.LabelTable | None, from_global: bool = False
) -> PairLabels | None:
    """Converts labels to a description; `from_global` transposes a tensor."""
    if ids is None or isinstance(ids, masks.AttentionSpec):
        return ids
    if from_global:
        ids = tf.linalg.matrix_transpose(ids)
    return PairIds(ids, table.use_one_hot_lookup)


def band_label_tensor(ids, batch_size, length) -> tf.Tensor | None:
    """Converts `l2l_relative_att_ids` to a tensor; None stays None."""
    if isinstance(ids, DistanceLabels):
        return ids.to_band(batch_size, length)
    return ids


def pair_label_tensor(
    ids, global_len, from_global: bool = False
) -> tf.Tensor | None:
    """Converts `l2g_` or (`from_global`) `g2l_relative_att_ids` to a tensor."""
    if isinstance(ids, PairLabels):
        ids = ids.to_tensor(global_len)
        return tf.linalg.matrix_transpose(ids) if from_global else ids
    return ids


def _choose_by_id(products, ids, use_one_hot_lookup):
    """Returns `label` and `chosen` of `softmax.KeyBlock` for any label ids.

    The gradient of a one-hot lookup is a product, too; the gradient of a gather
    is a scatter.
    """
    if not use_one_hot_lookup:
        return products, ids[:, tf.newaxis]
    vocab_size = shapes.get_shape_list(products)[-1]
    # [batch, queries, keys, heads]
    found = tf.matmul(
        # [batch, queries, keys, vocab_size]
        tf.one_hot(ids, vocab_size, dtype=products.dtype),
        # [batch, queries, vocab_size, heads]
        tf.transpose(products, [0, 2, 3, 1]),
    )
    return tf.transpose(found, [0, 3, 1, 2]), None
