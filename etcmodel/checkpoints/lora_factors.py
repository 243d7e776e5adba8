"""Merges LoRA's factors, which checkpoints store beside frozen kernels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from etcmodel.layers.lora import FACTORS


def names_of(kernel: str) -> list[str]:
    """Returns the names of a kernel's factors; [] for other weights."""
    owner, _, last = kernel.rpartition("/")
    return [f"{owner}/{x}" for x in FACTORS] if last == "kernel" else []


def split(
    weights: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, list]]:
    """Separates factors from other weights.

    Args:
        weights: name -> weight.

    Returns:
        The weights that are no factors, and the factors: name of the kernel ->
        `a` and `b`.
    """
    plain = {
        name: weight
        for name, weight in weights.items()
        if name.rpartition("/")[2] not in FACTORS
    }
    pairs = {name: names_of(name) for name in plain}
    return plain, {
        name: [weights[x] for x in pair]
        for name, pair in pairs.items()
        if pair and weights.keys() >= {*pair}
    }


def merge(kernel, *factors) -> np.ndarray:
    """Returns a kernel plus the product of its factors, if it has any."""
    kernel = np.asarray(kernel)
    if not factors:
        return kernel
    a, b = map(np.asarray, factors)
    return kernel + a @ b


def merge_in_place(weights: Mapping[str, tf.Variable]) -> None:
    """Adds the products of factors to the kernels, and makes them zero.

    Args:
        weights: name -> weight, with the factors.
    """
    _, factors = split(weights)
    for name, pair in factors.items():
        weights[name].assign(merge(weights[name], *pair))
    restart(factors)


def restart(factors: Mapping[str, list[tf.Variable]]) -> None:
    """Sets the products of factors to zero; see `split`."""
    for _, b in factors.values():
        b.assign(tf.zeros_like(b))


def rank_of(shapes: Mapping[str, list[int]]) -> int:
    """Returns the LoRA rank of a run's checkpoint; 0 without LoRA.

    Args:
        shapes: name of a variable -> its shape.
    """
    end = f"/{FACTORS[0]}/.ATTRIBUTES/VARIABLE_VALUE"
    return next((y[-1] for x, y in shapes.items() if x.endswith(end)), 0)
