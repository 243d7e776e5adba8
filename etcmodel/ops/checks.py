"""Checks the values of integer inputs: ids, breakpoints, positions.

Wrong values raise a `ValueError` in eager mode. In a graph, they raise a
`tf.errors.InvalidArgumentError` when the graph runs. A graph that XLA compiles
as a whole is not checked.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from etcmodel.ops import tensorflow_internals


class Check(NamedTuple):
    """A rule for each row of a batch.

    Attributes:
        name: name of the input.
        expected: the rule in words, for the error message.
        is_broken: `<bool>[batch]`, true for rows that break the rule.
        found: `<int>[batch]`, a wrong value of each such row, for the message.
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
    """Returns a check that values lie between `low` and `high`, inclusive.

    Args:
        name: the input's name.
        values: `<int>[batch, ...]`.
        low: the smallest allowed value.
        high: an int, or `<int32>[batch]`, not below `low`.
        expected: the rule in words; "expected LOW to HIGH" by default. Needed
            if `high` is a tensor.
        is_used: `<bool>`, shaped as `values`; unused values are not checked.
    """
    expected = expected or f"expected {low} to {high}"
    if values.dtype != tf.int64:
        values = tf.cast(values, tf.int32)
    if is_used is not None:
        values = tf.where(is_used, values, tf.cast(low, values.dtype))
    high = tf.cast(high, values.dtype)
    axes = list(range(1, values.shape.rank))
    # [batch]; an empty row passes: its minimum is the largest integer.
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
    """Returns the tensors; raises an error if a check fails.

    In a graph, the checks run before the returned tensors are used.

    Args:
        checks: checks of one batch.
        example: an example of correct values, for the error message.
        *tensors: the tensors to return.
    """
    if not checks or tensorflow_internals.is_compiled_whole():
        return list(tensors)
    # [1 + checks * batch]; due to the first value, 0 means "all pass".
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
