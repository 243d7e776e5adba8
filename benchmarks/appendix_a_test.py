"""Tests of the Appendix A recipe: it computes what the package computes."""

import unittest.mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks import attention
from benchmarks import gemm_floor
from benchmarks import harness
from benchmarks import layer as layer_lib

# Two blocks and a part of a third, on each of which the band is cut.
SIZES = gemm_floor.Sizes(
    batch=2,
    long_length=20,
    global_length=5,
    heads=2,
    head_size=4,
    radius=7,
    relative_vocab_size=8,
    relative_pos_max_distance=2,
)


def randomize(variables, seed):
    """Makes kernels large, and biases something else than 0."""
    generator = np.random.default_rng(seed)
    for variable in variables:
        variable.assign(generator.normal(0, 0.3, variable.shape))


class AppendixATest(tf.test.TestCase, parameterized.TestCase):
    def assert_same_steps(self, make_step, case):
        """Outputs and gradients are those of the package's implementation."""
        outputs = {}
        for implementation in ("sparse", *harness.RECIPES):
            changed = {**vars(case), "implementation": implementation}
            step = make_step(harness.Case(**changed))
            outputs[implementation] = tf.nest.flatten(step())
        for recipe in harness.RECIPES:
            self.assertLen(outputs[recipe], len(outputs["sparse"]))
            for ours, theirs in zip(
                outputs["sparse"], outputs[recipe], strict=True
            ):
                self.assertAllClose(ours, theirs, rtol=1e-4, atol=1e-4)
        return outputs["sparse"]

    def test_attention(self):
        case = harness.Case("", "tensors", "graph", "float32", "train", SIZES)
        outputs = self.assert_same_steps(attention.make_step, case)
        # The sum and the gradients of five inputs and two tables.
        self.assertLen(outputs, 8)

    @parameterized.parameters(("forward", "base_shared"), ("train", "base"))
    def test_layer(self, pass_name, preset):
        def make_step(case):
            layer = layer_lib.make_layer(case)
            randomize(layer.trainable_variables, 3)
            with unittest.mock.patch.object(
                layer_lib, "make_layer", lambda _: layer
            ):
                return layer_lib.make_step(case)

        case = harness.Case(
            "", "tensors", "graph", "float32", pass_name, SIZES, preset=preset
        )
        self.assert_same_steps(make_step, case)


if __name__ == "__main__":
    tf.test.main()
