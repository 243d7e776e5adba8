"""Times the matrix products that attention or a layer needs: their GEMM floor.

The floor of global-local attention, or of a whole layer, is the time of these
products alone, each on random numbers. The local band is split as in the
paper's Appendix A, into blocks of `radius + 1` queries and three blocks of
keys. All projections of an input are one product, and so are the products of
global queries with global and long keys. In a training step, each product
`C = A B` is followed by `dA = dC B^T` and `dB = A^T dC`, without recomputation.

Each product reads its factors from memory and writes its result to memory. Code
that keeps scores in the CPU's cache can be faster than this floor.
"""

import dataclasses
import math
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import measure

MODES = ("graph", "xla")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the attention and of its input.

    `radius` is the number of long tokens that a long token sees to each side.
    There are `relative_vocab_size` labels; all distances beyond
    `relative_pos_max_distance` share a label.
    """

    batch: int
    long_length: int
    global_length: int
    heads: int
    head_size: int
    radius: int
    relative_vocab_size: int
    relative_pos_max_distance: int

    @property
    def hidden_size(self) -> int:
        """Hidden size of the long and the global tokens."""
        return self.heads * self.head_size

    @property
    def num_blocks(self) -> int:
        """Number of blocks of `radius + 1` long tokens in a row."""
        return math.ceil(self.long_length / (self.radius + 1))


class Product(NamedTuple):
    """Shapes of a product of (stacks of) matrices a and b.

    With `transpose_b`, b is transposed.
    """

    name: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    transpose_b: bool = False

    @property
    def flops(self) -> int:
        """Number of additions and multiplications in the forward pass."""
        columns = self.shape_b[-2 if self.transpose_b else -1]
        return 2 * math.prod(self.shape_a) * columns


def attention_products(sizes: Sizes) -> list[Product]:
    """Returns the matrix products of the long queries' attention."""
    block = sizes.radius + 1
    stacks = sizes.batch * sizes.heads
    blocks = stacks * sizes.num_blocks
    size = sizes.head_size
    local = (blocks, 3 * block, size)
    side = (stacks, sizes.global_length, size)
    long = (stacks, sizes.long_length, size)
    return [
        Product("l2l scores", (blocks, block, size), local, True),
        Product("l2l values", (blocks, block, 3 * block), local),
        Product("l2g scores", long, side, True),
        Product("l2g values", (*long[:2], sizes.global_length), side),
        _label_product("long labels", sizes, sizes.long_length),
    ]


def layer_products(
    sizes: Sizes, intermediate_size: int, share_qkv_projections: bool
) -> list[Product]:
    """Returns the matrix products of a whole layer.

    Args:
        sizes: sizes of the attention.
        intermediate_size: inner size of the feed-forward parts.
        share_qkv_projections: whether one query, one key and one value
            projection serve all four pieces, so that each input has 3
            projections rather than 5.
    """
    hidden = sizes.hidden_size
    stacks = sizes.batch * sizes.heads
    all_length = sizes.global_length + sizes.long_length
    queries = (stacks, sizes.global_length, sizes.head_size)
    keys = (stacks, all_length, sizes.head_size)
    products = attention_products(sizes) + [
        Product("global scores", queries, keys, True),
        Product("global values", (*queries[:2], all_length), keys),
        _label_product("global labels", sizes, sizes.global_length),
    ]
    num_projections = 3 if share_qkv_projections else 5
    for stream in ("long", "global"):
        rows = sizes.batch * getattr(sizes, f"{stream}_length")
        for name, inner, outer in (
            ("projections", hidden, num_projections * hidden),
            ("output projection", hidden, hidden),
            ("feed-forward in", hidden, intermediate_size),
            ("feed-forward out", intermediate_size, hidden),
        ):
            products.append(
                Product(f"{stream} {name}", (rows, inner), (inner, outer))
            )
    return products


def _label_product(name, sizes, length):
    """Returns the product of queries with all label vectors.

    All rows of a batch share the label vectors.
    """
    heads, size = sizes.heads, sizes.head_size
    labels = (heads, sizes.relative_vocab_size, size)
    return Product(name, (heads, sizes.batch * length, size), labels, True)


class Floor:
    """Times a list of products.

    The floor is the sum of the medians of all products. The overhead of a call
    is subtracted from each product, and counted once.

    Args:
        products: the products.
        dtype: dtype of the factors.
        with_gradients: whether to also time the products of the gradients.

    Attributes:
        steps: (mode, product) -> step to time.
    """

    def __init__(
        self, products: Sequence[Product], dtype: str, with_gradients: bool
    ):
        self._products = [Product("call", (1, 1), (1, 1)), *products]
        self._dtype = dtype
        self._with_gradients = with_gradients
        self.steps: dict[Hashable, measure.Step] = {
            (mode, product): self._make_step(mode, product)
            for mode in MODES
            for product in self._products
        }

    def _make_step(self, mode: str, product: Product) -> measure.Step:
        a, b = (
            tf.cast(tf.random.uniform(shape, -1.0, 1.0), self._dtype)
            for shape in (product.shape_a, product.shape_b)
        )

        @tf.function(jit_compile=mode == "xla")
        def multiply(a, b):
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                c = tf.matmul(a, b, transpose_b=product.transpose_b)
            if not self._with_gradients:
                return c
            return c, tape.gradient(c, [a, b], output_gradients=c)

        return lambda: multiply(a, b)

    def evaluate(
        self, milliseconds: Mapping[Hashable, Sequence[float]]
    ) -> dict[str, dict[str, Any]]:
        """Computes the floor from the times of the steps.

        Args:
            milliseconds: key of a step -> its times.

        Returns:
            Mode -> `median_ms`, `gflop`, `gflop_per_s`, and `products`: a list
            of dicts with `name` and the same fields for each product.
        """
        floors = {}
        for mode in MODES:
            call, *times = (
                float(np.median(milliseconds[mode, x])) for x in self._products
            )
            products = [
                # The smallest products take less time than the clock's jitter.
                {"name": x.name} | self._rate(max(time - call, 1e-6), [x])
                for x, time in zip(self._products[1:], times, strict=True)
            ]
            total = call + sum(x["median_ms"] for x in products)
            floors[mode] = self._rate(total, self._products[1:])
            floors[mode]["products"] = products
        return floors

    def _rate(self, milliseconds, products):
        passes = 3 if self._with_gradients else 1
        flops = passes * sum(x.flops for x in products)
        return {
            "median_ms": milliseconds,
            "gflop": flops / 1e9,
            "gflop_per_s": flops / 1e6 / milliseconds,
        }
