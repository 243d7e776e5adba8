"""The benchmark runs, and its texts are as long as they say."""

import json
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

from benchmarks import serving


class ServingTest(absltest.TestCase):
    def test_texts_fill_their_lengths(self):
        for length in (256, 4096):
            inputs = serving.request(length)
            words = sum(
                len(text.split())
                for name in ("question", "titles", "sentences")
                for text in inputs[name].numpy().ravel()
            )
            # And a CLS.
            self.assertBetween(words + 1, length - 30, length)

    def test_prints_a_table(self):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.serving"),
                *("--lengths=64,128", "--preset=tiny", "--layers=1"),
                "--repeats=1",
            ],
            cwd=pathlib.Path(__file__).parents[1],
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stderr[-3000:])
        lines = [
            json.loads(line)
            for line in done.stdout.splitlines()
            if line.startswith("{")
        ]
        self.assertEqual(
            [(64, 64), (128, 64), (128, 128)],
            [(line["model"], line["text"]) for line in lines],
        )
        first, longer, own = lines
        self.assertEqual([1.0, 1.0], [first["ratio"], own["ratio"]])
        self.assertAlmostEqual(
            longer["milliseconds"] / first["milliseconds"], longer["ratio"]
        )
        self.assertGreater(min(own["export_s"], own["graph_mb"]), 0)


if __name__ == "__main__":
    absltest.main()
