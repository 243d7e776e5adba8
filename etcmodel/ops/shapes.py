"""Reads, checks and changes the shapes of tensors."""

import math
import numbers
from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf


def get_shape_list(
    tensor: tf.Tensor,
    expected_rank: int | Sequence[int] | None = None,
    name: str | None = None,
) -> list[int | tf.Tensor]:
    """Returns the shape as a list; unknown sizes are tensors, `<int32>[]`."""
    tensor = tf.convert_to_tensor(tensor)
    if expected_rank is not None:
        assert_rank(tensor, expected_rank, name)
    if tensor.shape.rank is None:
        raise ValueError(
            f"{_describe(tensor, name)} has an unknown rank; its shape cannot "
            "be listed. Set the rank, for example with `tf.ensure_shape`."
        )
    static_shape = tensor.shape.as_list()
    if None not in static_shape:
        return static_shape
    # `tf.unstack` is one operation; indexing would take four for each axis.
    dynamic_shape = tf.unstack(tf.shape(tensor), len(static_shape))
    return [
        dynamic if size is None else size
        for dynamic, size in zip(dynamic_shape, static_shape, strict=True)
    ]


def assert_rank(
    tensor: tf.Tensor,
    expected_rank: int | Sequence[int],
    name: str | None = None,
) -> None:
    """Raises a ValueError unless a tensor's static rank is allowed."""
    tensor = tf.convert_to_tensor(tensor)
    if isinstance(expected_rank, numbers.Integral):
        allowed = (expected_rank,)
    else:
        allowed = tuple(expected_rank)
    if tensor.shape.rank not in allowed:
        wanted = " or ".join(str(rank) for rank in allowed)
        raise ValueError(
            f"{_describe(tensor, name)} has rank {tensor.shape.rank} (shape "
            f"{tensor.shape}). Expected rank {wanted}."
        )


def reshape(tensor: tf.Tensor, shape: Sequence[int | tf.Tensor]) -> tf.Tensor:
    """Calls `tf.reshape`, with fewer operations if one size is unknown."""
    unknown = [i for i, size in enumerate(shape) if tf.is_tensor(size)]
    if len(unknown) == 1 and all(
        size > 0 for i, size in enumerate(shape) if i not in unknown
    ):
        # `tf.reshape` infers this size.
        shape = [-1 if i in unknown else size for i, size in enumerate(shape)]
    return tf.reshape(tensor, shape)


def flatten_dims(
    tensor: tf.Tensor,
    first_dim: int = 0,
    last_dim: int = -1,
    name: str | None = None,
) -> tf.Tensor:
    """Merges the axes from `first_dim` to `last_dim`, both included.

    `[2, 3, 4, 5]` with `first_dim=1, last_dim=-2` becomes `[2, 12, 5]`. The
    merged size is static if all merged sizes are.

    Raises:
        ValueError: the rank is unknown, an axis is out of range, or
            `first_dim > last_dim`.
    """
    with tf.name_scope(name or "flatten_dims"):
        tensor = tf.convert_to_tensor(tensor)
        first = _normalize_axis(tensor, first_dim, "first_dim")
        last = _normalize_axis(tensor, last_dim, "last_dim")
        if first > last:
            raise ValueError(
                f"first_dim ({first_dim}) comes after last_dim ({last_dim}) "
                f"in a tensor of rank {tensor.shape.rank}. Swap them."
            )
        if first == last:
            return tensor
        static = tensor.shape.as_list()
        others = static[:first] + static[last + 1 :]
        if all(others):
            # `tf.reshape` infers the merged size.
            return tf.reshape(
                tensor, static[:first] + [-1] + static[last + 1 :]
            )
        shape = get_shape_list(tensor)
        merged = 1
        for size in shape[first : last + 1]:
            merged = merged * size
        return reshape(tensor, shape[:first] + [merged] + shape[last + 1 :])


def apply_to_rows(
    layer: Callable,
    tensor: tf.Tensor,
    row_rank: int = 1,
    split: Sequence[int] | None = None,
) -> tf.Tensor:
    """Applies a layer of `[rows, size]` to the last axes of a tensor.

    Keras's `Dense` takes tensors of any rank. However, if sizes are unknown,
    XLA cannot compile the gradient of `Dense` inside a `tf.while_loop`. It can
    compile the gradient of this function.

    Args:
        layer: maps `<any>[rows, size]` to `<any>[rows, units]`.
        tensor: `<any>[..., size]`, of a higher rank than a row.
        row_rank: number of last axes that form a row; their sizes must be
            static.
        split: sizes into which the axis `units` is split; None for no split.
    """
    shape = get_shape_list(tensor)
    size = math.prod(shape[-row_rank:])
    num_rows = -1 if size else math.prod(shape[:-row_rank])
    # [rows, size]
    rows = tf.reshape(tensor, [num_rows, size])
    # [rows, units]
    rows = layer(rows)
    # [..., units]
    return reshape(rows, [*shape[:-row_rank], *(split or rows.shape[-1:])])


def _normalize_axis(tensor: tf.Tensor, axis: int, name: str = "axis") -> int:
    """Returns a nonnegative axis; raises a ValueError if it is out of range."""
    rank = tensor.shape.rank
    if rank is None:
        raise ValueError(
            "The tensor's rank is unknown. Set it, for example with "
            "`tf.ensure_shape`."
        )
    if not -rank <= axis < rank:
        raise ValueError(
            f"{name} is {axis}, expected {-rank} to {rank - 1} for a tensor of "
            f"rank {rank} (shape {tensor.shape})."
        )
    return axis % rank


def _describe(tensor: tf.Tensor, name: str | None) -> str:
    """Describes a tensor for an error message; eager tensors lack names."""
    if name is not None:
        return f"Tensor '{name}'"
    return f"A {tensor.dtype.name} tensor"
