"""Attention to a memory: vectors that tokens attend to besides the text.

ReadTwice, section 2.1. All examples may share one memory. Heads are the first
axis here: a shared memory then needs one matrix product per head for all
examples, and a batch's mask needs no axis for the heads.
"""

import functools
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.ops import shapes
from etcmodel.ops import shared_graphs
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import softmax
from etcmodel.ops.attention import streaming


def in_chunks(
    attend: Callable,
    examples: Mapping[str, tf.Tensor | None],
    scores_per_example,
) -> tf.Tensor:
    """Attends a few examples at a time, without keeping scores.

    About `streaming.CHUNK_ELEMENTS` scores exist at a time. If a tape records
    gradients, it keeps all scores.

    Args:
        attend: function of keyword arguments: the same rows of each tensor in
            `examples`. Its output has the dtype of the first tensor.
        examples: `<any>[batch, ...]` by name. All but the first may be None.
        scores_per_example: number of scores, an int or `<int32>[]`.
    """
    examples = {
        name: None if x is None else tf.convert_to_tensor(x)
        for name, x in examples.items()
    }
    first = next(iter(examples.values()))
    batch = shapes.get_shape_list(first)[0]
    # Tensors that all examples share (a first axis of 1) are not cut.
    cut = {
        name: x
        for name, x in examples.items()
        if x is not None and (x.shape[0] != 1 or first.shape[0] == 1)
    }
    _check_batches(cut, batch)
    number, _ = streaming.plan_chunks(batch, scores_per_example)
    # Recomputed: `number` is rounded up, so fewer chunks may suffice.
    num_chunks = blocks.ceil_div(batch, number)
    if isinstance(batch, int) and batch < 3:
        # Two examples are never split, since two chunks are merged into one.
        return attend(**examples)
    if isinstance(num_chunks, int):
        if num_chunks < 2:
            return attend(**examples)
    else:
        # An empty batch runs one empty chunk, to infer the output shape.
        num_chunks = tf.maximum(num_chunks, 1)
        number = tf.minimum(number, batch)

    def body(index, outputs):
        # The last chunk is as long as all others, so it may repeat examples.
        start = tf.minimum(index * number, batch - number)
        chunk = {
            name: softmax.part(x, 0, start, number) for name, x in cut.items()
        }
        return [outputs.write(index, attend(**{**examples, **chunk}))]

    (outputs,) = streaming.loop(
        num_chunks, body, [tf.TensorArray(first.dtype, num_chunks)]
    )
    # [chunks * number, ...]
    rows = shapes.flatten_dims(outputs.stack(), last_dim=1)
    before = (num_chunks - 1) * number
    rest = batch - before
    # [batch]
    position = tf.range(batch)
    position += tf.where(position < before, 0, number - rest)
    # A gather, not two concatenated slices: in a batch of one, a slice would be
    # empty, and XLA crashes on its gradient.
    # [batch, ...]
    output = tf.gather(rows, position)
    return tf.ensure_shape(output, [first.shape[0], *rows.shape[1:]])


def _check_batches(examples, batch):
    """Raises a ValueError unless all tensors have the batch size `batch`."""
    for name, x in examples.items():
        number = shapes.get_shape_list(x)[0]
        message = f"{name} and the first input differ in their batch size."
        if not (isinstance(number, int) and isinstance(batch, int)):
            tf.debugging.assert_equal(number, batch, message)
        elif number != batch:
            raise ValueError(f"{message[:-1]}: {number}, expected {batch}.")


def attend(
    queries: tf.Tensor,
    pieces: Sequence[softmax.Keys],
    dropout: softmax.Dropout | None = None,
    added_scores: tf.Tensor | None = None,
    default_key: tf.Tensor | None = None,
    top_k: int | None = None,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Attends to all keys of all pieces, under one softmax.

    Args:
        queries: `<float>[batch, main, heads, size]`.
        pieces: the keys to attend to. Keys and values may be
            `<float>[to, heads, size]`, the same for all examples, and masks
            `<any>[batch, to]`, the same for all tokens of an example.
        dropout: dropout of the probabilities.
        added_scores: scores to add to those of the first piece,
            `<float>[heads, batch, main or 1, to]`.
        default_key: `<float>[heads, size]`, the no-op memory: one more key,
            never masked, whose value is zeros.
        top_k: number of keys that a query attends to: those with the highest
            scores, counting the default key. More if several keys tie for the
            last place. None for all keys.

    Returns:
        `<float>[batch, main, heads * size]`, zeros for a query without keys;
        and each piece's probabilities before dropout,
        `<float>[heads, batch, main, to]`.
    """
    pieces = [
        x._replace(mask=as_mask(x.mask, f"{x.name}att_mask")) for x in pieces
    ]
    for piece in pieces:
        check_columns(piece)
    return _attend(queries, pieces, dropout, added_scores, default_key, top_k)


# The gradient reads four tensors as large as the scores; inlined, they are
# freed one by one (see `traces.once`).
@functools.partial(shared_graphs.shared, is_inlined=True)
def _attend(queries, pieces, dropout, added_scores, default_key, top_k):
    # [heads, batch, main, size]
    queries = softmax.scaled(heads_first(queries))
    # [heads, batch, main, to] each
    scores = [attention_scores(queries, heads_first(x.keys)) for x in pieces]
    masks = [x.mask for x in pieces]
    if added_scores is not None:
        scores[0] += added_scores
    if default_key is not None:
        # [heads, batch, main, 1]
        scores.append(attention_scores(queries, default_key[:, tf.newaxis]))
        masks.append(None)
    if top_k is not None:
        min_score = _kth_best(scores, masks, top_k)
        masks = [
            x >= min_score if mask is None else (x >= min_score) & mask
            for x, mask in zip(scores, masks, strict=True)
        ]
    probs = softmax.joint_softmax(scores, masks)[: len(pieces)]
    kept = probs
    if dropout is not None:
        kept = [dropout.drop(x, i) for i, x in enumerate(probs)]
    # [heads, batch, main, size]
    output = tf.add_n(
        [
            weighted_sum(x, heads_first(piece.values))
            for x, piece in zip(kept, pieces, strict=True)
        ]
    )
    # [batch, main, heads * size]
    output = shapes.flatten_dims(
        tf.transpose(output, [1, 2, 0, 3]), first_dim=-2
    )
    return output, probs


def _kth_best(scores, masks, k):
    masked = [
        x if mask is None else tf.where(mask, x, x.dtype.min)
        for x, mask in zip(scores, masks, strict=True)
    ]
    # [heads, batch, main, all keys]
    scores = tf.concat(masked, axis=-1)
    number = shapes.get_shape_list(scores)[-1]
    smaller = min if isinstance(number, int) else tf.minimum
    # [heads, batch, main, k]
    best = tf.math.top_k(tf.stop_gradient(scores), smaller(k, number)).values
    return tf.reduce_min(best, axis=-1, keepdims=True)


def heads_first(tensor) -> tf.Tensor:
    """Transposes `<any>[..., length, heads, size]` to put heads first."""
    rank = tensor.shape.rank
    return tf.transpose(tensor, [rank - 2, *range(rank - 2), rank - 1])


def batch_first(tensor) -> tf.Tensor:
    """Transposes `<any>[heads, batch, ...]` to `<any>[batch, heads, ...]`."""
    return tf.transpose(tensor, [1, 0, *range(2, tensor.shape.rank)])


def attention_scores(queries, keys) -> tf.Tensor:
    """Multiplies queries and keys, `<float>[heads, batch, from, to]`.

    The keys are `<float>[heads, batch, to, size]`, or `<float>[heads, to,
    size]` if all examples share them.
    """
    if keys.shape.rank == 4:
        scores = tf.matmul(queries, keys, transpose_b=True)
    else:
        scores = _per_head(
            lambda rows: tf.matmul(rows, keys, transpose_b=True), queries
        )
    return softmax.to_score_dtype(scores)


def weighted_sum(probs, values) -> tf.Tensor:
    """Sums values weighted by `probs`; shapes are as in `attention_scores`."""
    probs = tf.cast(probs, values.dtype)
    if values.shape.rank == 4:
        return tf.matmul(probs, values)
    return _per_head(lambda rows: tf.matmul(rows, values), probs)


def _per_head(function, tensor):
    """Applies a function to each head's rows of all examples together."""
    heads, batch, length, size = shapes.get_shape_list(tensor)
    # [heads, batch * length, b]
    rows = function(tf.reshape(tensor, [heads, batch * length, size]))
    return tf.reshape(
        rows, [heads, batch, length, shapes.get_shape_list(rows)[-1]]
    )


def as_mask(att_mask, name: str) -> tf.Tensor | None:
    """Converts a mask to `<bool>[batch, from or 1, to]`; None stays None.

    `[[1, 0], [1, 1]]` (two examples, two keys) becomes
    `[[[True, False]], [[True, True]]]`. Raises a ValueError unless the rank is
    2 or 3.
    """
    if att_mask is None:
        return None
    shapes.assert_rank(att_mask, [2, 3], name)
    mask = tf.cast(att_mask, tf.bool)
    # [batch, from or 1, to]
    return mask[:, tf.newaxis] if mask.shape.rank == 2 else mask


def split_masks(att_mask, side_att_mask, main_input, side_input) -> list:
    """Splits the mask of `FusedSideAttention` into a main and a side part.

    With two tokens and one side row, `[[[1, 1, 0], [0, 1, 1]]]` gives
    `[[[True, True], [False, True]]]` and `[[[False], [True]]]`.

    Raises:
        ValueError: a mask has the wrong rank or number of columns.
    """
    att_mask = as_mask(att_mask, "att_mask")
    if att_mask is None or side_att_mask is not None:
        return [att_mask, as_mask(side_att_mask, "side_att_mask")]
    main_len = shapes.get_shape_list(main_input)[1]
    side_len = shapes.get_shape_list(side_input)[-2]
    columns = att_mask.shape[-1]
    if columns is not None and main_input.shape[1] is not None:
        rest = columns - main_len
        if rest < 0 or side_input.shape[-2] not in (None, rest):
            raise ValueError(
                f"att_mask has {columns} columns, expected one for each of "
                f"{main_len} tokens and {side_input.shape[-2]} side rows. To "
                "mask the tokens alone, also give side_att_mask."
            )
    # [batch, main or 1, main] and [batch, main or 1, side]
    return tf.split(att_mask, [main_len, side_len], axis=-1)


def check_columns(piece: softmax.Keys) -> None:
    """Raises a ValueError unless a mask has a known column for each key.

    A single column would be broadcast to all keys.
    """
    mask, number = piece.mask, piece.keys.shape[-3]
    if mask is None or None in (mask.shape[-1], number):
        return
    if mask.shape[-1] != number:
        raise ValueError(
            f"A mask of {mask.shape[-1]} columns (shape {mask.shape}) does not "
            f"fit {number} keys. Give one column for each key."
        )
