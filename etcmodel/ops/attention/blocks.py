"""Key blocks: the keys that long and global queries attend to.

The long sequence is cut into blocks (paper, Appendix A). The keys that a block
of queries may see are in its *window*: the block and `local_radius` positions
on each side. Global keys and values are never copied into the blocks: their
scores are combined with the local scores only in the softmax.

`LongQueries` and `GlobalQueries` describe one call of attention. `attend` takes
the whole long sequence at once; `streaming` takes one chunk after another.
"""

from typing import NamedTuple

import tensorflow as tf

from etcmodel.ops import shapes
from etcmodel.ops.attention import masks
from etcmodel.ops.attention import relative_ids as labels_lib
from etcmodel.ops.attention import softmax

# Minimum length of a block of queries. Matrix products of shorter blocks are
# slow.
MIN_BLOCK_LEN = 64


class Chunk(NamedTuple):
    """A part of the long sequence.

    Attributes:
        start: int or `<int32>[]`, its first position.
        length: int or `<int32>[]`; the last chunk may exceed the sequence.
        draw: `<int32>[]`, the index of the chunk's dropout mask.
    """

    start: object
    length: object
    draw: object

    def positions(self, margin: int = 0) -> tf.Tensor:
        """Returns the chunk's positions, and `margin` more on each side."""
        return self.start - margin + tf.range(self.length + 2 * margin)


class Windows:
    """Blocks of `block_len` queries with `window` keys around them."""

    def __init__(self, radius: int):
        self.radius = radius
        self.block_len = max(radius, MIN_BLOCK_LEN)
        self.window = self.block_len + 2 * radius

    def of_rows(self, rows) -> tf.Tensor:
        """Returns the windows of a chunk of whole blocks.

        With a radius of 1 and blocks of 2, `a b c d e f` gives the windows
        `a b c d` and `c d e f`: `<any>[batch, heads, queries + 2*radius, x]`
        becomes `<any>[batch, heads, blocks, window, x]`.
        """
        batch, heads, length, size = shapes.get_shape_list(rows)
        r, b = self.radius, self.block_len
        n = length - 2 * r

        def blocks(start):
            # [batch, heads, blocks, block_len, x]
            return tf.reshape(
                softmax.part(rows, 2, start, n), [batch, heads, n // b, b, size]
            )

        return tf.concat(
            [
                softmax.part(blocks(0), 3, 0, r),
                blocks(r),
                softmax.part(blocks(2 * r), 3, b - r, r),
            ],
            axis=3,
        )

    def of_band(self, band) -> tf.Tensor:
        """Moves each row of a band to its place in the block's window.

        With a radius of 1 and blocks of 2, the rows `a b c`, `d e f` and
        `g h i` become `a b c 0`, `0 d e f` and `g h i 0`:
        `<int>[batch, length, window]`. Call it once, before any loop: a
        larger compiled function would recompute the place of each value.
        """
        batch, length, _ = shapes.get_shape_list(band)
        b, window = self.block_len, self.window
        blocks = ceil_div(length, b)
        # [batch, blocks, block_len * (window + 1)]
        flat = tf.reshape(
            tf.pad(band, [[0, 0], [0, blocks * b - length], [0, b]]),
            [batch, blocks, b * (window + 1)],
        )
        # Each row loses one slot, so the n-th row moves by n.
        # [batch, blocks * block_len, window]
        shifted = tf.reshape(
            flat[:, :, : b * window], [batch, blocks * b, window]
        )
        return shifted[:, :length]

    def in_band(self) -> tf.Tensor:
        """Marks the slots that each query sees, `<bool>[block_len, window]`."""
        distance = tf.range(self.window) - tf.range(self.block_len)[:, None]
        return (distance >= 0) & (distance <= 2 * self.radius)


class LongQueries:
    """Attention from long queries to nearby long keys and to global keys.

    Attributes:
        rows: tensors `<any>[batch, long, ...]` by name, to be cut into chunks.
        margins: number of positions that each of `rows` needs on either side of
            a chunk.
        whole: tensors by name that have gradients but are not cut.
        unit: a chunk's length is a multiple of this number of positions.
        unit_elements: number of scores in one unit of a chunk.
        are_rows: whether the queries are cut into chunks, as the keys are.
    """

    are_rows = True

    def __init__(self, queries, local, others, radius, table, dropout):
        self.windows = Windows(radius)
        self.dropout = dropout
        self.dtype = queries.dtype
        batch, self.length, heads, _ = shapes.get_shape_list(queries)
        self.rows = {
            "queries": queries,
            "keys": local.keys,
            "values": local.values,
        }
        self.margins = {"keys": radius, "values": radius, "segments": radius}
        self.whole = {}
        self.global_len = 0
        self.local_mask = local.mask
        if isinstance(local.mask, masks.SegmentMask):
            self.rows["segments"] = local.mask.segment_ids
        elif local.mask is not None:
            # Computed as int8, since some devices cannot pad booleans.
            allowed = tf.cast(tf.cast(local.mask, tf.bool), tf.int8)
            self.rows["in_band"] = self.windows.of_band(allowed)
        self.local_labels = labels_lib.band_labels(local.labels, table)
        self._add_table("local", self.local_labels, table)
        if self.local_labels is not None:
            rows, self.spreads = self.local_labels.band_tensors(
                self.windows, softmax.score_dtype(self.dtype)
            )
            self.rows |= _by_number("local_labels", rows)
        self.others_mask = self.others_labels = None
        if others is not None:
            self.global_len = shapes.get_shape_list(others.keys)[1]
            self.whole["global_keys"] = softmax.heads_outer(others.keys)
            self.whole["global_values"] = softmax.heads_outer(others.values)
            self.others_mask = masks.pair_mask(others.mask)
            if self.others_mask is not None:
                self.rows |= _by_number(
                    "others_mask", self.others_mask.long_tensors()
                )
            self.others_labels = labels_lib.pair_labels(others.labels, table)
            self._add_table("global", self.others_labels, table)
            if self.others_labels is not None:
                self.rows |= _by_number(
                    "others_labels", self.others_labels.long_tensors()
                )
        self.unit = self.windows.block_len
        self.unit_elements = (
            self.unit * batch * heads * (self.windows.window + self.global_len)
        )

    def _add_table(self, name, labels, table):
        if labels is not None:
            vectors, biases = labels.select(table)
            self.whole |= {f"{name}_vectors": vectors, f"{name}_biases": biases}

    def key_blocks(self, rows, whole, chunk: Chunk) -> list[softmax.KeyBlock]:
        """Returns a chunk's keys; the chunk may reach beyond the sequence."""
        # [batch, heads, queries, size]
        queries = softmax.scaled(softmax.heads_outer(rows["queries"]))
        # [batch, heads, blocks, window, x]
        keys, values = (
            self.windows.of_rows(softmax.heads_outer(rows[name]))
            for name in ("keys", "values")
        )
        key_blocks = [
            softmax.KeyBlock(
                softmax.times(queries, keys, transpose_b=True),
                values,
                self._local_allowed(rows, chunk),
                dropout=self.dropout,
                draw=2 * chunk.draw,
            )
        ]
        if self.local_labels is not None:
            key_blocks[0].label, key_blocks[0].chosen = (
                self.local_labels.to_windows(
                    self.local_labels.products(
                        queries, whole["local_vectors"], whole["local_biases"]
                    ),
                    _numbered(rows, "local_labels"),
                    self.spreads,
                    self.windows,
                )
            )
        if "global_keys" not in whole:
            return key_blocks
        key_block = softmax.KeyBlock(
            tf.matmul(queries, whole["global_keys"], transpose_b=True),
            whole["global_values"],
            dropout=self.dropout,
            draw=2 * chunk.draw + 1,
        )
        if self.others_mask is not None:
            # [batch, queries, global]
            key_block.allowed = self.others_mask.part(
                _numbered(rows, "others_mask")
            )
        if self.others_labels is not None:
            key_block.label, key_block.chosen = self.others_labels.lookup(
                self.others_labels.products(
                    queries, whole["global_vectors"], whole["global_biases"]
                ),
                _numbered(rows, "others_labels"),
                self.global_len,
            )
        return [*key_blocks, key_block]

    def fixed_key_blocks(self, whole) -> list[softmax.KeyBlock]:
        """Returns an empty list: no keys are common to all chunks."""
        del whole
        return []

    def _local_allowed(self, rows, chunk):
        """Returns the local mask, `<bool>[1 or batch, queries, window]`."""
        r, b = self.windows.radius, self.windows.block_len
        window = self.windows.window
        position = chunk.positions(r)
        exists = (position >= 0) & (position < self.length)

        def near(row):
            # [batch or 1, blocks, 1, window]
            windows = self.windows.of_rows(row[:, tf.newaxis, :, tf.newaxis])
            return tf.linalg.matrix_transpose(windows[:, 0])

        # [1, blocks, 1, window]
        allowed = near(exists[tf.newaxis])
        if "in_band" in rows:
            # [batch, blocks, block_len, window]
            allowed &= _in_blocks(rows["in_band"], b) != 0
        else:
            # [1, blocks, block_len, window]
            allowed &= self.windows.in_band()
        if "segments" in rows:
            # [batch, queries, 1]
            own = rows["segments"][:, r:-r, tf.newaxis]
            # [batch, blocks, block_len, window]
            allowed &= near(rows["segments"]) == _in_blocks(own, b)
        batch, blocks, *_ = shapes.get_shape_list(allowed)
        return tf.reshape(allowed, [batch, blocks * b, window])


class GlobalQueries:
    """Attention from global queries to all keys; see `LongQueries`."""

    are_rows = False

    def __init__(self, queries, own, long, table, dropout):
        self.dropout = dropout
        self.dtype = queries.dtype
        self.length = shapes.get_shape_list(long.keys)[1]
        batch, self.global_len, heads, _ = shapes.get_shape_list(queries)
        self.unit = 1
        # If the batch size is unknown, chunks must not depend on it: the last
        # digits of the results would differ between batch sizes.
        known_batch = batch if isinstance(batch, int) else 1
        self.unit_elements = known_batch * heads * self.global_len
        # Cast to the dtype of scores, in which gradients of chunks are summed.
        # [batch, heads, global, size]
        queries = softmax.scaled(
            softmax.to_score_dtype(softmax.heads_outer(queries))
        )
        self.rows = {"keys": long.keys, "values": long.values}
        self.margins = {}
        self.whole = {
            "queries": queries,
            "global_keys": softmax.heads_outer(own.keys),
            "global_values": softmax.heads_outer(own.values),
        }
        self.own_mask = own.mask
        self.own_labels = labels_lib.pair_labels(own.labels, table)
        self.long_mask = masks.pair_mask(long.mask, from_global=True)
        if self.long_mask is not None:
            self.rows |= _by_number("mask", self.long_mask.long_tensors())
        self.long_labels = labels_lib.pair_labels(
            long.labels, table, from_global=True
        )
        if self.long_labels is not None:
            self.rows |= _by_number("labels", self.long_labels.long_tensors())
        for name, labels in (
            ("own", self.own_labels),
            ("long", self.long_labels),
        ):
            if labels is not None:
                # [batch, heads, global, columns]
                vectors, biases = labels.select(table)
                self.whole[f"{name}_products"] = labels.products(
                    queries, softmax.to_score_dtype(vectors), biases
                )

    def key_blocks(self, rows, whole, chunk: Chunk) -> list[softmax.KeyBlock]:
        """Returns the long keys of a chunk; see `LongQueries.key_blocks`."""
        # [batch, heads, chunk, x]
        keys, values = (
            softmax.heads_outer(rows[name]) for name in ("keys", "values")
        )
        # [1, 1, chunk]
        allowed = (chunk.positions() < self.length)[tf.newaxis, tf.newaxis]
        if self.long_mask is not None:
            # [batch, global, chunk]
            allowed &= tf.linalg.matrix_transpose(
                self.long_mask.part(_numbered(rows, "mask"))
            )
        key_block = softmax.KeyBlock(
            self._products(whole, keys),
            values,
            allowed,
            dropout=self.dropout,
            draw=chunk.draw + 1,
        )
        if self.long_labels is not None:
            key_block.label, key_block.chosen = self.long_labels.lookup(
                whole["long_products"],
                _numbered(rows, "labels"),
                self.global_len,
                of_global=True,
            )
        return [key_block]

    def _products(self, whole, keys):
        queries = tf.cast(whole["queries"], self.dtype)
        return tf.matmul(queries, keys, transpose_b=True)

    def fixed_key_blocks(self, whole) -> list[softmax.KeyBlock]:
        """Returns the global keys."""
        key_block = softmax.KeyBlock(
            self._products(whole, whole["global_keys"]),
            whole["global_values"],
            dropout=self.dropout,
        )
        if self.own_mask is not None:
            # [batch, global, global]
            key_block.allowed = tf.cast(self.own_mask, tf.bool)
        if self.own_labels is not None:
            key_block.label, key_block.chosen = self.own_labels.lookup(
                whole["own_products"],
                self.own_labels.long_tensors(),
                self.global_len,
            )
        return [key_block]


def attend(run: LongQueries | GlobalQueries) -> tf.Tensor:
    """Computes attention for the whole sequence at once; keeps the scores."""
    # An empty sequence counts as one position.
    length = run.length + tf.cast(run.length == 0, tf.int32)
    if isinstance(run.length, int):
        length = max(run.length, 1)
    chunk = Chunk(0, ceil_div(length, run.unit) * run.unit, 0)
    rows = {}
    for name, tensor in run.rows.items():
        margin = run.margins.get(name, 0)
        if tensor.dtype.is_floating:
            # The gradient of `tf.pad` is faster than that of `cut`.
            paddings = [[0, 0]] * tensor.shape.rank
            paddings[1] = [margin, chunk.length - run.length + margin]
            rows[name] = tf.pad(tensor, paddings)
        else:
            rows[name] = cut(
                never_empty(tensor, run.length), chunk, margin, run.length
            )
    key_blocks = run.key_blocks(rows, run.whole, chunk)
    output = softmax.attend(
        [*key_blocks, *run.fixed_key_blocks(run.whole)]
    ).output
    output = tf.cast(softmax.heads_outer(output), run.dtype)
    return output[:, : run.length] if run.are_rows else output


def never_empty(tensor, length) -> tf.Tensor:
    """Adds a row to `<any>[batch, long, ...]` if `long` may be 0."""
    if isinstance(length, int) and length > 0:
        return tensor
    # `tf.concat`, because some devices cannot pad booleans.
    batch, _, *rest = shapes.get_shape_list(tensor)
    return tf.concat([tensor, tf.zeros([batch, 1, *rest], tensor.dtype)], 1)


def cut(tensor, chunk: Chunk, margin: int, length) -> tf.Tensor:
    """Cuts a chunk and its margins from `<any>[batch, long, ...]`."""
    position = tf.clip_by_value(chunk.positions(margin), 0, length - 1)
    return tf.gather(tensor, position, axis=1)


def ceil_div(numerator, denominator):
    """Divides ints or tensors, rounding up."""
    return -(-numerator // denominator)


def _by_number(name, tensors):
    """Names the tensors `name_0`, `name_1`, ...; `_numbered` undoes it."""
    return {f"{name}_{i}": x for i, x in enumerate(tensors)}


def _numbered(rows, name):
    names = [f"{name}_{i}" for i in range(len(rows))]
    return [rows[x] for x in names if x in rows]


def _in_blocks(rows, block_len):
    """Splits `[batch, queries, x]` into `[batch, blocks, block_len, x]`."""
    batch, length, size = shapes.get_shape_list(rows)
    return tf.reshape(rows, [batch, length // block_len, block_len, size])
