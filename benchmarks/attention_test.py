"""Tests of the attention benchmark: it runs, and says what it should."""

import json
import os
import unittest.mock

import tensorflow as tf
from absl import flags

from benchmarks import attention
from benchmarks import harness
from benchmarks import measure
from benchmarks import measure_test

# The limit is between the estimates of `sparse` and of `dense`.
FLAGS = """
    --lengths=32 --radius=7 --heads=2 --head_size=4 --global_length=6
    --repeats=1 --dtypes=float32 --passes=forward --memory_limit_gb=3.8e-5
    --implementations=sparse,no_such,appendix_a,dense
"""
KEYS = ("implementation", "inputs", "mode", "pass")


class AttentionTest(tf.test.TestCase):
    def test_program(self):
        output = os.path.join(self.get_temp_dir(), "results")
        values = flags.FlagValues()
        harness.define_flags(values)
        values(["attention", *FLAGS.split(), f"--output={output}"])
        with unittest.mock.patch.object(
            measure, "StepProcess", measure_test.InThisProcess
        ):
            lines = harness.run(values, attention.BENCHMARK)
        with open(os.path.join(output, "results.jsonl")) as file:
            self.assertEqual([json.loads(line) for line in file], lines)
        with open(os.path.join(output, "table.txt")) as file:
            self.assertLen(file.readlines(), 1 + len(lines))
        self.assertTrue(os.path.exists(os.path.join(output, "plot.png")))

        floors = {x["mode"]: x for x in lines if x["products"]}
        self.assertCountEqual(floors, ["graph", "xla"])
        lowest = min(x["median_ms"] for x in floors.values())
        for line in floors.values():
            self.assertEqual(line["implementation"], "floor")
            self.assertGreater(line["gflop_per_s"], 0)
            self.assertLen(line["products"], 5)
        timed = [x for x in lines if x["ratio_to_floor"]]
        self.assertCountEqual(
            [" ".join(x[k] for k in KEYS) for x in timed],
            [
                f"{name} {mode} forward"
                for name in (
                    "sparse specs",
                    "sparse tensors",
                    "appendix_a tensors",
                )
                for mode in floors
            ],
        )
        for line in timed:
            time, floor = line["median_ms"], floors[line["mode"]]["median_ms"]
            self.assertGreater(time, 0)
            self.assertGreater(line["warm_up_s"], 0)
            self.assertEqual(line["peak_mb"], 12.5)
            self.assertEqual(line["allocator"], "default")
            self.assertAllClose(line["ratio_to_floor"], time / floor)
            self.assertAllClose(line["ratio_to_best_floor"], time / lowest)
            self.assertEqual(line["tensorflow"], tf.__version__)
            self.assertEqual(line["length"], 32)
        skipped = {
            (x["implementation"], x["inputs"]): x["skipped"]
            for x in lines
            if x["skipped"]
        }
        self.assertIn("no_such", skipped["no_such", "tensors"])
        self.assertIn("GB", skipped["dense", "tensors"])


if __name__ == "__main__":
    tf.test.main()
