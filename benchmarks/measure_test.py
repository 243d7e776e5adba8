"""Tests of order and number of runs, times and memory."""

import os
from unittest import mock

import tensorflow as tf

from benchmarks import measure
from testing.benchmark_runs import InThisProcess


def take_memory(megabytes, kept_megabytes):
    """A step that takes memory for a moment; what was there is no part."""
    kept = tf.ones([kept_megabytes * 250_000])

    def step():
        numbers = tf.random.uniform([megabytes * 250_000])
        return tf.reduce_max(numbers) + kept[0]

    return step


class TimeTest(tf.test.TestCase):
    def test_rounds(self):
        calls = []
        steps = {name: lambda name=name: calls.append(name) for name in "abc"}
        times = measure.time_interleaved(steps, repeats=8)
        self.assertEqual([len(times[name]) for name in "abc"], [8] * 3)
        rounds = ["".join(calls[i : i + 3]) for i in range(0, len(calls), 3)]
        self.assertLen(rounds, 2 + 8)
        self.assertEqual({"".join(sorted(r)) for r in rounds}, {"abc"})
        self.assertGreater(len(set(rounds)), 1)

    def test_durations(self):
        """By a clock that stands still but for the steps."""
        now, calls = [5.0], []

        def step():
            calls.append(None)
            now[0] += 50.0 if len(calls) <= 3 else 0.25

        with mock.patch("time.perf_counter", lambda: now[0]):
            self.assertEqual(50.0, measure.warm_up(step))
            self.assertLen(calls, 1)
            times = measure.time_interleaved({"": step}, 2)
        # Two rounds more than are timed.
        self.assertLen(calls, 5)
        self.assertEqual({"": [250.0, 250.0]}, times)


class ProcessesTest(tf.test.TestCase):
    def test_time_in_processes(self):
        with mock.patch.object(measure, "StepProcess", InThisProcess):
            timed = measure.time_in_processes(
                take_memory, {"a": (1, 1), "b": (2, 1)}, repeats=3, untimed=1
            )
        self.assertEqual(["a", "b"], list(timed))
        for step in timed.values():
            self.assertLen(step.milliseconds, 3)
            self.assertEqual(12.5, step.peak_mb)
        self.assertEqual(2.0, measure.Timed([1.0, 5.0, 2.0], 0.0).median)

    def test_peak(self):
        environment = dict(os.environ)
        # What is taken goes back to the system at once.
        process = measure.StepProcess(take_memory, 200, 300, allocator="system")
        self.assertEqual(dict(os.environ), environment)
        before = process.peak_megabytes()
        times = measure.time_interleaved({"": process}, repeats=2)
        peak = process.peak_megabytes()
        process.close()
        # Tracing and compiling nothing, the first run takes as much as any.
        self.assertBetween(peak, 190, 260)
        self.assertBetween(before, 190, peak)
        self.assertLen(times[""], 2)
        # To fill 200 MB takes 10 ms at least.
        self.assertBetween(min(times[""]), 10, 1e3 * 60)
        self.assertGreater(process.warm_up_seconds, 0.01)


if __name__ == "__main__":
    tf.test.main()
