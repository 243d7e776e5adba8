"""Alternates matrix products and activations, a chunk of rows at a time.

The tensor between two products is several times as wide as the input. A chunk
of it fits into a CPU's cache, and a forward pass without gradients never holds
more. For a backward pass, only the inputs of activations are kept.
"""

from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from etcmodel.ops import custom_gradients
from etcmodel.ops import recompute
from etcmodel.ops import shapes
from etcmodel.ops import shared_graphs
from etcmodel.ops.attention import blocks
from etcmodel.ops.attention import softmax
from etcmodel.ops.attention import streaming


@shared_graphs.shared
def apply(
    rows: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    activation: Callable,
    keep: bool = True,
    factors: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """Applies dense layers in sequence, with an activation between them.

    Args:
        rows: `<float>[rows, size]`.
        kernels: `<float>[size, units]` of each layer, of the same dtype.
        biases: `<float>[units]` of each layer, or None for no biases.
        activation: function without variables, applied to each row separately.
        keep: whether to keep all inputs of activations for the gradients.
            Otherwise the backward pass computes them again.
        factors: two factors of each kernel's update (see `product`), or none.
            With factors, kernels and biases are frozen and get no gradients.
    """

    def chain(rows, *weights, frozen=()):
        run = _Chain(rows, weights, frozen, len(kernels), activation)
        output, inner = run.forward(keep)
        return output, lambda d_output: run.backward(inner, d_output)

    def plain(rows, *weights, frozen=()):
        run = _Chain(rows, weights, frozen, len(kernels), activation)
        return run.products(rows)

    call = custom_gradients.custom_gradient(chain, plain)
    if not factors:
        return call(rows, *kernels, *biases)
    return call(
        rows,
        *factors,
        frozen=[tf.stop_gradient(x) for x in [*kernels, *biases]],
    )


def product(
    rows: tf.Tensor, kernel: tf.Tensor, factors: Sequence[tf.Tensor] = ()
) -> tf.Tensor:
    """Multiplies rows by a kernel, to which LoRA may add `a @ b`.

    The sum is not computed, since two thin products cost less.

    Args:
        rows: `<float>[rows, size]`.
        kernel: `<float>[size, units]`.
        factors: `a` and `b`, `<float>[size, rank]` and `<float>[rank, units]`;
            or nothing.
    """
    result = tf.matmul(rows, kernel)
    if factors:
        a, b = factors
        result += tf.matmul(tf.matmul(rows, a), b)
    return result


class _Chain:
    """Dense layers whose `weights` are trained.

    These are the kernels and biases; or, if those are `frozen`, the factors of
    the kernels' updates.
    """

    def __init__(self, rows, weights, frozen, num_layers, activation):
        self.rows = rows
        self.weights = weights
        fixed = frozen or weights
        self.kernels = fixed[:num_layers]
        self.biases = fixed[num_layers:]
        self.has_factors = bool(frozen)
        self.activation = activation
        widest = max(kernel.shape[1] for kernel in self.kernels)
        self.num_rows = shapes.get_shape_list(rows)[0]
        self.chunk, self.num_chunks, self.num_rest = plan_rows(
            self.num_rows, widest
        )

    def _after_chunks(self, rows):
        """Returns the rows after the last chunk; None if known to be empty."""
        is_known = isinstance(self.num_rest, int)
        if is_known and self.num_chunks and not self.num_rest:
            return None
        return softmax.part(
            rows, 0, self.chunk * self.num_chunks, self.num_rest
        )

    def _cut(self, rows, index):
        if isinstance(self.num_rows, int):
            return softmax.part(rows, 0, index * self.chunk, self.chunk)
        # With fewer rows than in a chunk, the loop never runs, but XLA still
        # compiles it and checks this slice.
        size = tf.minimum(self.chunk, self.num_rows)
        rows = softmax.part(rows, 0, index * size, size)
        # `jit_if_large` compiles functions only for static shapes.
        rows.set_shape([self.chunk, *rows.shape[1:]])
        return rows

    def _factors(self, i):
        return self.weights[2 * i : 2 * i + 2] if self.has_factors else ()

    def products(self, rows):
        """Returns the output of all layers for some rows."""
        return self._products(rows)[-1]

    def _products(self, rows, first=0):
        """Returns the outputs of layer `first` and all later layers."""
        results = []
        for i in range(first, len(self.kernels)):
            # [rows, units]
            rows = product(
                self.activation(rows) if i else rows,
                self.kernels[i],
                self._factors(i),
            )
            if self.biases:
                rows = tf.nn.bias_add(rows, self.biases[i])
            results.append(rows)
        return results

    def _gradients(self, rows, inner, d_rows, sums):
        """Returns the rows' gradient; adds the weights' gradients to `sums`."""
        sums = list(sums)
        sources = [rows, *inner]
        for i in reversed(range(len(self.kernels))):
            with tf.GradientTape() as tape:
                tape.watch(sources[i])
                source = self.activation(sources[i]) if i else sources[i]
            changed, d_inner = self._add_gradients(i, source, d_rows, sums)
            # One layer after the other, so that fewer tensors exist at a time.
            with tf.control_dependencies(changed):
                # [rows, size]
                d_rows = tf.matmul(d_rows, self.kernels[i], transpose_b=True)
            if d_inner is not None:
                a, _ = self._factors(i)
                d_rows = d_rows + tf.matmul(d_inner, a, transpose_b=True)
            if i:
                d_rows = tape.gradient(
                    source,
                    sources[i],
                    d_rows,
                    tf.UnconnectedGradients.ZERO,
                )
        return d_rows, sums

    def _add_gradients(self, i, source, d_rows, sums):
        """Adds the gradients of layer `i`'s weights to `sums`.

        Returns the changed sums, and with factors, `d_rows` times `b`.
        """

        def add(index, of_rows, d_rows):
            # [size, units]
            sums[index] += softmax.to_score_dtype(
                tf.matmul(of_rows, d_rows, transpose_a=True)
            )

        if self.has_factors:
            a, b = self._factors(i)
            # [rows, rank]
            d_inner = tf.matmul(d_rows, b, transpose_b=True)
            add(2 * i, source, d_inner)
            add(2 * i + 1, tf.matmul(source, a), d_rows)
            return sums[2 * i : 2 * i + 2], d_inner
        if self.biases:
            sums[len(self.kernels) + i] += tf.reduce_sum(
                softmax.to_score_dtype(d_rows), axis=0
            )
        add(i, source, d_rows)
        return [sums[i]], None

    def forward(self, keep):
        """Computes the output and, with `keep`, the inputs of activations."""
        source, first = self.rows, 0
        if keep:
            # The first product is kept for all rows anyway, so it is computed
            # for all rows together.
            # [rows, units]
            source = product(source, self.kernels[0], self._factors(0))
            first = 1
            if self.biases:
                source = tf.nn.bias_add(source, self.biases[0])

        def results(rows):
            found = self._products(rows, first)
            return found if keep else found[-1:]

        def body(index, *arrays):
            return [
                array.write(index, x)
                for array, x in zip(
                    arrays, results(self._cut(source, index)), strict=True
                )
            ]

        arrays = streaming.loop(
            self.num_chunks,
            body,
            [
                tf.TensorArray(self.rows.dtype, self.num_chunks)
                for _ in self.kernels[1 if keep else -1 :]
            ],
        )
        rest = self._after_chunks(source)
        rest = [None] * len(arrays) if rest is None else results(rest)
        *inner, output = map(self._join, arrays, rest)
        return output, [source, *inner] if keep else None

    def backward(self, inner, d_output):
        """Computes gradients of the rows and of the weights."""

        def gradients(cut, again, sums):
            rows = cut(self.rows)
            if inner is None:
                of_rows = self._products(again(rows))[:-1]
            else:
                of_rows = [again(cut(x)) for x in inner]
            return self._gradients(rows, of_rows, cut(d_output), sums)

        sums = [
            tf.zeros_like(x, softmax.score_dtype(x.dtype)) for x in self.weights
        ]
        d_rest = None
        if self._after_chunks(self.rows) is not None:
            # The zero makes the recomputation depend on the incoming gradients.
            # Otherwise a compiler would merge it with the forward pass and keep
            # the result (inside a loop, it does not).
            zero = recompute.zero_that_depends_on(d_output)
            d_rest, sums = gradients(
                self._after_chunks, lambda x: x + tf.cast(zero, x.dtype), sums
            )

        def body(index, d_rows, *sums):
            d_chunk, sums = gradients(
                lambda x: self._cut(x, index), lambda x: x, sums
            )
            return [d_rows.write(index, d_chunk), *sums]

        d_rows, *sums = streaming.loop(
            self.num_chunks,
            body,
            [tf.TensorArray(self.rows.dtype, self.num_chunks), *sums],
        )
        return [
            self._join(d_rows, d_rest),
            *[
                tf.cast(total, x.dtype)
                for total, x in zip(sums, self.weights, strict=True)
            ],
        ]

    def _join(self, array, rest):
        if isinstance(self.num_chunks, int) and self.num_chunks == 0:
            return rest
        # [chunks, chunk, units]
        stacked = array.stack()
        # [chunks * chunk, units]
        joined = tf.reshape(
            stacked, [self.num_chunks * self.chunk, stacked.shape[-1]]
        )
        return joined if rest is None else tf.concat([joined, rest], axis=0)


def plan_rows(num_rows, width: int):
    """Cuts rows into chunks of equal size.

    If a chunk may hold 1,000 rows, 2,500 rows make 3 chunks of 833, and one row
    is left over. Up to 1,000 rows make no chunk; all are left over. `width` is
    the size of the widest layer.

    Returns:
        The rows per chunk (an int), the number of chunks, and the number of
        rows left over. The last two are ints if `num_rows` is an int.
    """
    max_rows = max(streaming.CHUNK_ELEMENTS // width, 1)
    if not isinstance(num_rows, int):
        num_chunks = num_rows // max_rows
        return max_rows, num_chunks, num_rows - max_rows * num_chunks
    num_chunks = blocks.ceil_div(num_rows, max_rows)
    if num_chunks <= 1:
        return max_rows, 0, num_rows
    chunk = num_rows // num_chunks
    return chunk, num_chunks, num_rows - chunk * num_chunks
