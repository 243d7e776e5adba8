import tensorflow as tf

from benchmarks import layer
from testing.benchmark_runs import ProgramCase


class LayerTest(ProgramCase):
    def test_program(self):
        floors, timed, _ = self.run_program(
            layer.PROGRAM,
            "--dtypes=mixed_bfloat16 --passes=train --modes=graph "
            "--inputs=specs --dropout=0.1 --preset=base_shared "
            "--memory_limit_gb=1",
        )
        # The layer makes the products of both modes' floors.
        for line in floors.values():
            self.assertLen(line["products"], 16 * 3)
        self.assertEqual(
            [
                ("sparse", "specs", "base_shared"),
                ("appendix_a", "tensors", "base_shared"),
                ("dense", "tensors", "base_shared"),
            ],
            [(x["implementation"], x["inputs"], x["preset"]) for x in timed],
        )


if __name__ == "__main__":
    tf.test.main()
