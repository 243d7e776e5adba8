"""What the two streaming attentions share: chunks, and scores of a piece.

A *piece* is some keys that some queries attend to (the local window, the side
keys). The scores of a piece, `<float>[batch, heads, queries, keys]`, are

    raw (the products) + what the labels add + bias (0 or `MASKED`).
"""

import dataclasses

import tensorflow as tf

from etcmodel import inner_jit
from etcmodel import own_gradients
from etcmodel import tensor_utils

# About as many scores exist at a time: 16 MB of them stay in a CPU's cache.
CHUNK_ELEMENTS = 2**22
# The side length taken for the size of chunks where it is not known.
TYPICAL_SIDE_LEN = 512
MASKED = -1e30
# No score that takes part in a softmax is as low.
LOWEST = -5e29
# Up to as many columns are chosen from by selection where it is compiled, and
# an eighth of them anywhere.
MOST_SELECTED = 64


class Dropout:
    """Dropout of probabilities that can be drawn again.

    Args:
        rate: probability of dropping, a number or `<float>[]`.
        seed: `<int32>[2]`.
    """

    def __init__(self, rate, seed: tf.Tensor):
        self.rate = rate
        self.seed = seed

    def factors(self, shape, index, dtype) -> tf.Tensor:
        """What to multiply probabilities with: 0 or `1 / (1 - rate)`.

        Args:
            shape: `<int32>[rank]`.
            index: `<int32>[]`; equal ones give equal factors.
            dtype: of the factors.

        Returns:
            `<dtype>[shape]`.
        """
        seed = tf.random.experimental.stateless_fold_in(self.seed, index)
        draws = tf.random.stateless_uniform(shape, seed)
        rate = tf.cast(self.rate, tf.float32)
        return tf.cast(tf.where(draws >= rate, 1.0 / (1.0 - rate), 0.0), dtype)


@dataclasses.dataclass
class Piece:
    """The ingredients of a piece's scores.

    Attributes:
        raw: `<float>[batch, heads, queries, keys]`, products of scaled
            queries and keys.
        bias: `<float>[batch or 1, 1, queries, keys]`, 0 or `MASKED`; or None.
        label: `<float>[batch, heads, queries, keys]`, what the labels add; or
            `<float>[batch, heads, queries, columns]` to choose it from; or
            None.
        chosen: the column of each pair, `<int32>[batch, 1, queries, keys]`; of
            two columns the second one, `<bool>[batch, 1, queries, keys]`; or
            None.
        label_ids: what the labels were looked up with.
    """

    raw: tf.Tensor
    bias: tf.Tensor | None = None
    label: tf.Tensor | None = None
    chosen: tf.Tensor | None = None
    label_ids: list | None = None

    def tensors(self):
        """The tensors, as the functions below take them."""
        return self.raw, self.bias, self.label, self.chosen


def scores(piece: Piece) -> tf.Tensor:
    """The scores, `<float32 or float64>[batch, heads, queries, keys]`."""
    return _scores(*piece.tensors())


def weights(piece_scores, maximum, dtype) -> tuple[tf.Tensor, tf.Tensor]:
    """Exponentials of the scores less the maximum, and their sums.

    Args:
        piece_scores: `<float>[batch, heads, queries, keys]`.
        maximum: `<float>[batch, heads, queries, 1]`.
        dtype: of the exponentials.

    Returns:
        `<dtype>[batch, heads, queries, keys]` and
        `<float>[batch, heads, queries, 1]`.
    """
    return _weights(piece_scores, maximum, dtype=tf.as_dtype(dtype).name)


def softmax_weights(pieces, dtype):
    """One softmax over several pieces, not yet divided by its denominator.

    Args:
        pieces: list of `Piece`.
        dtype: of the weights.

    Returns:
        A list of weights, `<dtype>[batch, heads, queries, keys]` each, the
        denominator, `<float>[batch, heads, queries, 1]`, and what the
        backward pass needs, see `close_softmax`.
    """
    all_scores = [scores(piece) for piece in pieces]
    maximum = tf.constant(LOWEST, score_dtype(dtype))
    for piece_scores in all_scores:
        maximum = tf.maximum(
            maximum, tf.reduce_max(piece_scores, axis=-1, keepdims=True)
        )
    all_weights, totals = zip(
        *[weights(x, maximum, dtype) for x in all_scores], strict=True
    )
    total = tf.add_n(totals)
    return list(all_weights), *close_softmax(total, maximum)


def close_softmax(total, maximum):
    """The denominator, and all that the probabilities follow from.

    Args:
        total: `<float>[batch, heads, queries, 1]`, sums of the weights.
        maximum: `<float>[batch, heads, queries, 1]`, of the scores.

    Returns:
        The denominator, `<float>[batch, heads, queries, 1]`, which is 1 for a
        query without any key; and the maximum and the denominator's log side
        by side, `<float>[batch, heads, queries, 2]`. They are not added up:
        to round their sum would cost as much accuracy as all else does.
    """
    total = tf.where(total <= 0, tf.ones_like(total), total)
    return total, tf.concat([maximum, tf.math.log(total)], axis=-1)


def row_products(a, b):
    """Products of rows, `<float>[..., 1]` in the scores' dtype."""
    return tf.reduce_sum(
        to_score_dtype(a) * to_score_dtype(b), axis=-1, keepdims=True
    )


def gradients(
    piece: Piece, normalizer, delta, d_probs, keep, dtype
) -> tuple[tf.Tensor, tf.Tensor]:
    """Probabilities and the scores' gradients, from the ingredients.

    Args:
        piece: the ingredients.
        normalizer: `<float>[batch, heads, queries, 2]`, see `close_softmax`.
        delta: `<float>[batch, heads, queries, 1]`, product of each output with
            its gradient.
        d_probs: `<float>[batch, heads, queries, keys]`, products of the
            output's gradient and the values.
        keep: dropout's factors, shaped likewise, or None.
        dtype: of what is returned.

    Returns:
        Probabilities after dropout and gradients of the scores,
        `<dtype>[batch, heads, queries, keys]` each.
    """
    return _gradients(
        *piece.tensors(),
        normalizer,
        delta,
        d_probs,
        keep,
        dtype=tf.as_dtype(dtype).name,
    )


def choose(columns, chosen) -> tf.Tensor:
    """What each pair gets of its query's columns.

    Args:
        columns: `<float>[batch, heads, queries, columns]`.
        chosen: see `Piece`.

    Returns:
        `<float>[batch, heads, queries, keys]`.
    """
    num_columns = columns.shape[-1]
    if chosen.dtype == tf.bool:
        first, second = columns[..., :1], columns[..., 1:]
        return first + (second - first) * tf.cast(chosen, columns.dtype)
    most = MOST_SELECTED
    if not inner_jit.is_tracing_piece():
        most //= 8
    if num_columns > most:
        # [batch, queries, keys, heads]
        found = tf.gather(
            tf.transpose(columns, [0, 2, 3, 1]),
            chosen[:, 0],
            axis=2,
            batch_dims=2,
        )
        return tf.transpose(found, [0, 3, 1, 2])
    # Compiled, this takes half of the time of a gather: each bit of the index
    # halves what is left.
    left = [columns[..., i : i + 1] for i in range(num_columns)]
    bit = 1
    while len(left) > 1:
        is_set = tf.bitwise.bitwise_and(chosen, bit) != 0
        left = [
            tf.where(is_set, pair[1], pair[0]) if len(pair) == 2 else pair[0]
            for pair in (left[i : i + 2] for i in range(0, len(left), 2))
        ]
        bit *= 2
    return left[0]


@inner_jit.jit_if_large
def choose_gradient(d_scores, chosen, *, num_columns):
    """Gradients of the columns of `choose`, for int32 indices.

    Args:
        d_scores: `<float>[batch, heads, queries, keys]`.
        chosen: `<int32>[batch, 1, queries, keys]`.
        num_columns: number of columns.

    Returns:
        `<float32 or float64>[batch, heads, queries, columns]`.
    """
    batch, heads, queries, keys = tensor_utils.get_shape_list(d_scores)
    # [batch, queries, keys, heads]
    rows = to_score_dtype(tf.transpose(d_scores, [0, 2, 3, 1]))
    # [batch * queries, 1]
    first = num_columns * tf.range(batch * queries)[:, tf.newaxis]
    # [batch * queries * columns, heads]
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(rows, [-1, heads]),
        tf.reshape(first + tf.reshape(chosen, [batch * queries, keys]), [-1]),
        batch * queries * num_columns,
    )
    return tf.transpose(
        tf.reshape(sums, [batch, queries, num_columns, heads]), [0, 3, 1, 2]
    )


# Three chains of elementwise operations, each compiled as a whole. Maxima and
# the spreading of labels over windows are not among them: compiled, they take
# longer.


def _plain_scores(raw, bias, label, chosen):
    result = to_score_dtype(raw)
    if chosen is not None:
        label = choose(label, chosen)
    if label is not None:
        result += label
    if bias is not None:
        if raw.dtype == tf.float16:
            # Its products may be infinite, and stay so whatever is added.
            result = tf.minimum(result, -LOWEST / 2)
        result += bias
    return result


@inner_jit.jit_if_large
def _scores(raw, bias, label, chosen):
    return _plain_scores(raw, bias, label, chosen)


@inner_jit.jit_if_large
def _weights(piece_scores, maximum, *, dtype):
    result = tf.exp(piece_scores - maximum)
    total = tf.reduce_sum(result, axis=-1, keepdims=True)
    return tf.cast(result, dtype), total


@inner_jit.jit_if_large
def _gradients(
    raw, bias, label, chosen, normalizer, delta, d_probs, keep, *, dtype
):
    maximum, log_total = normalizer[..., :1], normalizer[..., 1:]
    probs = tf.exp(
        _plain_scores(raw, bias, label, chosen) - maximum - log_total
    )
    d_probs = to_score_dtype(d_probs)
    dropped = probs
    if keep is not None:
        keep = to_score_dtype(keep)
        dropped = probs * keep
        d_probs *= keep
    d_scores = probs * (d_probs - delta)
    return tf.cast(dropped, dtype), tf.cast(d_scores, dtype)


def skew(row, block_len: int, window: int) -> tf.Tensor:
    """Shifts the n-th row of each block to the right by n; cuts the rest off.

    With blocks of 2 and windows of 4, the rows `a b c x x` and `d e f x x`
    become `a b c x` and `x d e f`.

    Args:
        row: `<any>[batch, heads, queries, window + 1]`, of which at least the
            last `block_len` columns are padding.
        block_len: queries of a block; there are whole blocks only.
        window: `block_len` plus twice the radius.

    Returns:
        `<any>[batch, heads, queries, window]`.
    """
    batch, heads, queries, _ = tensor_utils.get_shape_list(row)
    flat = tf.reshape(
        row, [batch, heads, queries // block_len, block_len * (window + 1)]
    )
    return tf.reshape(
        flat[..., : block_len * window], [batch, heads, queries, window]
    )


def band_to_windows(band, block_len: int) -> tf.Tensor:
    """Puts each row of a band where its block's window has it.

    With blocks of 2, the rows `a b c`, `d e f` and `g h i` become `a b c 0`,
    `0 d e f` and `g h i 0`. To be done once, before the loop: compiled as part
    of something else, it computes the place of each number anew.

    Args:
        band: `<float or int>[batch, length, width]`.
        block_len: queries of a block.

    Returns:
        `<float or int>[batch, length, width + block_len - 1]`.
    """
    _, length, width = tensor_utils.get_shape_list(band)
    missing = ceil_div(length, block_len) * block_len - length
    # [batch, whole blocks, width + block_len]
    rows = tf.pad(band, [[0, 0], [0, missing], [0, block_len]])
    windows = skew(rows[:, tf.newaxis], block_len, width + block_len - 1)
    return windows[:, 0, :length]


def unskew(windows, block_len: int, width: int) -> tf.Tensor:
    """Takes a band out of windows; undoes `skew`.

    With blocks of 2, windows of 4 and a width of 3, the rows `a b c x` and
    `x d e f` become `a b c` and `d e f`.

    Args:
        windows: `<any>[batch, heads, queries, window]`.
        block_len: queries of a block; there are whole blocks only.
        width: twice the radius plus 1.

    Returns:
        `<any>[batch, heads, queries, width]`.
    """
    batch, heads, queries, window = tensor_utils.get_shape_list(windows)
    flat = tf.reshape(
        windows, [batch, heads, queries // block_len, block_len * window]
    )
    flat = tf.pad(flat, [[0, 0]] * 3 + [[0, block_len]])
    return tf.reshape(flat, [batch, heads, queries, window + 1])[..., :width]


def bias_of_mask(allowed, dtype) -> tf.Tensor:
    """0 where allowed, `MASKED` elsewhere, in the scores' dtype."""
    dtype = score_dtype(dtype)
    return tf.where(allowed, tf.zeros([], dtype), tf.constant(MASKED, dtype))


def score_dtype(dtype) -> tf.DType:
    """The dtype of scores and sums: float64 for float64, else float32."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def to_score_dtype(tensor) -> tf.Tensor:
    """Casts to the dtype of scores."""
    return tf.cast(tensor, score_dtype(tensor.dtype))


def heads_outer(tensor) -> tf.Tensor:
    """Swaps axes 1 and 2: `[batch, x, heads, y]`, `[batch, heads, x, y]`."""
    return tf.transpose(tensor, [0, 2, 1, 3])


def ceil_div(numerator, denominator):
    """Division that rounds up, of ints or of tensors."""
    return -(-numerator // denominator)


def known(size, default: int) -> int:
    """A size where it is known, or else the default."""
    return size if isinstance(size, int) else default


def plan_chunks(num_units, elements_per_unit: int):
    """Cuts units into chunks of about equal size.

    7 units of which a chunk may hold 3 make 3 chunks of 3. What would be two
    chunks is one: without a loop, it takes less time, if more memory.

    Args:
        num_units: int or `<int32>[]`; none count as one.
        elements_per_unit: scores of a unit.

    Returns:
        `(units of a chunk, number of chunks)`, ints if `num_units` is one.
    """
    if isinstance(num_units, int):
        num_units = max(num_units, 1)
    else:
        num_units = tf.maximum(num_units, 1)
    most = max(1, CHUNK_ELEMENTS // max(1, elements_per_unit))
    num_chunks = ceil_div(num_units, most)
    if isinstance(num_chunks, int):
        num_chunks -= int(num_chunks == 2)
    else:
        num_chunks -= tf.cast(num_chunks == 2, num_chunks.dtype)
    return ceil_div(num_units, num_chunks), num_chunks


class Cutter:
    """Cuts chunks out of tensors.

    Chunk `i` has `chunk_len` positions from `i * chunk_len` on, and `margin`
    more to each side. Where it reaches beyond the ends of the tensor, what it
    has there does not matter: a mask or a factor of 0 must see to that.

    Where all lengths are known and the tensor is long enough, chunks are cut
    out of it as it is: one that reaches beyond an end is cut where it fits,
    and rolled. Else a padded copy is needed.

    Args:
        length: int or `<int32>[]`, positions of the tensors.
        chunk_len: int or `<int32>[]`.
        num_chunks: int or `<int32>[]`.
    """

    def __init__(self, length, chunk_len, num_chunks):
        self.length = length
        self.chunk_len = chunk_len
        self.padded_len = num_chunks * chunk_len

    def _rolls(self, margin):
        return (
            isinstance(self.length, int)
            and isinstance(self.chunk_len, int)
            and self.length >= self.chunk_len + 2 * margin
        )

    def prepare(self, tensor, margin=0, axis=1) -> tf.Tensor:
        """What `cut` takes, made outside of the loop.

        Args:
            tensor: `<any>[...]` with `length` positions along the axis.
            margin: of the chunks.
            axis: where to cut.

        Returns:
            The tensor, padded where necessary.
        """
        if self._rolls(margin):
            return tensor
        is_bool = tensor.dtype == tf.bool
        if is_bool:
            tensor = tf.cast(tensor, tf.int8)
        paddings = [[0, 0]] * tensor.shape.rank
        paddings[axis] = [margin, self.padded_len - self.length + margin]
        tensor = tf.pad(tensor, paddings)
        return tf.cast(tensor, tf.bool) if is_bool else tensor

    def cut(self, tensor, index, margin=0, axis=1) -> tf.Tensor:
        """A chunk of what `prepare` returned with the same margin.

        Args:
            tensor: `<any>[...]`.
            index: `<int32>[]`.
            margin: of the chunks.
            axis: where to cut.

        Returns:
            `<any>[...]` with `chunk_len + 2 * margin` positions.
        """
        sizes = tensor_utils.get_shape_list(tensor)
        sizes[axis] = self.chunk_len + 2 * margin
        start = index * self.chunk_len
        begin = [0] * tensor.shape.rank
        if not self._rolls(margin):
            begin[axis] = start
            return tf.slice(tensor, begin, sizes)
        wanted = start - margin
        begin[axis] = tf.clip_by_value(wanted, 0, self.length - sizes[axis])
        chunk = tf.slice(tensor, begin, sizes)
        return tf.roll(chunk, begin[axis] - wanted, axis)

    def positions(self, index, margin=0) -> tf.Tensor:
        """The positions of a chunk, `<int32>[chunk_len + 2 * margin]`."""
        return (
            index * self.chunk_len
            - margin
            + tf.range(self.chunk_len + 2 * margin)
        )

    def exists(self, index, margin=0) -> tf.Tensor:
        """Which of them are within the tensor, `<bool>`, shaped likewise."""
        position = self.positions(index, margin)
        return (position >= 0) & (position < self.length)


def attend_with_gradients(inputs, make_run) -> tf.Tensor:
    """Runs an attention whose backward pass is its own.

    Args:
        inputs: dict of the tensors that have gradients, by name.
        make_run: takes the dict; what it returns has `forward`, which returns
            the output and what normalizes it, and `backward`, which takes
            both and the output's gradient and returns the inputs' by name.

    Returns:
        The output. It can be differentiated once.
    """

    @own_gradients.custom_gradient
    def attend(*tensors):
        run = make_run(dict(zip(inputs, tensors, strict=True)))
        output, normalizer = run.forward()

        def grad(upstream):
            gradients = run.backward(output, normalizer, upstream)
            return [gradients[name] for name in inputs]

        return output, grad

    return attend(*inputs.values())


def concat_chunks(array: tf.TensorArray) -> tf.Tensor:
    """`<any>[batch, chunk, ...]` of each chunk, joined along axis 1."""
    # [chunks, batch, chunk, ...]
    stacked = array.stack()
    chunks, batch, length, *rest = tensor_utils.get_shape_list(stacked)
    if not (isinstance(batch, int) and batch == 1):
        stacked = tf.transpose(stacked, [1, 0, *range(2, stacked.shape.rank)])
    return tf.reshape(stacked, [batch, chunks * length, *rest])


def loop(num_chunks, body, state) -> list:
    """Runs `body` for each chunk in turn.

    Args:
        num_chunks: int or `<int32>[]`.
        body: takes the chunk's index and the state, returns the new state.
        state: list of tensors and `TensorArray`s.

    Returns:
        The last state.
    """
    if isinstance(num_chunks, int) and num_chunks == 1:
        return list(body(tf.constant(0), *state))

    def step(index, *state):
        new_state = body(index, *state)
        for new, old in zip(new_state, state, strict=True):
            if tf.is_tensor(new):
                new.set_shape(old.shape)
        return [index + 1, *new_state]

    _, *state = tf.while_loop(
        lambda index, *_: index < num_chunks,
        step,
        [tf.constant(0), *state],
        parallel_iterations=1,
        maximum_iterations=num_chunks,
    )
    return state
