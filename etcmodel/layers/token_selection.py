"""Tokens of each example that are chosen by a mask."""

import functools
from collections.abc import Callable

import tensorflow as tf

from etcmodel import tensor_utils
from etcmodel.layers import recompute


def gather_positions(sequence, positions) -> tf.Tensor:
    """The vectors at some positions of each row.

    Args:
        sequence: `<float>[batch, length, size]`.
        positions: `<int>[batch, n]`, from 0 to `length - 1`.

    Returns:
        `<float>[batch, n, size]`.

    Raises:
        ValueError: an argument has another rank.
    """
    tensor_utils.assert_rank(sequence, 3, "sequence")
    tensor_utils.assert_rank(positions, 2, "positions")
    return tf.gather(sequence, positions, batch_dims=1)


def true_positions(mask, most: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The positions of each row where a mask is true.

    The masks `[[0, 1, 0, 1, 1], [0, 0, 0, 1, 0]]` and `most=2` give
    `[[1, 3], [3, 0]]` and the weights `[[1, 1], [1, 0]]`.

    Args:
        mask: `<bool or int>[batch, length]`.
        most: how many positions of a row there are room for. An int makes the
            size of the outputs static. It may be more than `length`.

    Returns:
        positions: `<int32>[batch, most]`, the first `most` in order, then 0.
        weights: `<float32>[batch, most]`, 1 for a position, 0 for what fills
            up.

    Raises:
        ValueError: `mask` has another rank.
    """
    tensor_utils.assert_rank(mask, 2, "mask")
    mask = tf.cast(mask, tf.bool)
    length = tensor_utils.get_shape_list(mask)[1]
    # [length]: length, ..., 2, 1
    priorities = tf.range(length, 0, -1, dtype=tf.int32)
    # [batch, length]
    priorities = tf.where(mask, priorities[tf.newaxis], 0)
    # [batch, max(length, most)]
    priorities = tf.pad(priorities, [[0, 0], [0, tf.maximum(most - length, 0)]])
    # [batch, most]
    priorities = tf.math.top_k(priorities, most).values
    is_real = priorities > 0
    positions = tf.where(is_real, length - priorities, 0)
    return positions, tf.cast(is_real, tf.float32)


def apply_to_chosen(
    function: Callable[..., tf.Tensor],
    tensors,
    mask,
    others=(),
    is_random: bool = True,
) -> tf.Tensor:
    """Applies a function of tokens to some of them; the others get zeros.

    It saves time where few tokens are chosen. The function is called with the
    chosen tokens of each example, and the example's first token as often as
    needed to make them `n`: an eighth, a quarter or a half of the length, or
    all of it, whichever is the least that has room for all. As these sizes are
    known beforehand, XLA can compile it; a graph has the function four times.
    In the backward pass it runs once more, see `recompute.switch_case`.

    With `function=lambda x: 10 * x`, the tokens `[[[1], [2], [3]]]` and the
    mask `[[0, 0, 1]]` the result is `[[[0], [0], [30]]]`.

    Args:
        function: called with `<...>[batch, n, ...]` of each tensor, and with
            `others`; returns `<float>[batch, n, size]`. A token's result may
            depend on this token and on `others` alone. Layers in it must be
            built. No gradients flow to tensors that it captures.
        tensors: list of `<...>[batch, length, ...]`.
        mask: `<bool or int>[batch, length]`, true for the chosen ones.
        others: further arguments of `function`.
        is_random: whether `function` drops anything.

    Returns:
        `<float>[batch, length, size]`.

    Raises:
        ValueError: `mask` has another rank.
    """
    tensor_utils.assert_rank(mask, 2, "mask")
    mask = tf.cast(mask, tf.bool)
    length = tensor_utils.get_shape_list(mask)[1]
    # [batch, length]: how many are chosen up to each token, itself included
    counts = tf.cumsum(tf.cast(mask, tf.int32), axis=1)
    most = tf.reduce_max(counts)

    def hide_others(results):
        return tf.where(
            mask[..., tf.newaxis], results, tf.zeros([], results.dtype)
        )

    def apply_to_first(n, *args):
        positions, _ = true_positions(mask, n)
        # [batch, n, ...] each
        chosen = [
            tf.gather(x, positions, batch_dims=1) for x in args[: len(tensors)]
        ]
        # [batch, n, size]
        results = function(*chosen, *args[len(tensors) :])
        # [batch, length]: where in the results each chosen token is
        places = tf.clip_by_value(counts - 1, 0, n - 1)
        return hide_others(tf.gather(results, places, batch_dims=1))

    def apply_to_all(*args):
        return hide_others(function(*args))

    sizes = [(length + parts - 1) // parts for parts in (8, 4, 2)]
    branches = [functools.partial(apply_to_first, size) for size in sizes]
    return recompute.switch_case(
        sum(tf.cast(most > size, tf.int32) for size in sizes),
        [*branches, apply_to_all],
        [*tensors, *others],
        is_random,
    )
