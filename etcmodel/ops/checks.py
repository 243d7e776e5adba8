"""Checks of hand-written numbers: ids, breakpoints, positions.

In eager mode, wrong values raise a `ValueError`. In a graph they raise a
`tf.errors.InvalidArgumentError` when the graph runs, unless XLA compiles the
whole graph, which then raises nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from etcmodel.ops import tensorflow_internals


class Check(NamedTuple):
    """A rule for each row of a batch.

    Attributes:
        name: the input that must follow the rule.
        expected: the values it must have.
        is_broken: `<bool>[batch]`.
        found: `<int>[batch]`, the value found instead.
    """

    name: str
    expected: str
    is_broken: tf.Tensor
    found: tf.Tensor


def in_range(
    name: str,
    values: tf.Tensor,
    low: int,
    high: int | tf.Tensor,
    expected: str | None = None,
    is_used: tf.Tensor | None = None,
) -> Check:
    """Checks that values are from `low` to `high`, both included.

    Args:
        name: the input's name.
        values: `<int>[batch, ...]`.
        low: the smallest allowed value.
        high: an int, or `<int32>[batch]`, not below `low`.
        expected: by default "expected LOW to HIGH" for an int.
        is_used: `<bool>`, like `values`; unused values can be anything.
    """
    expected = expected or f"expected {low} to {high}"
    if values.dtype != tf.int64:
        values = tf.cast(values, tf.int32)
    if is_used is not None:
        values = tf.where(is_used, values, tf.cast(low, values.dtype))
    high = tf.cast(high, values.dtype)
    axes = list(range(1, values.shape.rank))
    # [batch]; the minimum of no values is the greatest integer.
    least, most = tf.reduce_min(values, axes), tf.reduce_max(values, axes)
    return Check(
        name,
        expected,
        (least < low) | (most > high),
        tf.where(least < low, least, most),
    )


def guard(
    checks: Sequence[Check], example: str, *tensors: tf.Tensor | None
) -> list[tf.Tensor | None]:
    """Returns tensors that exist only if all checks pass.

    Args:
        checks: checks of one batch.
        example: correct values, for the error.
        *tensors: the tensors to return.
    """
    if not checks or tensorflow_internals.is_compiled_whole():
        return list(tensors)
    # [1 + checks * batch]; the first is the value if nothing is wrong
    is_broken = tf.concat([[False], *(x.is_broken for x in checks)], axis=0)
    first = tf.argmax(tf.cast(is_broken, tf.int32), output_type=tf.int32)
    if tf.executing_eagerly() and first == 0:
        return list(tensors)
    sizes = tf.stack([tf.size(x.is_broken) for x in checks])
    ends = tf.cumsum(sizes)
    number = tf.reduce_sum(tf.cast(ends < first, tf.int32))
    row = first - 1 - tf.gather(ends - sizes, number)
    found = tf.concat(
        [[0], *(tf.cast(x.found, tf.int32) for x in checks)], axis=0
    )
    found = found[first]
    if tf.executing_eagerly():
        check = checks[int(number)]
        raise ValueError(
            f"{check.name} is {int(found)} in row {int(row)} of the batch: "
            f"{check.expected}.\n{example}"
        )
    rules = tf.constant([f"{x.name}: {x.expected}." for x in checks])
    data = [
        tf.gather(rules, number),
        "Row of the batch:",
        row,
        "It has:",
        found,
        example,
    ]
    with tf.control_dependencies([tf.debugging.Assert(first == 0, data)]):
        return [None if x is None else tf.identity(x) for x in tensors]
