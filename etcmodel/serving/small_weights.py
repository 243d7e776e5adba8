"""Stores large weights as bfloat16 or int8, and reads them as float32.

A SavedModel then takes about a half or a quarter of the space. The graph
converts the weights whenever it reads them, and computes in float32.
"""

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from etcmodel.errors import UserError

# Minimum number of elements of a rounded matrix. Smaller matrices, biases and
# normalizations stay float32.
_MIN_SIZE = 4096
_MAX_INT8 = 127


class Stored(NamedTuple):
    """A rounded matrix.

    Attributes:
        value: `<bfloat16 or int8>[...]`.
        scale: factors of the int8 values, `<float32>[...]`; axes that share a
            factor have size 1. None for bfloat16.
    """

    value: np.ndarray
    scale: np.ndarray | None


def is_stored_small(variable: tf.Variable) -> bool:
    """Returns whether a weight is large enough to be rounded."""
    shape = variable.shape
    return (
        shape.rank > 1
        and shape.num_elements() >= _MIN_SIZE
        and variable.dtype == tf.float32
    )


def round_matrix(name: str, matrix: np.ndarray, kind: str) -> Stored:
    """Rounds a matrix; for int8, with one scale per output.

    Each scale maps the largest absolute value of its output to 127. A table has
    one output per row; other matrices have one per index of the last axis.

    Args:
        name: name of the weight; the name of a table ends in `table` or
            `embeddings`.
        matrix: `<float32>[...]`.
        kind: "bfloat16" or "int8".

    Raises:
        UserError: the matrix has values that are not finite.
    """
    if not np.isfinite(matrix).all():
        raise UserError(
            f"The weight {name} has values that are not finite, so the "
            "checkpoint gives no answers. Choose another `checkpoint`."
        )
    if kind == "bfloat16":
        return Stored(matrix.astype(tf.bfloat16.as_numpy_dtype), None)
    # Kernels sum over all axes but the last.
    axes = tuple(range(matrix.ndim - 1))
    if _is_table(name):
        axes = (matrix.ndim - 1,)
    largest = np.abs(matrix).max(axes, keepdims=True)
    scale = np.where(largest > 0, largest, 1) / np.float32(_MAX_INT8)
    # The quotient can exceed the limit if the scale is a subnormal number.
    whole = np.rint(matrix / scale).clip(-_MAX_INT8, _MAX_INT8)
    return Stored(whole.astype(np.int8), scale.astype(np.float32))


def _is_table(name: str) -> bool:
    """Returns whether a weight is looked up by row."""
    return name.partition(":")[0].endswith(("table", "embeddings"))


def restore(stored: Stored) -> np.ndarray:
    """Returns the float32 matrix that the graph computes with."""
    value = stored.value.astype(np.float32)
    return value if stored.scale is None else value * stored.scale


def round_weights(variables: Sequence[tf.Variable], kind: str) -> None:
    """Rounds variables in place, as an export rounds their copies."""
    for variable in variables:
        if kind != "float32" and is_stored_small(variable):
            stored = round_matrix(variable.name, variable.numpy(), kind)
            variable.assign(restore(stored))


def num_bytes(variables: Sequence[tf.Variable]) -> int:
    """Returns the size of the values of variables, in bytes."""
    return sum(x.shape.num_elements() * x.dtype.size for x in variables)


class SmallWeights:
    """Rounded copies of variables, which graphs read instead of them.

    Args:
        variables: the model's variables; they stay unchanged.
        kind: "float32", which changes nothing, "bfloat16" or "int8".

    Attributes:
        variables: the variables to save.
    """

    def __init__(self, variables: Sequence[tf.Variable], kind: str):
        self.variables: list[tf.Variable] = []
        self._readers = []
        for variable in variables:
            if kind == "float32" or not is_stored_small(variable):
                self.variables.append(variable)
                continue
            stored = round_matrix(variable.name, variable.numpy(), kind)
            reader = _Reader(stored)
            self.variables += reader.variables
            self._readers.append((variable, reader))

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Makes graphs that are traced in a with block read the copies."""
        with contextlib.ExitStack() as stack:
            for variable, reader in self._readers:
                stack.enter_context(_replaced(variable, reader))
            yield


class _Reader:
    """Reads a rounded matrix as float32; graph code."""

    def __init__(self, stored: Stored):
        self._value = tf.Variable(stored.value, trainable=False)
        self.variables = [self._value]
        self._scale = None
        if stored.scale is not None:
            self._scale = tf.Variable(stored.scale, trainable=False)
            self.variables.append(self._scale)

    def value(self) -> tf.Tensor:
        """Returns the whole matrix."""
        value = tf.cast(self._value, tf.float32)
        return value if self._scale is None else value * self._scale

    def sparse_read(self, indices, name=None) -> tf.Tensor:
        """Returns the rows at `indices`; converts only these."""
        rows = tf.cast(tf.gather(self._value, indices), tf.float32)
        if self._scale is None:
            return tf.identity(rows, name)
        # A kernel has the same scales for all rows.
        is_same = self._scale.shape[0] == 1
        scale = self._scale[0] if is_same else tf.gather(self._scale, indices)
        return tf.multiply(rows, scale, name)


@contextlib.contextmanager
def _replaced(variable: tf.Variable, reader: _Reader) -> Iterator[None]:
    """Makes a variable's read methods return the reader's values."""
    # TensorFlow's conversions and operators all call these methods. Saving
    # fails if a graph reads the variable itself, since it is not saved.
    methods = {
        "value": reader.value,
        "read_value": reader.value,
        "read_value_no_copy": reader.value,
        "sparse_read": reader.sparse_read,
    }
    vars(variable).update(methods)
    try:
        yield
    finally:
        for name in methods:
            del vars(variable)[name]
