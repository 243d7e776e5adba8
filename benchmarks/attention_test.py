"""Tests of the attention benchmark: it runs, and says what it should."""

import json
import os
import unittest.mock

import tensorflow as tf
from absl import flags

from benchmarks import attention
from benchmarks import harness
from benchmarks import measure

TINY = [
    "--lengths=64",
    "--radius=7",
    "--heads=2",
    "--head_size=4",
    "--global_length=6",
    "--repeats=1",
]


def flag_values(*arguments):
    values = flags.FlagValues()
    harness.define_flags(values)
    values(["attention", *TINY, *arguments])
    return values


class AttentionTest(tf.test.TestCase):
    def test_program(self):
        output = os.path.join(self.get_temp_dir(), "results")
        values = flag_values(
            "--implementations=sparse,no_such,appendix_a,dense",
            "--dtypes=float32",
            "--passes=train",
            # Between the estimates of `sparse` and of `dense`.
            "--memory_limit_gb=2e-4",
            f"--output={output}",
        )
        with unittest.mock.patch.object(
            measure, "peak_megabytes", lambda make_step, case: 12.5
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
            self.assertLen(line["products"], 15)
        timed = [x for x in lines if x["ratio_to_floor"]]
        self.assertCountEqual(
            [(x["implementation"], x["inputs"], x["mode"]) for x in timed],
            [
                (implementation, inputs, mode)
                for implementation, inputs in (
                    ("sparse", "specs"),
                    ("sparse", "tensors"),
                    ("appendix_a", "tensors"),
                )
                for mode in ("graph", "xla")
            ],
        )
        for line in timed:
            self.assertGreater(line["median_ms"], 0)
            self.assertGreater(line["warm_up_s"], 0)
            self.assertEqual(line["peak_mb"], 12.5)
            self.assertAllClose(
                line["ratio_to_floor"],
                line["median_ms"] / floors[line["mode"]]["median_ms"],
            )
            self.assertAllClose(
                line["ratio_to_best_floor"], line["median_ms"] / lowest
            )
            self.assertEqual(line["tensorflow"], tf.__version__)
            self.assertEqual(line["pass"], "train")
            self.assertEqual(line["length"], 64)
        skipped = {
            (x["implementation"], x["inputs"]): x["skipped"]
            for x in lines
            if x["skipped"]
        }
        self.assertIn("no_such", skipped["no_such", "tensors"])
        self.assertIn("GB", skipped["dense", "tensors"])

    def test_inputs_of_both_kinds_give_the_same(self):
        values = flag_values(
            "--implementations=sparse,full,streaming,auto",
            "--modes=graph",
            "--dtypes=float32",
            "--passes=forward",
        )
        cases = harness.make_cases(values)
        self.assertEqual(
            ["specs", "tensors"] * 4, [case.inputs for case in cases]
        )
        # Specs of all implementations, and tensors of one.
        first, *others = [
            attention.make_step(case)()[0] for case in (cases[1], *cases[::2])
        ]
        for output in others:
            self.assertAllClose(first, output, 1e-5, 1e-5)

    def test_memory_of_one_case(self):
        values = flag_values(
            "--implementations=sparse",
            "--inputs=tensors",
            "--modes=graph",
            "--dtypes=mixed_bfloat16",
            "--passes=forward",
        )
        (case,) = harness.make_cases(values)
        peak = measure.peak_megabytes(attention.make_step, case)
        self.assertBetween(peak, -5, 20)


if __name__ == "__main__":
    tf.test.main()
