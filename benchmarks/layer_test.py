"""Tests of the layer benchmark: it runs with either way of sharing."""

import tensorflow as tf
from absl import flags
from absl.testing import parameterized

from benchmarks import harness
from benchmarks import layer


class LayerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("base", "float32", "train", "0.1"),
        ("base_shared", "mixed_bfloat16", "forward", "0"),
    )
    def test_program(self, preset, dtype, pass_name, dropout):
        values = flags.FlagValues()
        layer.define_flags(values)
        values(
            [
                "layer",
                "--lengths=64",
                "--radius=7",
                "--heads=2",
                "--head_size=4",
                "--global_length=6",
                "--repeats=1",
                "--modes=graph",
                "--implementations=sparse,appendix_a,dense",
                "--inputs=specs",
                f"--passes={pass_name}",
                f"--dtypes={dtype}",
                f"--dropout={dropout}",
                f"--preset={preset}",
                "--nomemory",
            ]
        )
        lines = harness.run(values, layer.BENCHMARK, preset=values.preset)
        floors, timed = lines[:2], lines[2:]
        num_products = 16 * (3 if pass_name == "train" else 1)
        for line in floors:
            self.assertEqual(line["implementation"], "floor")
            self.assertLen(line["products"], num_products)
        self.assertEqual(
            [(line["implementation"], line["inputs"]) for line in timed],
            [
                ("sparse", "specs"),
                ("appendix_a", "tensors"),
                ("dense", "tensors"),
            ],
        )
        for line in timed:
            self.assertEqual(line["benchmark"], "layer")
            self.assertEqual(line["preset"], preset)
            self.assertGreater(line["ratio_to_floor"], 0)
            self.assertIsNone(line["peak_mb"])
            self.assertIsNone(line["skipped"])


if __name__ == "__main__":
    tf.test.main()
