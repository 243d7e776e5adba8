"""Pure tensor functions: reshaping, gathering, blocks, skews.

Nothing here holds state. Block and skew functions are the primitives of
local attention (ETC paper, appendix A: "Implementation details").
"""

import numbers
import re
import string
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.activations import gelu as gelu
from etcmodel.activations import get_activation as get_activation


def get_shape_list(
    tensor: tf.Tensor,
    expected_rank: int | Sequence[int] | None = None,
    name: str | None = None,
) -> list[int | tf.Tensor]:
    """Shape as a list, static where it is known.

    Args:
        tensor: any tensor of known rank.
        expected_rank: the rank, or the allowed ranks; None for no check.
        name: what to call the tensor in an error message.

    Returns:
        One entry a dimension: an int, or an int32 scalar tensor where the
        size is known at run time only.

    Raises:
        ValueError: the rank is unknown or not an expected one.
    """
    tensor = tf.convert_to_tensor(tensor)
    if expected_rank is not None:
        assert_rank(tensor, expected_rank, name)
    if tensor.shape.rank is None:
        raise ValueError(
            f"{_describe(tensor, name)} has an unknown rank; its shape cannot "
            "be listed. Set its static rank, for example with `tf.ensure_shape`"
        )
    static_shape = tensor.shape.as_list()
    if None not in static_shape:
        return static_shape
    dynamic_shape = tf.shape(tensor)
    return [
        dynamic_shape[i] if size is None else size
        for i, size in enumerate(static_shape)
    ]


def assert_rank(
    tensor: tf.Tensor,
    expected_rank: int | Sequence[int],
    name: str | None = None,
) -> None:
    """Checks the static rank of a tensor.

    Args:
        tensor: any tensor.
        expected_rank: the rank, or a list of the allowed ranks.
        name: what to call the tensor in the error message.

    Raises:
        ValueError: the rank is another one, or unknown.
    """
    tensor = tf.convert_to_tensor(tensor)
    if isinstance(expected_rank, numbers.Integral):
        allowed = (expected_rank,)
    else:
        allowed = tuple(expected_rank)
    if tensor.shape.rank not in allowed:
        wanted = " or ".join(str(rank) for rank in allowed)
        raise ValueError(
            f"{_describe(tensor, name)} has rank {tensor.shape.rank} (shape "
            f"{tensor.shape}); expected rank {wanted}"
        )


def flatten_dims(
    tensor: tf.Tensor,
    first_dim: int = 0,
    last_dim: int = -1,
    name: str | None = None,
) -> tf.Tensor:
    """Merges the axes from `first_dim` to `last_dim`, both included.

    `[2, 3, 4, 5]` with `first_dim=1, last_dim=-2` becomes `[2, 12, 5]`.

    Args:
        tensor: <any>[...] of known rank.
        first_dim: first axis to merge; negative counts from the end.
        last_dim: last axis to merge; negative counts from the end.
        name: name scope.

    Returns:
        <same dtype>[...], with one axis in the place of the merged ones. The
        merged size is static if all merged sizes are.

    Raises:
        ValueError: rank unknown, an axis out of range, or
            `first_dim > last_dim`.
    """
    with tf.name_scope(name or "flatten_dims"):
        tensor = tf.convert_to_tensor(tensor)
        first = _normalize_axis(tensor, first_dim, "first_dim")
        last = _normalize_axis(tensor, last_dim, "last_dim")
        if first > last:
            raise ValueError(
                f"first_dim ({first_dim}) comes after last_dim ({last_dim}) "
                f"in a tensor of rank {tensor.shape.rank}"
            )
        if first == last:
            return tensor
        shape = get_shape_list(tensor)
        merged = 1
        for size in shape[first : last + 1]:
            merged = merged * size
        return tf.reshape(tensor, shape[:first] + [merged] + shape[last + 1 :])


def gather_by_one_hot(
    params: tf.Tensor, indices: tf.Tensor, name: str | None = None
) -> tf.Tensor:
    """Gathers rows with a matrix product, which suits TPUs.

    Args:
        params: <float>[size, ...] table.
        indices: <int>[...] of any rank. An id that is negative or not less
            than `size` gives zeros.
        name: name scope.

    Returns:
        <dtype of params>[indices.shape + params.shape[1:]].
    """
    with tf.name_scope(name or "gather_by_one_hot"):
        params = tf.convert_to_tensor(params)
        indices = tf.convert_to_tensor(indices)
        # [..., size]
        one_hot = tf.one_hot(
            indices, get_shape_list(params)[0], dtype=params.dtype
        )
        # [...] + params.shape[1:]
        return tf.tensordot(one_hot, params, axes=1)


def batch_gather_by_one_hot(
    params: tf.Tensor,
    indices: tf.Tensor,
    batch_dims: int | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Gathers along axis `batch_dims` with a matrix product.

    `params=[[0, .1, .2], [1, 1.1, 1.2]]`, `indices=[2, 1]`, `batch_dims=1`
    gives `[.2, 1.1]`; `indices=[[2, 0], [2, 1]]` gives
    `[[.2, 0], [1.2, 1.1]]`.

    Args:
        params: <float>[batch..., size, ...].
        indices: <int>[batch..., ...]; an id out of range gives zeros.
        batch_dims: number of leading axes that both share; by default all of
            `indices` but the last.
        name: name scope.

    Returns:
        <dtype of params>[indices.shape + params.shape[batch_dims + 1:]].

    Raises:
        ValueError: `batch_dims` is not positive, is more than the rank of
            `indices`, is not less than the rank of `params`, or the batch
            axes are known to differ.
    """
    with tf.name_scope(name or "batch_gather_by_one_hot"):
        params = tf.convert_to_tensor(params)
        indices = tf.convert_to_tensor(indices)
        params_shape = get_shape_list(params)
        indices_shape = get_shape_list(indices)
        if batch_dims is None:
            batch_dims = len(indices_shape) - 1
        if batch_dims <= 0:
            raise ValueError(
                f"batch_dims is {batch_dims}, but must be positive; without "
                "batch axes use `gather_by_one_hot`"
            )
        if len(params_shape) <= batch_dims:
            raise ValueError(
                f"params has rank {len(params_shape)}; with batch_dims "
                f"{batch_dims} it needs at least rank {batch_dims + 1}"
            )
        if len(indices_shape) < batch_dims:
            raise ValueError(
                f"indices has rank {len(indices_shape)}, which is less than "
                f"batch_dims ({batch_dims})"
            )
        if not params.shape[:batch_dims].is_compatible_with(
            indices.shape[:batch_dims]
        ):
            raise ValueError(
                f"params {params.shape} and indices {indices.shape} differ in "
                f"their first {batch_dims} axes, the batch"
            )
        inner_shape = params_shape[batch_dims + 1 :]
        # [batch..., ids, size]; one id a batch entry if there are none left.
        one_hot = tf.one_hot(
            tf.reshape(indices, indices_shape[:batch_dims] + [-1]),
            params_shape[batch_dims],
            dtype=params.dtype,
        )
        # [batch..., size, inner]
        inner_size = 1
        for size in inner_shape:
            inner_size = inner_size * size
        rows = tf.reshape(params, params_shape[: batch_dims + 1] + [inner_size])
        # [batch..., ids, inner] -> indices.shape + inner_shape
        return tf.reshape(tf.matmul(one_hot, rows), indices_shape + inner_shape)


def pad_to_multiple(
    tensor: tf.Tensor,
    factor: int | tf.Tensor,
    axis: int,
    mode: str = "CONSTANT",
    constant_values=0,
    name: str | None = None,
) -> tf.Tensor:
    """Pads the end of an axis until its size is a multiple of `factor`.

    `[1, 2, 3]` with factor 5 becomes `[1, 2, 3, 0, 0]`.

    Args:
        tensor: <any>[...] of known rank.
        factor: positive int or int scalar tensor.
        axis: the axis to pad.
        mode: as in `tf.pad`.
        constant_values: what to pad with in mode "CONSTANT".
        name: name scope.

    Returns:
        <same dtype>[...], other axes unchanged.

    Raises:
        ValueError: a Python factor below 1, unknown rank or bad axis.
    """
    with tf.name_scope(name or "pad_to_multiple"):
        tensor = tf.convert_to_tensor(tensor)
        if isinstance(factor, numbers.Integral):
            factor = int(factor)
        if isinstance(factor, int) and factor < 1:
            raise ValueError(f"factor is {factor}, but must be positive")
        axis = _normalize_axis(tensor, axis)
        size = get_shape_list(tensor)[axis]
        if not isinstance(factor, int):
            factor = tf.cast(factor, tf.int32)
        paddings = [[0, 0]] * tensor.shape.rank
        paddings[axis] = [0, -size % factor]
        result = tf.pad(tensor, paddings, mode, constant_values)
        static_shape = tensor.shape.as_list()
        if isinstance(size, int) and isinstance(factor, int):
            static_shape[axis] = size + -size % factor
        else:
            static_shape[axis] = None
        result.set_shape(static_shape)
        return result


def split_into_blocks(
    tensor: tf.Tensor,
    block_len: int,
    axis: int,
    pad_value=0,
    name: str | None = None,
) -> tf.Tensor:
    """Splits an axis into blocks, padding the end of the last one.

    `[1, 2, 3, 4, 5, 6]` with `block_len=4` becomes
    `[[1, 2, 3, 4], [5, 6, 0, 0]]`.

    Args:
        tensor: <any>[..., n, ...] of known rank.
        block_len: the block length `b`.
        axis: the axis to split.
        pad_value: what fills the last block.
        name: name scope.

    Returns:
        <same dtype>[..., ceil(n / b), b, ...].

    Raises:
        ValueError: `block_len` below 1, unknown rank or bad axis.
    """
    with tf.name_scope(name or "split_into_blocks"):
        tensor = tf.convert_to_tensor(tensor)
        if block_len < 1:
            raise ValueError(f"block_len is {block_len}, but must be positive")
        axis = _normalize_axis(tensor, axis)
        padded = pad_to_multiple(
            tensor, block_len, axis, constant_values=pad_value
        )
        shape = get_shape_list(padded)
        # [..., num_blocks, block_len, ...]
        return tf.reshape(
            padded,
            shape[:axis]
            + [shape[axis] // block_len, block_len]
            + shape[axis + 1 :],
        )


def concat_3_blocks(
    blocked_seq: tf.Tensor, name: str | None = None
) -> tf.Tensor:
    """Puts every block together with its left and right neighbour.

    Blocks `[1, 2], [3, 4], [5, 6]` become `[0, 0, 1, 2, 3, 4]`,
    `[1, 2, 3, 4, 5, 6]`, `[3, 4, 5, 6, 0, 0]`.

    Args:
        blocked_seq: <any>[batch, num_blocks, block_len, ...].
        name: name scope.

    Returns:
        <same dtype>[batch, num_blocks, 3 * block_len, ...]; a missing
        neighbour is a block of zeros.

    Raises:
        ValueError: rank unknown or below 3.
    """
    with tf.name_scope(name or "concat_3_blocks"):
        blocked_seq = tf.convert_to_tensor(blocked_seq)
        rank = blocked_seq.shape.rank
        if rank is None or rank < 3:
            raise ValueError(
                "blocked_seq must be [batch, num_blocks, block_len, ...], but "
                f"has shape {blocked_seq.shape}"
            )
        num_blocks = get_shape_list(blocked_seq)[1]
        # [batch, num_blocks + 2, block_len, ...]
        padded = tf.pad(blocked_seq, [[0, 0], [1, 1]] + [[0, 0]] * (rank - 2))
        # [batch, num_blocks, 3 * block_len, ...]
        return tf.concat(
            [padded[:, i : i + num_blocks] for i in range(3)], axis=2
        )


def shift_elements_right(
    tensor: tf.Tensor,
    axis: int = -1,
    amount: int = 1,
    pad_value=0,
    name: str | None = None,
) -> tf.Tensor:
    """Shifts elements towards higher indices along an axis.

    `[5, 4, 3, 2, 1]` with amount 3 becomes `[0, 0, 0, 5, 4]`; with amount -2
    and pad value -1 it becomes `[3, 2, 1, -1, -1]`.

    Args:
        tensor: <any>[...] of known rank.
        axis: the axis to shift along.
        amount: how far; a negative amount shifts left.
        pad_value: what moves in.
        name: name scope.

    Returns:
        A tensor of the same shape and dtype. An amount of the axis's size or
        more leaves nothing but padding.

    Raises:
        ValueError: unknown rank or bad axis.
    """
    with tf.name_scope(name or "shift_elements_right"):
        tensor = tf.convert_to_tensor(tensor)
        axis = _normalize_axis(tensor, axis)
        if amount == 0:
            return tensor
        rank = tensor.shape.rank
        paddings = [[0, 0]] * rank
        paddings[axis] = [max(amount, 0), max(-amount, 0)]
        begin = [0] * rank
        begin[axis] = max(-amount, 0)
        # The axis grows by |amount|; a window of its old size is cut out.
        padded = tf.pad(tensor, paddings, constant_values=pad_value)
        result = tf.slice(padded, begin, get_shape_list(tensor))
        result.set_shape(tensor.shape)
        return result


def skew_elements_right(
    tensor: tf.Tensor, axis: int, pad_value=0, name: str | None = None
) -> tf.Tensor:
    """Shifts row `i` right by `i`, widening the rows to hold all elements.

    `[[1, 2, 3], [4, 5, 6], [7, 8, 9]]` becomes
    `[[1, 2, 3, 0, 0], [0, 4, 5, 6, 0], [0, 0, 7, 8, 9]]`.

    Only pads and reshapes, so it is cheap everywhere.

    Args:
        tensor: <any>[..., rows, width, ...] of known rank.
        axis: the axis of the columns; the one before it holds the rows.
        pad_value: what fills the new places.
        name: name scope.

    Returns:
        <same dtype>[..., rows, width + rows - 1, ...].

    Raises:
        ValueError: unknown rank, `axis` out of range, or 0.
    """
    with tf.name_scope(name or "skew_elements_right"):
        tensor = tf.convert_to_tensor(tensor)
        axis = _normalize_axis(tensor, axis)
        if axis == 0:
            raise ValueError(
                "axis is 0, but the axis before it must hold the rows"
            )
        shape = get_shape_list(tensor)
        outer, inner = shape[: axis - 1], shape[axis + 1 :]
        rows, width = shape[axis - 1 : axis + 1]
        paddings = [[0, 0]] * len(shape)
        paddings[axis] = [0, rows]
        # [..., rows, width + rows, ...]
        padded = tf.pad(tensor, paddings, constant_values=pad_value)
        # [..., rows * (width + rows), ...]
        flat = tf.reshape(padded, outer + [rows * (width + rows)] + inner)
        # [..., rows * (width + rows - 1), ...]: one element fewer a row, so
        # that each row starts one further right than the row above.
        flat = tf.slice(
            flat,
            [0] * (len(shape) - 1),
            outer + [rows * (width + rows - 1)] + inner,
        )
        # [..., rows, width + rows - 1, ...]
        return tf.reshape(flat, outer + [rows, width + rows - 1] + inner)


def unskew_elements_right(
    tensor: tf.Tensor, axis: int, name: str | None = None
) -> tf.Tensor:
    """Takes from row `i` the window that starts at column `i`.

    The inverse of `skew_elements_right`. Elements outside the windows are
    ignored, so it also extracts a band: the diagonal matrix
    `[[1, 0, 0], [0, 2, 0], [0, 0, 3]]` becomes `[[1], [2], [3]]`.

    Args:
        tensor: <any>[..., rows, width, ...]; both sizes static, `width` not
            less than `rows`.
        axis: the axis of the columns; the one before it holds the rows.
        name: name scope.

    Returns:
        <same dtype>[..., rows, width - rows + 1, ...].

    Raises:
        ValueError: unknown rank, `axis` out of range or 0, an unknown number
            of rows or columns, or fewer columns than rows.
    """
    with tf.name_scope(name or "unskew_elements_right"):
        tensor = tf.convert_to_tensor(tensor)
        axis = _normalize_axis(tensor, axis)
        if axis == 0:
            raise ValueError(
                "axis is 0, but the axis before it must hold the rows"
            )
        rows, width = tensor.shape.as_list()[axis - 1 : axis + 1]
        if rows is None or width is None:
            raise ValueError(
                f"rows (axis {axis - 1}) and columns (axis {axis}) must have "
                f"static sizes, but the shape is {tensor.shape}"
            )
        if width < rows:
            raise ValueError(
                f"there are {rows} rows but only {width} columns (shape "
                f"{tensor.shape}, axis {axis}); the last rows have no window"
            )
        shape = get_shape_list(tensor)
        outer, inner = shape[: axis - 1], shape[axis + 1 :]
        # [..., rows * width, ...]
        flat = tf.reshape(tensor, outer + [rows * width] + inner)
        paddings = [[0, 0]] * (len(shape) - 1)
        paddings[axis - 1] = [0, rows]
        # [..., rows * (width + 1), ...]: one element more a row, so that each
        # row starts one further right than the row above.
        flat = tf.pad(flat, paddings)
        # [..., rows, width + 1, ...]
        unskewed = tf.reshape(flat, outer + [rows, width + 1] + inner)
        # [..., rows, width - rows + 1, ...]
        return tf.slice(
            unskewed,
            [0] * len(shape),
            outer + [rows, width - rows + 1] + inner,
        )


def einsum_wrap_ellipses(equation: str, *inputs, **kwargs) -> tf.Tensor:
    """`tf.einsum` with every `...` replaced by letters.

    Its gradient is then made of plain contractions, without the broadcasting
    code that ellipses need. `"...ij,jk->...ik"` on a `[2, 5, 3, 4]` tensor
    becomes `"abij,jk->abik"`.

    Args:
        equation: as in `tf.einsum`; spaces and a missing output are allowed.
        *inputs: tensors; of known rank where their term has an ellipsis.
        **kwargs: passed on to `tf.einsum`.

    Returns:
        The contraction.

    Raises:
        ValueError: the number of terms is not that of the inputs, a rank is
            unknown or too low, or the ellipses stand for different numbers
            of axes.
    """
    equation = equation.replace(" ", "")
    if "..." not in equation:
        return tf.einsum(equation, *inputs, **kwargs)
    terms, arrow, output = equation.partition("->")
    terms = terms.split(",")
    if len(terms) != len(inputs):
        raise ValueError(
            f"the equation '{equation}' has {len(terms)} input terms, but "
            f"{len(inputs)} tensors were given"
        )
    inputs = [tf.convert_to_tensor(tensor) for tensor in inputs]
    num_wrapped = None
    for i, (term, tensor) in enumerate(zip(terms, inputs, strict=True)):
        if "..." not in term:
            continue
        if tensor.shape.rank is None:
            raise ValueError(
                f"input {i} of '{equation}' has an unknown rank, but its term "
                f"'{term}' has an ellipsis"
            )
        num_here = tensor.shape.rank - len(term.replace("...", ""))
        if num_here < 0:
            raise ValueError(
                f"input {i} of '{equation}' has not enough dims: its shape is "
                f"{tensor.shape}, its term '{term}'"
            )
        if num_wrapped is not None and num_here != num_wrapped:
            raise ValueError(
                f"the ellipsis of input {i} of '{equation}' stands for "
                f"{num_here} axes, that of an earlier input for {num_wrapped}"
            )
        num_wrapped = num_here
    if num_wrapped is None:
        raise ValueError(
            f"the output of '{equation}' has an ellipsis, but no input has one"
        )
    used = set(re.sub(r"[^a-zA-Z]", "", equation))
    free = [letter for letter in string.ascii_letters if letter not in used]
    if num_wrapped > len(free):
        raise ValueError(f"not enough unused letters for '{equation}'")
    wrapped = "".join(free[:num_wrapped])
    if not arrow:
        # NumPy's rule for a missing output: the ellipsis, then every letter
        # that occurs once, in alphabetical order.
        letters = "".join(terms).replace(".", "")
        output = "..." + "".join(
            letter
            for letter in sorted(set(letters))
            if letters.count(letter) == 1
        )
    plain = f"{','.join(terms)}->{output}".replace("...", wrapped)
    return tf.einsum(plain, *inputs, **kwargs)


def _normalize_axis(tensor: tf.Tensor, axis: int, name: str = "axis") -> int:
    """Axis counted from the front; ValueError if there is no such axis."""
    rank = tensor.shape.rank
    if rank is None:
        raise ValueError(
            "the tensor's rank is unknown. Set it, for example with "
            "`tf.ensure_shape`"
        )
    if not -rank <= axis < rank:
        raise ValueError(
            f"{name} is {axis}, but the tensor has rank {rank} (shape "
            f"{tensor.shape})"
        )
    return axis % rank


def _describe(tensor: tf.Tensor, name: str | None) -> str:
    """How an error message calls a tensor; eager tensors have no name."""
    if name is not None:
        return f"tensor '{name}'"
    return f"a {tensor.dtype.name} tensor"
