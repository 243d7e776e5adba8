"""What is wrong on a command line is named; lines are printed and kept."""

import json
import os

import tensorflow as tf
from absl import app

from benchmarks import program

FRAME = program.Program(
    "frame",
    {
        "modes": (["xla"], "Some.", ("graph", "xla")),
        "size": ("small", "One.", ("small", "large")),
        "steps": (3, "Number."),
        "rate": (0.5, "Number."),
        "more": ((), "Texts."),
        "input": (program.REQUIRED, "A file."),
    },
    {"mode": "", "ms": ".1f"},
    lambda values: (
        {"mode": x, "ms": values.steps * values.rate} for x in values.modes
    ),
)


class ProgramTest(tf.test.TestCase):
    def test_flags(self):
        values = program.parse(FRAME, "--input=a", "--more=b", "--more=c,d")
        self.assertEqual(["b", "c,d"], values.more)
        with self.assertRaisesRegex(Exception, "--input must have a value"):
            program.parse(FRAME)
        for argument, message in (
            ("--modes=xla,fast", r"--modes: unknown \['fast'\]; there are \['"),
            ("--size=huge", r"--size: unknown \['huge'\]; there are \['small'"),
        ):
            values = program.parse(FRAME, "--input=a", argument)
            with self.assertRaisesRegex(app.UsageError, message):
                program.run(FRAME, values)

    def test_combinations(self):
        flags = {"a": (["1", "2"], ""), "b": (["x", "y"], "")}
        values = program.parse(FRAME._replace(flags=flags))
        self.assertEqual(
            ["1x", "1y", "2x", "2y"],
            [x["a"] + x["b"] for x in program.combinations(values, "a", "b")],
        )

    def test_files(self):
        folder = os.path.join(self.get_temp_dir(), "a", "b")
        values = program.parse(
            *(FRAME, "--input=a", "--modes=xla,graph", f"--output={folder}")
        )
        finished = []
        frame = FRAME._replace(finish=lambda *given: finished.append(given))
        lines = program.run(frame, values)
        self.assertEqual(["xla", "graph"], [x["mode"] for x in lines])
        self.assertEqual("frame", lines[0]["benchmark"])
        self.assertIn("cpu", lines[0])
        with open(os.path.join(folder, "results.jsonl")) as file:
            self.assertEqual(lines, [json.loads(line) for line in file])
        with open(os.path.join(folder, "table.txt")) as file:
            self.assertEqual(
                " mode   ms\n  xla  1.5\ngraph  1.5\n", file.read()
            )
        self.assertEqual([(folder, lines)], finished)
        self.assertLen(os.listdir(folder), 2)

    def test_table(self):
        lines = [
            {"name": "first", "ms": 12.345, "skipped": None},
            {"name": "b", "ms": None, "skipped": "too large"},
            {"name": "c"},
        ]
        self.assertEqual(
            program.format_table(lines, {"name": "", "ms": ".1f"}),
            " name    ms\nfirst  12.3\n    b     -  too large\n    c     -\n",
        )


if __name__ == "__main__":
    tf.test.main()
