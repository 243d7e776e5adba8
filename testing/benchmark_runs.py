"""Runs programs of benchmarks in the process of the test."""

from unittest import mock

import tensorflow as tf

from benchmarks import measure
from benchmarks import program


class InThisProcess:
    """Stands in for a `measure.StepProcess` where one would take long."""

    def __init__(self, make_step, *args, allocator="default"):
        assert allocator in measure.ALLOCATORS
        self.step = make_step(*args)
        self.warm_up_seconds = measure.warm_up(self.step)

    def milliseconds(self):
        """Of a step."""
        return 1e3 * measure.warm_up(self.step)

    def peak_megabytes(self):
        """Not measured."""
        return 12.5

    def close(self):
        """Forgets the step."""
        self.step = None


# The limit is between the estimates of `sparse` and of `dense`.
_FLAGS = """
    --lengths=32 --radius=7 --heads=2 --head_size=4 --global_length=6
    --repeats=1 --memory_limit_gb=3.8e-5
    --implementations=sparse,no_such,appendix_a,dense
"""


class ProgramCase(tf.test.TestCase):
    """Runs `attention` or `layer`, for their tests."""

    def run_program(self, benchmark, arguments):
        """Lines of floors by mode, those with a time, and skipped ones."""
        values = program.parse(benchmark, *_FLAGS.split(), *arguments.split())
        with mock.patch.object(measure, "StepProcess", InThisProcess):
            lines = program.run(benchmark, values)
        floors = {x["mode"]: x for x in lines if "products" in x}
        for line in floors.values():
            self.assertEqual("floor", line["implementation"])
            self.assertGreater(line["gflop_per_s"], 0)
        lowest = min(x["median_ms"] for x in floors.values())
        timed = [x for x in lines if "ratio_to_floor" in x]
        for line in timed:
            time, floor = line["median_ms"], floors[line["mode"]]["median_ms"]
            self.assertGreater(time, 0)
            self.assertGreater(line["warm_up_s"], 0)
            self.assertEqual(12.5, line["peak_mb"])
            self.assertEqual("default", line["allocator"])
            self.assertAllClose(line["ratio_to_floor"], time / floor)
            self.assertAllClose(line["ratio_to_best_floor"], time / lowest)
            self.assertEqual(32, line["length"])
        return floors, timed, [x for x in lines if "skipped" in x]
