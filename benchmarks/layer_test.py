"""Tests of the layer benchmark: it runs, and says what it should."""

from unittest import mock

import tensorflow as tf
from absl import flags

from benchmarks import harness
from benchmarks import layer
from benchmarks import measure
from benchmarks import measure_test

FLAGS = """
    --lengths=32 --radius=7 --heads=2 --head_size=4 --global_length=6
    --repeats=1 --modes=graph --implementations=sparse,appendix_a,dense
    --inputs=specs --passes=train --dtypes=mixed_bfloat16 --dropout=0.1
    --preset=base_shared
"""


class LayerTest(tf.test.TestCase):
    def test_program(self):
        values = flags.FlagValues()
        layer.define_flags(values)
        values(["layer", *FLAGS.split()])
        with mock.patch.object(
            measure, "StepProcess", measure_test.InThisProcess
        ):
            lines = harness.run(values, layer.BENCHMARK, preset=values.preset)
        floors, timed = lines[:2], lines[2:]
        for line in floors:
            self.assertEqual(line["implementation"], "floor")
            self.assertLen(line["products"], 16 * 3)
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
            self.assertEqual(line["preset"], "base_shared")
            self.assertGreater(line["ratio_to_floor"], 0)
            self.assertEqual(line["peak_mb"], 12.5)
            self.assertIsNone(line["skipped"])


if __name__ == "__main__":
    tf.test.main()
