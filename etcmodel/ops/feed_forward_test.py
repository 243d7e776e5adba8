from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from etcmodel.ops import feed_forward
from etcmodel.ops.attention import streaming


def _second_derivatives(tensors, jit_compile):
    """Returns a function that differentiates a function's slopes."""

    @tf.function(autograph=False, jit_compile=jit_compile)
    def second(function):
        with tf.GradientTape() as outer:
            outer.watch(tensors)
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                value = tf.reduce_sum(tf.sin(function(*tensors)))
            slopes = tape.gradient(value, tensors)
            total = tf.add_n([tf.reduce_sum(x**2) for x in slopes])
        return outer.gradient(total, tensors)

    return second


class DenseChainTest(tf.test.TestCase, parameterized.TestCase):
    def _tensors(self, num_rows, sizes, dtype=np.float64):
        generator = np.random.default_rng(1)

        def draw(*shape):
            return tf.constant(generator.normal(size=shape).astype(dtype))

        pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
        return (
            draw(num_rows, sizes[0]),
            [draw(*pair) for pair in pairs],
            [draw(size) for _, size in pairs],
        )

    def _expected(self, rows, kernels, biases, upstream):
        """Computes output and gradients of tanh layers with NumPy."""
        rows, upstream = rows.numpy(), upstream.numpy()
        kernels = [x.numpy() for x in kernels]
        sources, output = [], rows
        for i, kernel in enumerate(kernels):
            sources.append(np.tanh(output) if i else output)
            output = sources[-1] @ kernel
            if biases:
                output = output + biases[i].numpy()
        d_kernels, d_biases, d_rows = [], [], upstream
        for i in reversed(range(len(kernels))):
            d_biases.insert(0, d_rows.sum(0))
            d_kernels.insert(0, sources[i].T @ d_rows)
            d_rows = d_rows @ kernels[i].T
            if i:
                d_rows = d_rows * (1 - sources[i] ** 2)
        return output, [d_rows, *d_kernels, *(d_biases if biases else [])]

    @parameterized.product(
        (
            # A chunk holds up to 5 rows of the widest layer.
            {"num_rows": 3, "sizes": (2, 4, 3)},
            {"num_rows": 10, "sizes": (2, 4, 3)},
            {"num_rows": 13, "sizes": (2, 4, 3, 1)},
            {"num_rows": 0, "sizes": (2, 4, 3)},
        ),
        has_biases=(True, False),
        keep=(True, False),
        how=("eager", "graph", "unknown_length", "xla", "xla_unknown_length"),
    )
    def test_output_and_gradients(self, num_rows, sizes, has_biases, keep, how):
        rows, kernels, biases = self._tensors(num_rows, sizes)
        biases = biases if has_biases else []
        upstream = self._tensors(num_rows, sizes[::-1])[0]

        def step(rows, upstream):
            tensors = [rows, *kernels, *biases]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output = feed_forward.apply(
                    rows, kernels, biases, tf.tanh, keep
                )
            return output, tape.gradient(output, tensors, upstream)

        if how != "eager":
            length = None if "unknown" in how else num_rows
            step = tf.function(
                step,
                jit_compile="xla" in how,
                input_signature=[
                    tf.TensorSpec([length, size], tf.float64)
                    for size in (sizes[0], sizes[-1])
                ],
            )
        with mock.patch.object(streaming, "CHUNK_ELEMENTS", 20):
            output, gradients = step(rows, upstream)
        expected, expected_gradients = self._expected(
            rows, kernels, biases, upstream
        )
        self.assertAllClose(expected, output, 1e-12, 1e-12)
        for x, y in zip(expected_gradients, gradients, strict=True):
            self.assertAllClose(x, y, 1e-12, 1e-12)

    @parameterized.product(
        num_rows=(3, 13),
        keep=(True, False),
        how=("eager", "graph", "xla_unknown_length"),
    )
    def test_gradients_of_factors(self, num_rows, keep, how):
        """Gradients are projections of those of the whole kernels."""
        sizes = (2, 4, 3)
        rows, kernels, biases = self._tensors(num_rows, sizes)
        upstream = self._tensors(num_rows, sizes[::-1])[0]
        draw = np.random.default_rng(2).normal
        # Of rank 2.
        pairs = [
            (draw(size=[x, 2]), draw(size=[2, y])) for x, y in ((2, 4), (4, 3))
        ]
        factors = [tf.constant(x) for pair in pairs for x in pair]

        def step(rows, upstream):
            tensors = [rows, *factors, *kernels, *biases]
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output = feed_forward.apply(
                    rows, kernels, biases, tf.tanh, keep, factors
                )
            found = tape.gradient(output, tensors, upstream)
            self.assertEqual([None] * 4, found[5:])
            return output, found[:5]

        if how != "eager":
            step = tf.function(
                step,
                jit_compile="xla" in how,
                input_signature=[
                    tf.TensorSpec(
                        [None if "unknown" in how else num_rows, size],
                        tf.float64,
                    )
                    for size in (2, 3)
                ],
            )
        with mock.patch.object(streaming, "CHUNK_ELEMENTS", 20):
            output, (d_rows, *found) = step(rows, upstream)
        merged = [x + a @ b for x, (a, b) in zip(kernels, pairs, strict=True)]
        expected, (expected_d_rows, *d_kernels) = self._expected(
            rows, merged, biases, upstream
        )
        self.assertAllClose(expected, output, 1e-12, 1e-12)
        self.assertAllClose(expected_d_rows, d_rows, 1e-12, 1e-12)
        for i, (a, b) in enumerate(pairs):
            self.assertAllClose(d_kernels[i] @ b.T, found[2 * i], 1e-12, 1e-12)
            self.assertAllClose(
                a.T @ d_kernels[i], found[2 * i + 1], 1e-12, 1e-12
            )

    @parameterized.parameters(True, False)
    def test_second_derivatives_of_chunks(self, keep):
        rows, kernels, biases = self._tensors(7, (2, 4, 3))
        tensors = [rows, *kernels, *biases]

        def chunks(rows, k0, k1, b0, b1):
            return feed_forward.apply(rows, [k0, k1], [b0, b1], tf.tanh, keep)

        def formula(rows, k0, k1, b0, b1):
            return tf.tanh(rows @ k0 + b0) @ k1 + b1

        second = _second_derivatives(tensors, jit_compile=True)
        with mock.patch.object(streaming, "CHUNK_ELEMENTS", 20):
            found = second(chunks)
        for x, y in zip(second(formula), found, strict=True):
            self.assertAllClose(x, y, 1e-12, 1e-12)

    def test_second_derivatives_of_factors(self):
        rows, kernels, biases = self._tensors(7, (2, 4, 3))
        draw = np.random.default_rng(2).normal
        factors = [
            tf.constant(draw(size=x)) for x in ((2, 2), (2, 4), (4, 2), (2, 3))
        ]

        def chunks(rows, *factors):
            return feed_forward.apply(
                rows, kernels, biases, tf.tanh, True, factors
            )

        def formula(rows, a0, b0, a1, b1):
            inner = rows @ (kernels[0] + a0 @ b0) + biases[0]
            return tf.tanh(inner) @ (kernels[1] + a1 @ b1) + biases[1]

        second = _second_derivatives([rows, *factors], jit_compile=False)
        with mock.patch.object(streaming, "CHUNK_ELEMENTS", 20):
            found = second(chunks)
        for x, y in zip(second(formula), found, strict=True):
            self.assertAllClose(x, y, 1e-11, 1e-11)

    def test_sums_of_chunks_are_not_rounded(self):
        # In bfloat16, 256 + 1 is rounded to 256.
        rows = tf.ones([600, 1], tf.bfloat16)
        kernels = [tf.ones([1, 1], tf.bfloat16) for _ in range(2)]
        biases = [tf.zeros([1], tf.bfloat16) for _ in range(2)]
        weights = [*kernels, *biases]
        with (
            mock.patch.object(streaming, "CHUNK_ELEMENTS", 1),
            tf.GradientTape() as tape,
        ):
            tape.watch(weights)
            output = feed_forward.apply(rows, kernels, biases, tf.identity)
        for gradient in tape.gradient(output, weights):
            self.assertEqual(600, float(tf.squeeze(gradient)))

    def test_gradients_need_no_activations_of_the_forward_pass(self):
        rows, kernels, biases = self._tensors(8, (2, 4, 3), np.float32)

        @tf.function(jit_compile=True)
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                output = feed_forward.apply(x, kernels, biases, tf.tanh)
                loss = tf.reduce_sum(tf.sin(output))
            return tape.gradient(loss, x)

        with mock.patch.object(streaming, "CHUNK_ELEMENTS", 16):
            text = gradient.experimental_get_compiler_ir(rows)(
                stage="optimized_hlo"
            )
        # The forward and the backward loop each compute their own tanh.
        self.assertEqual(2, text.count(" tanh("))

    def test_rows_of_chunks(self):
        with mock.patch.object(streaming, "CHUNK_ELEMENTS", 10_000):
            self.assertEqual((833, 3, 1), feed_forward.plan_rows(2500, 10))
            self.assertEqual((1000, 2, 0), feed_forward.plan_rows(2000, 10))
            self.assertEqual((1000, 0, 1000), feed_forward.plan_rows(1000, 10))
            self.assertEqual((1, 3, 0), feed_forward.plan_rows(3, 20_000))
            chunk, *numbers = feed_forward.plan_rows(tf.constant(2500), 10)
            self.assertEqual(1000, chunk)
            self.assertAllEqual([2, 500], numbers)


if __name__ == "__main__":
    tf.test.main()
