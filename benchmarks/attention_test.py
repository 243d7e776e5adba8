import os

import tensorflow as tf

from benchmarks import attention
from testing.benchmark_runs import ProgramCase


class AttentionTest(ProgramCase):
    def test_program(self):
        output = os.path.join(self.get_temp_dir(), "results")
        floors, timed, skipped = self.run_program(
            attention.PROGRAM,
            f"--dtypes=float32 --passes=forward --output={output}",
        )
        self.assertIn("plot.png", os.listdir(output))
        self.assertCountEqual(floors, ["graph", "xla"])
        for line in floors.values():
            self.assertLen(line["products"], 5)
        self.assertCountEqual(
            [(x["implementation"], x["inputs"], x["mode"]) for x in timed],
            [
                (*names, mode)
                for names in (
                    ("sparse", "specs"),
                    ("sparse", "tensors"),
                    ("appendix_a", "tensors"),
                )
                for mode in floors
            ],
        )
        reasons = {
            (x["implementation"], x["inputs"]): x["skipped"] for x in skipped
        }
        self.assertIn("no_such", reasons["no_such", "tensors"])
        self.assertIn("GB", reasons["dense", "tensors"])


if __name__ == "__main__":
    tf.test.main()
