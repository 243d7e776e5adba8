"""Tests of the tools: order and number of runs, memory, files."""

import json
import os
import time
import unittest.mock

import tensorflow as tf

from benchmarks import measure


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
        self.assertEqual(
            {name: len(values) for name, values in times.items()},
            {"a": 8, "b": 8, "c": 8},
        )
        rounds = ["".join(calls[i : i + 3]) for i in range(0, len(calls), 3)]
        self.assertLen(rounds, 2 + 8)
        self.assertEqual({"".join(sorted(r)) for r in rounds}, {"abc"})
        self.assertGreater(len(set(rounds)), 1)

    def test_durations(self):
        def step():
            calls.append(None)
            time.sleep(0.05 if len(calls) <= 3 else 0.01)

        calls = []
        self.assertGreaterEqual(measure.warm_up(step), 0.05)
        self.assertLen(calls, 1)
        (milliseconds,) = measure.time_interleaved({"": step}, 1).values()
        # Two rounds more than are timed.
        self.assertLen(calls, 4)
        self.assertBetween(milliseconds[0], 10, 40)

    def test_quartiles(self):
        self.assertEqual(measure.quartiles([5, 1, 2, 4, 3]), (2, 3, 4))


class PeakTest(tf.test.TestCase):
    def test_peak(self):
        environment = dict(os.environ)
        peak = measure.peak_megabytes(take_memory, 200, 300)
        self.assertBetween(peak, 190, 230)
        self.assertEqual(dict(os.environ), environment)


class FilesTest(tf.test.TestCase):
    def path(self, name):
        return os.path.join(self.get_temp_dir(), name)

    def test_lines_are_there_when_whole(self):
        path = self.path("lines.jsonl")
        with self.assertRaises(TypeError):
            measure.write_lines(path, [{"a": 1}, {"a": object()}])
        self.assertFalse(os.path.exists(path))
        measure.write_lines(path, [{"a": 1}, {"b": None}])
        with open(path, encoding="utf-8") as file:
            self.assertEqual(
                [json.loads(line) for line in file], [{"a": 1}, {"b": None}]
            )
        self.assertLen(os.listdir(os.path.dirname(path)), 1)

    def test_table(self):
        table = measure.format_table(
            [
                {"name": "first", "ms": 12.345, "skipped": None},
                {"name": "b", "ms": None, "skipped": "too large"},
            ],
            {"name": "", "ms": ".1f"},
        )
        self.assertEqual(
            table, " name    ms\nfirst  12.3\n    b     -  too large\n"
        )

    def test_plot(self):
        lines = [
            {
                "implementation": implementation,
                "inputs": inputs,
                "mode": mode,
                "dtype": "float32",
                "pass": "train",
                "length": length,
                "median_ms": None if length == 8 else 1.5,
                "peak_mb": None,
            }
            for implementation, inputs in (("floor", None), ("a", "tensors"))
            for mode in ("graph", "xla")
            for length in (2, 4, 8)
        ]
        path = self.path("plot.png")
        with unittest.mock.patch.object(
            measure.pyplot, "close", lambda _: None
        ):
            measure.plot(path, "some title", lines)
        figure = measure.pyplot.gcf()
        (legend,) = figure.legends
        self.assertEqual(
            [text.get_text() for text in legend.get_texts()],
            ["floor, graph", "floor, xla", "a, graph", "a, xla"],
        )
        self.assertAllEqual(figure.axes[0].lines[0].get_xdata(), [2, 4])
        measure.pyplot.close(figure)
        with open(path, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")


class EnvironmentTest(tf.test.TestCase):
    def test_fields(self):
        environment = measure.environment()
        self.assertEqual(environment["tensorflow"], tf.__version__)
        self.assertGreater(environment["cores"], 0)
        for name in ("device", "keras", "cpu"):
            self.assertNotEmpty(environment[name])


if __name__ == "__main__":
    tf.test.main()
