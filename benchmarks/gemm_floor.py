"""The matrix products that no implementation can avoid, and their time.

A floor for global-local attention and for a whole layer: each product on its
own, on random numbers, and nothing else. The local band is cut as in the
paper's Appendix A, blocks of `radius + 1` queries against three blocks of keys.
Projections of one input are one product, and global queries meet global and
long keys in one.

In a training step each product `C = A B` is followed by `dA = dC B^T` and
`dB = A^T dC`; nothing is computed a second time.

Each product reads its factors from memory and writes its result there. Code
that keeps scores in a cache, and never writes them, may be faster than that.
"""

import dataclasses
import math
from collections.abc import Callable
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

    `radius` is the number of long tokens that a long token sees to each side;
    there are `relative_vocab_size` labels, and distances beyond
    `relative_pos_max_distance` have the same one.
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
        """Size of all heads together, and of both streams."""
        return self.heads * self.head_size

    @property
    def num_blocks(self) -> int:
        """Blocks of `radius + 1` long tokens in a row."""
        return math.ceil(self.long_length / (self.radius + 1))


class Product(NamedTuple):
    """A product of two (stacks of) matrices.

    Shapes are those of the factors as they are stored; `transpose_a` and
    `transpose_b` swap their last two axes.
    """

    name: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def shape_c(self) -> tuple[int, ...]:
        """Shape of the result."""
        rows = self.shape_a[-1 if self.transpose_a else -2]
        columns = self.shape_b[-2 if self.transpose_b else -1]
        return (*self.shape_a[:-2], rows, columns)

    @property
    def flops(self) -> int:
        """Additions and multiplications."""
        inner = self.shape_a[-2 if self.transpose_a else -1]
        return 2 * inner * math.prod(self.shape_c)

    def gradients(self) -> list["Product"]:
        """Returns the two products of the backward pass."""
        if self.transpose_a:
            raise ValueError(f"{self.name}: no gradients with transpose_a")
        a, b, c = self.shape_a, self.shape_b, self.shape_c
        names = f"{self.name}, dA", f"{self.name}, dB"
        if self.transpose_b:
            return [
                Product(names[0], c, b),
                Product(names[1], c, a, transpose_a=True),
            ]
        return [
            Product(names[0], c, b, transpose_b=True),
            Product(names[1], a, c, transpose_a=True),
        ]


def with_gradients(products: Sequence[Product]) -> list[Product]:
    """Adds the products of the backward pass."""
    return [p for product in products for p in (product, *product.gradients())]


def attention_products(sizes: Sizes) -> list[Product]:
    """Returns products of the long queries' attention, forward."""
    block = sizes.radius + 1
    blocks = sizes.batch * sizes.heads * sizes.num_blocks
    stacks = sizes.batch * sizes.heads
    size = sizes.head_size
    local = (blocks, 3 * block, size)
    side = (stacks, sizes.global_length, size)
    long = (stacks, sizes.long_length, size)
    return [
        Product("l2l scores", (blocks, block, size), local, transpose_b=True),
        Product("l2l values", (blocks, block, 3 * block), local),
        Product("l2g scores", long, side, transpose_b=True),
        Product("l2g values", (*long[:2], sizes.global_length), side),
        _label_product("long labels", sizes, sizes.long_length),
    ]


def layer_products(
    sizes: Sizes, intermediate_size: int, share_qkv_projections: bool
) -> list[Product]:
    """Returns products of a whole layer, forward.

    Args:
        sizes: sizes of the attention.
        intermediate_size: inner size of the feed-forward parts.
        share_qkv_projections: whether one query, one key and one value
            projection serve all four pieces, so that each input has 3
            projections rather than 5.

    Returns:
        Those of `attention_products`, of the global queries, and of everything
        that each stream has for itself.
    """
    hidden = sizes.hidden_size
    stacks = sizes.batch * sizes.heads
    all_length = sizes.global_length + sizes.long_length
    queries = (stacks, sizes.global_length, sizes.head_size)
    keys = (stacks, all_length, sizes.head_size)
    products = attention_products(sizes) + [
        Product("global scores", queries, keys, transpose_b=True),
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
    """Queries with all label vectors, which the rows of a batch share."""
    heads, size = sizes.heads, sizes.head_size
    return Product(
        name,
        (heads, sizes.batch * length, size),
        (heads, sizes.relative_vocab_size, size),
        transpose_b=True,
    )


class Floor:
    """Times a list of products.

    The floor is the sum of the medians of all products. As one function makes
    all of them in a single call, what a call takes without any work counts
    once.

    Attributes:
        products: the products.
        steps: what to time, by name: each product, those of equal shapes once,
            in both modes.
    """

    def __init__(self, products: Sequence[Product], dtype: str):
        self.products = list(products)
        self._dtype = dtype
        self._factors = {}
        self.steps: dict[Hashable, measure.Step] = {
            _step_name(mode, product): self._make_step(mode, product)
            for mode in MODES
            for product in [_NO_WORK, *self.products]
        }

    def _make_step(self, mode: str, product: Product) -> Callable[[], Any]:
        a, b = self._factor(product.shape_a), self._factor(product.shape_b)

        @tf.function(jit_compile=mode == "xla")
        def multiply(a, b):
            return tf.matmul(
                a,
                b,
                transpose_a=product.transpose_a,
                transpose_b=product.transpose_b,
            )

        return lambda: multiply(a, b)

    def _factor(self, shape: tuple[int, ...]) -> tf.Tensor:
        if shape not in self._factors:
            self._factors[shape] = tf.cast(
                tf.random.uniform(shape, -1.0, 1.0), self._dtype
            )
        return self._factors[shape]

    def evaluate(
        self, milliseconds: Mapping[Hashable, Sequence[float]]
    ) -> dict[str, dict[str, Any]]:
        """Computes the floor from the times of the steps.

        Args:
            milliseconds: of each step; other names do not matter.

        Returns:
            For each mode `median_ms`, `gflop`, `gflop_per_s`, and `products`
            with `name` and these same fields of each product, without the
            call.
        """

        def median(mode, product):
            times = milliseconds[_step_name(mode, product)]
            return float(np.median(times))

        floors = {}
        for mode in MODES:
            call = median(mode, _NO_WORK)
            products = []
            for product in self.products:
                # The smallest ones are no longer than the clock's jitter.
                alone = max(median(mode, product) - call, 1e-6)
                products.append(
                    {"name": product.name} | _rate(alone, product.flops)
                )
            floors[mode] = _rate(
                call + sum(p["median_ms"] for p in products),
                sum(product.flops for product in self.products),
            )
            floors[mode]["products"] = products
        return floors


_NO_WORK = Product("call", (1, 1), (1, 1))


def _step_name(mode, product):
    """Products that differ in name only are one step."""
    return ("floor", mode, *product[1:])


def _rate(milliseconds, flops):
    return {
        "median_ms": milliseconds,
        "gflop": flops / 1e9,
        "gflop_per_s": flops / 1e6 / milliseconds,
    }
