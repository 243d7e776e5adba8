"""Tests of the floor: the products are the right ones, and add up."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks import gemm_floor
from benchmarks import measure
from benchmarks.gemm_floor import Product

SIZES = gemm_floor.Sizes(
    batch=2,
    long_length=10,
    global_length=4,
    heads=3,
    head_size=5,
    radius=3,
    relative_vocab_size=7,
    relative_pos_max_distance=2,
)


class ProductTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (Product("plain", (4, 2, 3), (4, 3, 5)),),
        (Product("transposed", (4, 2, 3), (4, 5, 3), transpose_b=True),),
    )
    def test_gradients(self, product):
        a = tf.random.normal(product.shape_a)
        b = tf.random.normal(product.shape_b)
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            c = tf.matmul(a, b, transpose_b=product.transpose_b)
            loss = tf.reduce_sum(c * c) / 2
        self.assertEqual(product.shape_c, c.shape)
        self.assertEqual(product.flops, 2 * 4 * 2 * 3 * 5)
        factors = {product.shape_a: a, product.shape_b: b, product.shape_c: c}
        gradients = tape.gradient(loss, [a, b])
        for gradient, expected in zip(
            product.gradients(), gradients, strict=True
        ):
            self.assertAllClose(
                tf.matmul(
                    factors[gradient.shape_a],
                    factors[gradient.shape_b],
                    transpose_a=gradient.transpose_a,
                    transpose_b=gradient.transpose_b,
                ),
                expected,
            )
            self.assertEqual(gradient.shape_c, expected.shape)
            self.assertEqual(gradient.flops, product.flops)

    def test_no_second_gradients(self):
        product = Product("w", (3, 2), (3, 5), transpose_a=True)
        with self.assertRaisesRegex(ValueError, "transpose_a"):
            product.gradients()


class ListsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((False, 5), (True, 3))
    def test_layer(self, share_qkv_projections, num_projections):
        products = gemm_floor.layer_products(
            SIZES,
            intermediate_size=11,
            share_qkv_projections=share_qkv_projections,
        )
        # Multiplications and additions of one query and key, in all heads.
        pair = 2 * (2 * 3) * 5
        expected = {
            # Three blocks of 4 queries with 12 keys.
            "l2l scores": pair * 3 * 4 * 12,
            "l2l values": pair * 3 * 4 * 12,
            "l2g scores": pair * 10 * 4,
            "l2g values": pair * 10 * 4,
            "long labels": pair * 10 * 7,
            "global scores": pair * 4 * 14,
            "global values": pair * 4 * 14,
            "global labels": pair * 4 * 7,
        }
        self.assertEqual(
            [product.name for product in gemm_floor.attention_products(SIZES)],
            list(expected)[:5],
        )
        for stream, rows in (("long", 20), ("global", 8)):
            square = 2 * rows * 15 * 15
            expected |= {
                f"{stream} projections": num_projections * square,
                f"{stream} output projection": square,
                f"{stream} feed-forward in": 2 * rows * 15 * 11,
                f"{stream} feed-forward out": 2 * rows * 15 * 11,
            }
        self.assertEqual({p.name: p.flops for p in products}, expected)
        self.assertEqual(
            sum(p.flops for p in gemm_floor.with_gradients(products)),
            3 * sum(expected.values()),
        )


class FloorTest(tf.test.TestCase):
    def test_runs_and_adds_up(self):
        products = gemm_floor.with_gradients(
            [Product(name, (4, 2, 3), (4, 3, 5)) for name in ("one", "other")]
        )
        floor = gemm_floor.Floor(products, "bfloat16")
        # Equal products are timed once, and a call without work in each mode.
        self.assertLen(floor.steps, 2 * (1 + 3))
        for step in floor.steps.values():
            self.assertEqual(step().dtype, tf.bfloat16)
        self.assertNotEmpty(measure.time_interleaved(floor.steps, repeats=1))

        milliseconds = {
            name: [10.0, 2.0, 2.0] if "xla" in name else [4.0, 4.0, 9.0]
            for name in floor.steps
        }
        for name, step in floor.steps.items():
            if 1 in np.shape(step()):
                milliseconds[name] = [1.0]
        results = floor.evaluate(milliseconds)
        self.assertAllClose(results["graph"]["median_ms"], 1 + 6 * 3)
        self.assertAllClose(results["xla"]["median_ms"], 1 + 6 * 1)
        gflop = 6 * 2 * 4 * 2 * 3 * 5 / 1e9
        self.assertAllClose(results["xla"]["gflop"], gflop)
        self.assertAllClose(results["xla"]["gflop_per_s"], gflop / 7e-3)
        self.assertEqual(
            [p["name"] for p in results["xla"]["products"]],
            ["one", "one, dA", "one, dB", "other", "other, dA", "other, dB"],
        )


if __name__ == "__main__":
    tf.test.main()
