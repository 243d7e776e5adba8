"""Finds what each token of a record attends to most, layer by layer.

The layers compute the probabilities themselves, a few rows at a time, while the
encoder runs once. Only the largest of each row are kept.
"""

import contextlib
import functools
import threading
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Number of rows whose probabilities are in memory at once.
_LONG_ROWS, _GLOBAL_ROWS = 256, 64
AVERAGE = "average"
_OBSERVING = threading.Lock()


class Limits(NamedTuple):
    """Limits to the probabilities of a row that are kept.

    The largest are kept: at most `number`, all of them at least `least`.
    """

    number: int
    least: float


# Limits for the average over heads, and for each head. They keep a page of
# 4,096 tokens and 12 layers of 12 heads below 20 MB.
OF_AVERAGE = Limits(32, 0.004)
OF_HEADS = Limits(8, 0.01)


class SparseRows(NamedTuple):
    """The largest probabilities of some rows.

    Attributes:
        keys: `<int32>[rows, number]`, -1 where fewer are kept.
        values: `<float32>[rows, number]`, descending, 0 where fewer are kept.
        rest: `<float32>[rows]`, the sum of the probabilities that are not kept.
    """

    keys: np.ndarray
    values: np.ndarray
    rest: np.ndarray


class LayerScores(NamedTuple):
    """Attention probabilities of a layer, or averaged over layers.

    Attributes:
        label: name of the layer.
        heads: name of a head -> its rows; the first is the average.
    """

    label: str
    heads: Mapping[str, SparseRows]


def keep_largest(
    probabilities: Any, keys: np.ndarray, limits: Limits
) -> SparseRows:
    """Keeps the largest probabilities of each row.

    `probabilities` are `<float>[rows, columns]`, `keys` `<int>[columns]` or
    `<int>[rows, columns]`. Example: of `[[0.1, 0.7, 0.2]]` with the keys
    `[4, 5, 6]`, `Limits(2, 0.01)` keeps the keys `[[5, 6]]` with the values
    `[[0.7, 0.2]]` and the rest `[0.1]`.
    """
    probabilities = tf.cast(probabilities, tf.float32)
    number = min(limits.number, probabilities.shape[1])
    values, columns = (x.numpy() for x in tf.math.top_k(probabilities, number))
    if keys.ndim == 1:
        found = keys[columns]
    else:
        found = np.take_along_axis(keys, columns, axis=1)
    is_kept = values >= limits.least
    values = np.where(is_kept, values, 0.0).astype(np.float32)
    total = tf.reduce_sum(probabilities, axis=1).numpy()
    return SparseRows(
        np.where(is_kept, found, -1).astype(np.int32),
        values,
        np.maximum(total - values.sum(axis=1), 0.0),
    )


class _Collector:
    """Collects the attention rows of one layer, part by part."""

    def __init__(self, num_heads: int):
        names = [AVERAGE, *(str(i + 1) for i in range(num_heads))]
        self._parts = {name: [] for name in names}

    def add(self, scores: tf.Tensor, keys: np.ndarray) -> tf.Tensor:
        """Adds rows, `<float>[heads, rows, keys]`; returns their average."""
        average = tf.reduce_mean(scores, axis=0)
        for i, parts in enumerate(self._parts.values()):
            limits = OF_HEADS if i else OF_AVERAGE
            rows = scores[i - 1] if i else average
            parts.append(keep_largest(rows, keys, limits))
        return average

    def scores(self, label: str) -> LayerScores:
        """Returns all rows that were added."""
        return LayerScores(
            label,
            {name: _joined(parts) for name, parts in self._parts.items()},
        )


def _joined(parts: Sequence[SparseRows]) -> SparseRows:
    """Joins parts, whose rows may have different numbers of keys."""
    width = max(x.keys.shape[1] for x in parts)

    def padded(x, fill):
        more = [(0, 0), (0, width - x.shape[1])]
        return np.pad(x, more, constant_values=fill)

    return SparseRows(
        np.concatenate([padded(x.keys, -1) for x in parts]),
        np.concatenate([padded(x.values, 0) for x in parts]),
        np.concatenate([x.rest for x in parts]),
    )


class _Mean:
    """Averages rows over layers, part by part.

    Attributes:
        num_layers: number of layers whose parts were all added.
    """

    def __init__(self, label: str):
        self.label, self._sums, self._keys = label, {}, {}
        self.num_layers = 0

    def add(self, part: Any, rows: tf.Tensor, keys: np.ndarray) -> None:
        """Adds `<float>[rows, keys]` of a layer to the sum of a part."""
        self._sums[part] = self._sums.get(part, 0.0) + rows
        self._keys[part] = keys

    def scores(self) -> LayerScores:
        """Returns the averages."""
        parts = [
            keep_largest(rows / self.num_layers, self._keys[part], OF_AVERAGE)
            for part, rows in self._sums.items()
        ]
        return LayerScores(self.label, {AVERAGE: _joined(parts)})


@contextlib.contextmanager
def observing(
    observers: Sequence[tuple[tf.keras.layers.Layer, Callable]],
) -> Iterator[None]:
    """Sets `score_observer` of attention layers in a with block.

    Only calls in this thread are observed. Other threads may call the layers.
    A second thread that enters `observing` waits until the first has left it.
    """
    with _OBSERVING:
        try:
            for layer, observer in observers:
                layer.score_observer = _of_this_thread(observer)
            yield
        finally:
            for layer, _ in observers:
                layer.score_observer = None


def _of_this_thread(observer: Callable) -> Callable:
    """Returns an observer that ignores calls in other threads."""
    thread = threading.get_ident()

    def observe(*values):
        if threading.get_ident() == thread:
            observer(*values)

    return observe


def read_etc(
    encoder: tf.keras.layers.Layer,
    features: Mapping[str, Any],
    rows: Sequence[int] | None = None,
) -> list[LayerScores]:
    """Computes which tokens the tokens of one record attend to, in ETC.

    Tokens are numbered: the global ones first, then the long ones.

    Args:
        encoder: a `StructuredEtcModel`.
        features: its inputs, a batch of one, without padding at the end.
        rows: ascending numbers of the tokens that attend; None for all.

    Returns:
        The average over all layers, if there are several, followed by each
        layer. The kept probabilities of a row and its `rest` sum to 1.
    """
    stack = encoder.global_local_transformer_layers
    num_global = np.shape(features["global_token_ids"])[1]
    num_long = np.shape(features["long_token_ids"])[1]
    if rows is None:
        rows = range(num_global + num_long)
    rows = np.asarray(rows, np.int32)
    global_rows = rows[rows < num_global]
    long_rows = rows[rows >= num_global] - num_global
    mean, found = _Mean("All layers"), []
    radius = stack.local_radius

    def observe(label, long_scores, global_scores):
        collector = _Collector(stack.num_attention_heads)

        def add(part, pair, keys):
            # [heads, rows, keys]
            scores = tf.concat([x[0] for x in pair], axis=-1)
            mean.add(part, collector.add(scores, keys), keys)

        for chosen in _chunks(global_rows, _GLOBAL_ROWS):
            keys = np.arange(num_global + num_long)
            add(("global", chosen[0]), global_scores(chosen), keys)
        for chosen in _chunks(long_rows, _LONG_ROWS):
            near, side = long_scores(chosen)
            window = np.arange(-radius, radius + 1)
            keys = num_global + chosen[:, np.newaxis] + window
            of_global = np.tile(np.arange(num_global), [len(chosen), 1])
            keys = np.concatenate([of_global, keys], axis=1)
            add(("long", chosen[0]), (side, near), keys)
        mean.num_layers += 1
        found.append(collector.scores(label))

    observers = [
        (block.inner_layer, functools.partial(observe, f"Layer {i + 1}"))
        for i, block in enumerate(stack.fused_att_layers)
    ]
    with observing(observers):
        encoder(
            {name: tf.constant(x) for name, x in features.items()},
            training=False,
        )
    return [mean.scores(), *found] if len(found) > 1 else found


def _chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


class SegmentScores(NamedTuple):
    """Attention of a document's segments; see `read_segments`.

    Attributes:
        layers: the average over each read's layers, then each layer.
        memory_positions: `<int>[memories]`, number of the segment that each
            memory is from, starting at 1.
        memory_labels: `<int>[memories]`; see `memory_extraction.Summary`.
    """

    layers: list[LayerScores]
    memory_positions: np.ndarray
    memory_labels: np.ndarray


def read_segments(
    encoder: tf.keras.layers.Layer,
    inputs: Mapping[str, Any],
    lengths: Sequence[int],
    rows: Sequence[int] | None = None,
    **options: Any,
) -> SegmentScores:
    """Computes what the tokens of one document attend to, in ReadTwice.

    The tokens of all segments are numbered first, then the segments, then the
    memories. Layers that attend to memories have a row for each segment, after
    the rows of tokens: the mean of its tokens' attention to each memory.

    Args:
        encoder: a `ReadTwiceModel`.
        inputs: its inputs; the batch has the segments of one document.
        lengths: number of tokens of each segment, without padding. The encoder
            also reads segments without a length here, but they get no rows.
        rows: ascending numbers of the tokens that attend; None for all.
        **options: further arguments of the encoder.
    """
    reader = _SegmentReader(lengths, rows)
    first, second = (
        encoder.transformer_with_side_inputs,
        encoder.second_transformer,
    )
    reader.watch_stack(first, "First read", "Second read")
    if encoder.cross_attention_layer is not None:
        reader.watch(
            encoder.cross_attention_layer, ["Second read"], _OF_MEMORIES
        )
    if second is not None:
        reader.watch_stack(second, "Second read")
    with observing(reader.observers):
        output = encoder(
            {name: tf.constant(x) for name, x in inputs.items()},
            training=False,
            **options,
        )
    memory = output.global_summary
    return SegmentScores(
        reader.layers(), memory.block_pos.numpy(), memory.labels.numpy()
    )


# Suffix of the names of layers that attend only to memories.
_OF_MEMORIES = ", memories"


class _SegmentReader:
    """Reads the scores of ReadTwice's layers; see `read_segments`."""

    def __init__(self, lengths, rows):
        self._lengths = lengths
        self._offsets = np.cumsum([0, *lengths])
        # Number of the first memory.
        self._first_memory = int(self._offsets[-1]) + len(lengths)
        # For each segment, the positions of the tokens that have rows.
        self._chosen = [
            np.arange(number)
            if rows is None
            else np.intersect1d(rows, start + np.arange(number)) - start
            for start, number in zip(self._offsets, lengths, strict=False)
        ]
        self.observers = []
        self._means: dict[str, _Mean] = {}
        self._found: list[LayerScores] = []

    def watch_stack(self, stack, *reads: str) -> None:
        """Records the attention of a stack's layers, called once per read."""
        for i, block in enumerate(stack.attention_layers):
            self.watch(block, reads, f", layer {i + 1}")
        for i, block in enumerate(stack.cross_attention_layers):
            self.watch(block, reads, f", layer {i + 1}{_OF_MEMORIES}")

    def watch(self, block, reads, ending: str) -> None:
        """Records the attention of a layer, called once for each of `reads`."""
        reads = iter(reads)
        self.observers.append(
            (
                block.inner_layer,
                lambda scores_of: self._observe(next(reads), ending, scores_of),
            )
        )

    def layers(self) -> list[LayerScores]:
        """Returns averages over several layers, followed by each layer."""
        means = [x.scores() for x in self._means.values() if x.num_layers > 1]
        return [*means, *self._found]

    def _observe(self, read, ending, scores_of):
        has_only_memories = ending.endswith(_OF_MEMORIES)
        kind = _OF_MEMORIES if has_only_memories else ""
        mean = self._means.setdefault(
            f"{read}{kind}", _Mean(f"{read}, all layers{kind}")
        )
        collector, of_segments, keys = None, [], []
        for i, tokens in enumerate(self._chosen):
            # [heads, length, tokens or memories] each
            pieces = [x[:, 0] for x in scores_of(i)]
            if collector is None:
                collector = _Collector(pieces[0].shape[0])
            keys = [
                self._offsets[i] + np.arange(x.shape[2]) for x in pieces[:1]
            ]
            if has_only_memories:
                keys = []
            if len(pieces) > len(keys):
                memories = pieces[-1]
                keys.append(self._first_memory + np.arange(memories.shape[2]))
                of_segments.append(
                    tf.reduce_mean(memories[:, : self._lengths[i]], axis=1)
                )
            if len(tokens):
                scores = tf.gather(tf.concat(pieces, axis=-1), tokens, axis=1)
                all_keys = np.concatenate(keys)
                mean.add(i, collector.add(scores, all_keys), all_keys)
        if of_segments:
            # [heads, segments, memories]
            scores = tf.stack(of_segments, axis=1)
            mean.add("segments", collector.add(scores, keys[-1]), keys[-1])
        mean.num_layers += 1
        self._found.append(collector.scores(f"{read}{ending}"))
