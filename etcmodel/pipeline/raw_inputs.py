"""Specifications of raw records, and their padding to arrays."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError


class RawInput(NamedTuple):
    """An input of raw records, such as text.

    Attributes:
        dtype: the dtype.
        axes: names of the axes, such as `("records", "paragraphs")`, or fixed
            sizes. Axes with the same name must have the same size in all
            inputs.
    """

    dtype: tf.DType
    axes: Sequence[str | int]

    @property
    def shape(self) -> tf.TensorShape:
        """The static shape; named axes are None."""
        return tf.TensorShape(
            [x if isinstance(x, int) else None for x in self.axes]
        )

    @property
    def spec(self) -> tf.TensorSpec:
        """The `TensorSpec` of the input."""
        return tf.TensorSpec(self.shape, self.dtype)


def assert_same_sizes(
    inputs: Mapping[str, tf.Tensor | tf.RaggedTensor],
    axes: Mapping[str, Sequence[str | int]],
) -> list[tf.Operation]:
    """Asserts that axes with the same name have the same size; graph code.

    Example: `titles`, `[1, 1]`, with the axes `("records", "paragraphs")`, and
    `sentences`, `[1, 2, 3]`, with `("records", "paragraphs", "sentences")` give
    the error "titles and sentences differ in their number of paragraphs: [1]
    [2]".

    Returns:
        The assertions. In eager mode, errors are raised at once and the list is
        empty.
    """
    first, checks = {}, []
    for name, x in inputs.items():
        sizes = (
            x.bounding_shape(out_type=tf.int64)
            if isinstance(x, tf.RaggedTensor)
            else tf.shape(x, tf.int64)
        )
        for i, axis in enumerate(axes[name]):
            if isinstance(axis, int):
                continue
            other, size = first.setdefault(axis, (name, sizes[i]))
            if other != name:
                check = tf.debugging.Assert(
                    tf.equal(size, sizes[i]),
                    [
                        f"The inputs {other} and {name} differ in their "
                        f"number of {axis}:",
                        size,
                        sizes[i],
                    ],
                )
                checks += [] if check is None else [check]
    return checks


def pad_batch(
    raw: Sequence[Mapping[str, Any]], inputs: Mapping[str, RawInput]
) -> dict[str, np.ndarray]:
    """Pads the inputs of several records to arrays.

    Raises a `UserError` if the nesting of an input differs from its axes.
    """
    for i, values in enumerate(raw):
        for name, spec in inputs.items():
            if not _is_nested(values[name], spec.shape.rank - 1):
                raise UserError(_wrong_nesting(i, name, spec, values[name]))
    return {
        name: pad([values[name] for values in raw], spec)
        for name, spec in inputs.items()
    }


def texts_batch(raw: Sequence[Mapping[str, str]]) -> dict[str, np.ndarray]:
    """Converts requests for the signature `text` to arrays of bytes."""
    return {
        name: np.array([to_bytes(values[name]) for values in raw], object)
        for name in raw[0]
    }


def to_bytes(text: str) -> bytes:
    """Encodes a text as UTF-8; lone surrogates become "?"."""
    return text.encode("utf-8", "replace")


def pad(values: Any, spec: RawInput) -> np.ndarray:
    """Pads lists, nested as deep as the input's rank, to an array.

    Pads strings with "", booleans with False and numbers with -1. Example:
    `[["a", "b"], ["c"]]` gives `[[b"a", b"b"], [b"c", b""]]`.
    """
    rank = spec.shape.rank
    sizes = [size or 0 for size in spec.shape]

    def measure(value, level):
        sizes[level] = max(sizes[level], len(value))
        if level + 1 < rank:
            for x in value:
                measure(x, level + 1)

    measure(values, 0)
    is_text = spec.dtype == tf.string
    dtype = object if is_text else spec.dtype.as_numpy_dtype
    nothing = b"" if is_text else dtype(False if dtype is np.bool_ else -1)
    filled = np.full(sizes, nothing, dtype)

    def fill(part, value):
        if part.ndim > 1:
            for x, y in zip(part, value, strict=False):
                fill(x, y)
        elif is_text:
            part[: len(value)] = [to_bytes(x) for x in value]
        else:
            part[: len(value)] = value

    fill(filled, values)
    return filled


def _is_nested(value: Any, depth: int) -> bool:
    """Tells whether a value consists of lists nested to exactly `depth`."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.ndim == depth
    is_list = isinstance(value, list | tuple | np.ndarray)
    if not depth:
        return not is_list and not isinstance(value, dict | set)
    return is_list and all(_is_nested(x, depth - 1) for x in value)


def _wrong_nesting(number: int, name: str, spec: RawInput, value: Any) -> str:
    """Returns the message about an input with the wrong nesting."""
    kind = "text" if spec.dtype == tf.string else spec.dtype.name
    expected = " of ".join([*(f"list ({x})" for x in spec.axes[1:]), kind])
    given = repr(value)
    if len(given) > 60:
        given = f"{given[:57]}..."
    return (
        f"Record {number} of the batch: {name} is {given}. Expected {expected}."
    )
