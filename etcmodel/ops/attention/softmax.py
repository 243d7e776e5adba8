"""The formula of attention: scores, and one softmax over several key blocks.

Queries attend to one or more *key blocks* (the keys nearby, the global keys)
under **one joint softmax**, in which the pair of query `i` and
key `j` has the score (paper section 3.2, with the bias of the original code)

    score[i, j] = (q_i . k_j + q_i . E[id_ij] + b[id_ij]) / sqrt(size_per_head)

Scores and the softmax are computed in float32, or in float64 for float64
inputs. A masked pair has a probability of exactly 0, and a
query without any unmasked key gets an output of zeros. A label beyond the
table adds nothing to a score.

`joint_softmax` is the formula itself. `attend` gives the same results, and
computes the probabilities again in the backward pass.
"""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from etcmodel.ops import compilation
from etcmodel.ops import custom_gradients
from etcmodel.ops import dropout
from etcmodel.ops import shapes

MASKED = -1e30
# Lower than every score that is not masked.
LOWEST = -5e29
# With up to this many columns, compiled code selects with `tf.where`; with
# more, it uses `tf.gather`. Other code has an eighth of this limit.
MAX_SELECTED_COLUMNS = 64


class LabelTable(NamedTuple):
    """Weights of relative attention: a vector and a bias per label.

    Attributes:
        vectors: `<float>[relative_vocab_size, heads, size_per_head]`.
        biases: `<float>[relative_vocab_size, heads]`.
        use_one_hot_lookup: look labels up by a product instead of a gather.
    """

    vectors: tf.Tensor
    biases: tf.Tensor
    use_one_hot_lookup: bool = False


class Keys(NamedTuple):
    """Keys, values, mask and labels that queries attend to.

    Attributes:
        keys: `<float>[batch, to, heads, size_per_head]`.
        values: `<float>[batch, to, heads, value_size]`.
        mask: a tensor or a description (`masks.py`); None for all pairs.
        labels: a tensor or a description (`relative_ids.py`), or None.
        name: prefix of `att_mask` and `relative_att_ids` in error messages,
            such as `"l2g_"`.
    """

    keys: tf.Tensor
    values: tf.Tensor
    mask: object = None
    labels: object = None
    name: str = ""


class Dropout:
    """Dropout of probabilities, with masks that can be drawn again.

    The rate is a number or `<float>[]`; the seed is `<int32>[2]`.
    """

    def __init__(self, rate, seed: tf.Tensor):
        self.rate = rate
        self.seed = seed

    def factors(self, shape, index, dtype) -> tf.Tensor:
        """Draws factors: 0 or `1 / (1 - rate)`; an equal index repeats them."""
        is_kept, scale = self._draw(shape, index)
        return tf.cast(tf.where(is_kept, scale, 0.0), dtype)

    def drop(self, probs, index) -> tf.Tensor:
        """Multiplies probabilities by their `factors`."""
        return dropout.drop(probs, *self._draw(tf.shape(probs), index))

    def _draw(self, shape, index):
        seed = tf.random.experimental.stateless_fold_in(self.seed, index)
        return dropout.draw(shape, seed, self.rate)


@dataclasses.dataclass
class KeyBlock:
    """Keys that queries attend to: their values and parts of the scores.

    Attributes:
        products: `<float>[batch, heads, queries, keys]`, products of scaled
            queries and keys.
        values: `<float>[batch, heads, keys, value_size]`; with separate values
            for each block of queries,
            `<float>[batch, heads, blocks, keys, value_size]`.
        allowed: `<bool>[batch or 1, queries or 1, keys]`; None for all pairs.
        label: `<float>[batch, heads, queries, keys]`, scores of the labels; or
            `<float>[batch, heads, queries, columns]` to select them from.
        chosen: the column of each pair, `<int32>[batch, 1, queries, keys]`; or,
            with two columns, `<bool>[batch, 1, queries, keys]`, true for the
            second.
        dropout: dropout of the probabilities, or None.
        draw: `<int32>[]`, the index of this block's dropout mask.
    """

    products: tf.Tensor
    values: tf.Tensor
    allowed: tf.Tensor | None = None
    label: tf.Tensor | None = None
    chosen: tf.Tensor | None = None
    dropout: Dropout | None = None
    draw: object = 0

    def ingredients(self):
        """Returns the arguments of the compiled functions below."""
        bias = None
        if self.allowed is not None:
            dtype = score_dtype(self.products.dtype)
            # [batch or 1, 1, queries or 1, keys]
            bias = tf.where(
                self.allowed[:, tf.newaxis],
                tf.zeros([], dtype),
                tf.constant(MASKED, dtype),
            )
        return self.products, bias, self.label, self.chosen

    def kept(self, dtype):
        """Returns dropout's factors, shaped as the products, or None."""
        if self.dropout is None:
            return None
        shape = tf.shape(self.products)
        return self.dropout.factors(shape, self.draw, dtype)


class Attended(NamedTuple):
    """Output of attention, and statistics to recompute its probabilities.

    Attributes:
        output: `<float32 or float64>[batch, heads, queries, value_size]`.
        softmax_stats: `<float32 or float64>[batch, heads, queries, 2]`, the
            maximum of each query's scores, and the denominator: the sum of the
            exponentials of the scores minus the maximum.
    """

    output: tf.Tensor
    softmax_stats: tf.Tensor


def attend(key_blocks: Sequence[KeyBlock]) -> Attended:
    """Computes attention with one softmax over several key blocks.

    Gradients flow to `products`, `values` and `label` from the output alone:
    `softmax_stats` are treated as constants.
    """
    differentiable = [
        name
        for i, block in enumerate(key_blocks)
        for name in ((i, "products"), (i, "values"), (i, "label"))
        if getattr(block, name[1]) is not None
    ]

    @custom_gradients.custom_gradient
    def run(*tensors, captured):
        inside = list(captured)
        for (i, name), tensor in zip(differentiable, tensors, strict=True):
            inside[i] = dataclasses.replace(inside[i], **{name: tensor})
        attended = forward(inside)

        def grad(d_output, d_stats):
            del d_stats
            found = gradients(inside, attended, d_output)
            return [found[name] for name in differentiable]

        return tuple(attended), grad

    tensors = [getattr(key_blocks[i], x) for i, x in differentiable]
    return Attended(*run(*tensors, captured=list(key_blocks)))


def forward(key_blocks: Sequence[KeyBlock]) -> Attended:
    """Computes `attend` without a backward pass; not differentiable."""
    dtype = key_blocks[0].values.dtype
    scores = [_scores(*block.ingredients()) for block in key_blocks]
    # [batch, heads, queries, 1]
    maximum = functools.reduce(
        tf.maximum,
        [tf.reduce_max(x, axis=-1, keepdims=True) for x in scores],
        tf.constant(LOWEST, score_dtype(dtype)),
    )
    output, total = 0, 0
    for block, x in zip(key_blocks, scores, strict=True):
        weights, sums = _weights(x, maximum, dtype=dtype.name)
        keep = block.kept(dtype)
        if keep is not None:
            weights *= keep
        # [batch, heads, queries, value_size]
        output += to_score_dtype(times(weights, block.values))
        # [batch, heads, queries, 1]
        total += sums
    # The total is 0 for a query without keys.
    total = tf.where(total <= 0, tf.ones_like(total), total)
    return Attended(
        output / total,
        # [batch, heads, queries, 2]
        tf.concat([maximum, total], axis=-1),
    )


def gradients(
    key_blocks: Sequence[KeyBlock], attended: Attended, d_output
) -> dict:
    """Computes the gradients of key blocks; recomputes the probabilities.

    `attended` is the result of `forward` for all key blocks of the softmax;
    `key_blocks` may be only some of them.

    Returns:
        `(block number, attribute name)` -> gradient. The attributes are
        `"products"`, `"values"` and, for a block with labels, `"label"`.
    """
    output, softmax_stats = attended
    # [batch, heads, queries, 1]
    delta = tf.reduce_sum(output * d_output, axis=-1, keepdims=True)
    d_output = tf.cast(d_output, key_blocks[0].values.dtype)
    found = {}
    for i, block in enumerate(key_blocks):
        # [batch, heads, queries, keys]
        d_probs = times(d_output, block.values, transpose_b=True)
        probs, d_scores = _gradients(
            *block.ingredients(),
            softmax_stats,
            delta,
            d_probs,
            block.kept(block.products.dtype),
            dtype=block.products.dtype.name,
        )
        found[i, "products"] = d_scores
        found[i, "values"] = _transposed_times(probs, d_output, block.values)
        if block.label is not None:
            found[i, "label"] = tf.cast(
                d_scores
                if block.chosen is None
                else choose_gradient(
                    d_scores,
                    block.chosen,
                    num_columns=shapes.get_shape_list(block.label)[-1],
                ),
                block.label.dtype,
            )
    return found


def merge(parts: Sequence[Attended]) -> Attended:
    """Combines results of `forward` into one softmax; not differentiable."""
    maximum = functools.reduce(
        tf.maximum, [part.softmax_stats[..., :1] for part in parts]
    )
    # [batch, heads, queries, 1]
    totals = [
        tf.exp(part.softmax_stats[..., :1] - maximum)
        * part.softmax_stats[..., 1:]
        for part in parts
    ]
    total = tf.add_n(totals)
    output = tf.add_n(
        [part.output * x for part, x in zip(parts, totals, strict=True)]
    )
    return Attended(output / total, tf.concat([maximum, total], axis=-1))


def times(rows, matrices, transpose_b: bool = False) -> tf.Tensor:
    """Multiplies rows of queries by matrices, shared or one for each block.

    The matrices are `<float>[batch, heads, a, b]` or `<float>[batch, heads,
    blocks, a, b]`.
    """
    if matrices.shape.rank == 4:
        return tf.matmul(rows, matrices, transpose_b=transpose_b)
    batch, heads, queries, _ = shapes.get_shape_list(rows)
    # [batch, heads, blocks, queries of a block, b]
    products = tf.matmul(
        _blocked(rows, matrices), matrices, transpose_b=transpose_b
    )
    size = shapes.get_shape_list(products)[-1]
    return tf.reshape(products, [batch, heads, queries, size])


def _transposed_times(left, right, like):
    """Multiplies `left`, transposed, by `right`, in the blocks of `like`."""
    if like.shape.rank == 4:
        return tf.matmul(left, right, transpose_a=True)
    return tf.matmul(
        _blocked(left, like), _blocked(right, like), transpose_a=True
    )


def _blocked(rows, matrices):
    """Splits the queries into one block per matrix."""
    batch, heads, queries, size = shapes.get_shape_list(rows)
    blocks = shapes.get_shape_list(matrices)[2]
    return tf.reshape(rows, [batch, heads, blocks, queries // blocks, size])


def part(tensor, axis: int, start, size) -> tf.Tensor:
    """Slices an axis, with a fast gradient.

    On a CPU, the gradient of `tensor[:, start:end]` (`tf.strided_slice`) takes
    several times as long as all the attention around it.
    """
    if custom_gradients.is_plain():
        # Compiled by XLA, `tf.slice` has no second derivatives.
        index = [slice(None)] * tensor.shape.rank
        index[axis] = slice(start, start + size)
        return tensor[tuple(index)]
    begin = [0] * tensor.shape.rank
    # Keeps the static shape even if `start` is unknown.
    sizes = [-1 if x is None else x for x in tensor.shape]
    begin[axis], sizes[axis] = start, size
    return tf.slice(tensor, begin, sizes)


def choose(columns, chosen) -> tf.Tensor:
    """Selects one of the query's columns for each pair.

    The columns are `<float>[batch, heads, queries, columns]`. An index in
    `chosen` (see `KeyBlock`) that is out of range gives 0.
    """
    if chosen.dtype == tf.bool:
        first, second = columns[..., :1], columns[..., 1:]
        return first + (second - first) * tf.cast(chosen, columns.dtype)
    num_columns = shapes.get_shape_list(columns)[-1]
    is_column = (chosen >= 0) & (chosen < num_columns)
    max_columns = MAX_SELECTED_COLUMNS
    if not compilation.is_tracing_piece():
        max_columns //= 8
    if num_columns > max_columns:
        # [batch, queries, keys, heads]
        found = tf.gather(
            tf.transpose(columns, [0, 2, 3, 1]),
            tf.where(is_column, chosen, 0)[:, 0],
            axis=2,
            batch_dims=2,
        )
        found = tf.transpose(found, [0, 3, 1, 2])
    else:
        # Each bit of the index halves the remaining columns. In compiled code,
        # this takes half the time of a gather.
        left = [columns[..., i : i + 1] for i in range(num_columns)]
        bit = 1
        while len(left) > 1:
            is_set = tf.bitwise.bitwise_and(chosen, bit) != 0
            left = [
                tf.where(is_set, *pair[::-1]) if len(pair) == 2 else pair[0]
                for pair in (left[i : i + 2] for i in range(0, len(left), 2))
            ]
            bit *= 2
        found = left[0]
    return tf.where(is_column, found, tf.zeros([], found.dtype))


@compilation.jit_if_large
def choose_gradient(d_scores, chosen, *, num_columns):
    """Computes the gradient of `choose` with respect to the columns."""
    if chosen.dtype == tf.bool:
        total = tf.reduce_sum(d_scores, axis=-1, keepdims=True)
        of_second = tf.reduce_sum(
            d_scores * tf.cast(chosen, d_scores.dtype), axis=-1, keepdims=True
        )
        return tf.concat([total - of_second, of_second], axis=-1)
    if num_columns <= MAX_SELECTED_COLUMNS // 8:
        # For so few columns, this takes half the time of a segment sum.
        # [batch, queries, heads, columns]
        sums = tf.matmul(
            tf.transpose(d_scores, [0, 2, 1, 3]),
            # [batch, queries, keys, columns]
            tf.one_hot(chosen[:, 0], num_columns, dtype=d_scores.dtype),
        )
        return tf.transpose(sums, [0, 2, 1, 3])
    batch, heads, queries, keys = shapes.get_shape_list(d_scores)
    # [batch, queries, keys, heads]
    rows = to_score_dtype(tf.transpose(d_scores, [0, 2, 3, 1]))
    # [batch * queries, 1]
    first = num_columns * tf.range(batch * queries)[:, tf.newaxis]
    chosen = tf.reshape(chosen, [batch * queries, keys])
    # [batch * queries * columns, heads]
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(rows, [-1, heads]),
        tf.reshape(
            # `unsorted_segment_sum` ignores the index -1.
            tf.where(
                (chosen >= 0) & (chosen < num_columns), first + chosen, -1
            ),
            [-1],
        ),
        batch * queries * num_columns,
    )
    return tf.transpose(
        tf.reshape(sums, [batch, queries, num_columns, heads]), [0, 3, 1, 2]
    )


# Three chains of elementwise operations, each compiled as a whole. Maxima and
# the spreading of labels over windows stay outside: compiled, they are slower.


def _plain_scores(products, bias, label, chosen):
    result = to_score_dtype(products)
    if chosen is not None:
        label = choose(label, chosen)
    if label is not None:
        result += label
    if bias is not None:
        if products.dtype == tf.float16:
            # Masked products may be infinite, so adding the bias is not enough.
            result = tf.minimum(result, -LOWEST / 2)
        result += bias
    return result


@compilation.jit_if_large
def _scores(products, bias, label, chosen):
    return _plain_scores(products, bias, label, chosen)


@compilation.jit_if_large
def _weights(scores, maximum, *, dtype):
    result = tf.exp(scores - maximum)
    total = tf.reduce_sum(result, axis=-1, keepdims=True)
    return tf.cast(result, dtype), total


@compilation.jit_if_large
def _gradients(
    products, bias, label, chosen, softmax_stats, delta, d_probs, keep, *, dtype
):
    """Computes probabilities after dropout, and gradients of the scores."""
    maximum, total = softmax_stats[..., :1], softmax_stats[..., 1:]
    scores = _plain_scores(products, bias, label, chosen)
    probs = tf.exp(scores - maximum) * (1.0 / total)
    d_probs = to_score_dtype(d_probs)
    dropped = probs
    if keep is not None:
        keep = to_score_dtype(keep)
        dropped = probs * keep
        d_probs *= keep
    d_scores = probs * (d_probs - delta)
    return tf.cast(dropped, dtype), tf.cast(d_scores, dtype)


def joint_softmax(scores, masks):
    """Computes one softmax over the last axes of all tensors in `scores`.

    Masks are `<bool>` (broadcastable to the scores) or None.

    Returns:
        List of probabilities shaped as `scores`. They sum to 1 over all
        tensors together; they are all 0 where everything is masked.
    """
    lowest = scores[0].dtype.min
    masked = [
        s if m is None else tf.where(m, s, lowest)
        for s, m in zip(scores, masks, strict=True)
    ]
    # [..., 1]
    maxima = [tf.reduce_max(s, axis=-1, keepdims=True) for s in masked]
    maximum = tf.stop_gradient(functools.reduce(tf.maximum, maxima))
    # The maximum is -inf if there are no keys, and `lowest` if all are masked.
    maximum = tf.maximum(maximum, lowest)
    weights = []
    for s, m in zip(masked, masks, strict=True):
        weight = tf.exp(s - maximum)
        if m is not None:
            weight = tf.where(m, weight, tf.zeros([], weight.dtype))
        weights.append(weight)
    # [..., 1]
    total = functools.reduce(
        operator.add,
        [tf.reduce_sum(w, axis=-1, keepdims=True) for w in weights],
    )
    # A total is 0 (no keys) or at least 1 (the weight of the maximum).
    total = tf.where(total > 0, total, tf.ones([], total.dtype))
    return [w / total for w in weights]


def score_dtype(dtype) -> tf.DType:
    """Returns the dtype of scores: float64 for float64, else float32."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def to_score_dtype(tensor) -> tf.Tensor:
    """Casts to the dtype of scores."""
    return tf.cast(tensor, score_dtype(tensor.dtype))


def heads_outer(tensor) -> tf.Tensor:
    """Transposes `[batch, x, heads, y]` to `[batch, heads, x, y]`, or back."""
    return tf.transpose(tensor, [0, 2, 1, 3])


def scaled(queries) -> tf.Tensor:
    """Scales queries by `size**-0.5` before products, to avoid overflows."""
    return queries * tf.constant(queries.shape[-1] ** -0.5, queries.dtype)
