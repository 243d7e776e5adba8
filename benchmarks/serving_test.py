"""The benchmark runs, and its texts are as long as they say."""

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
                *("--lengths=64", "--preset=tiny", "--layers=1"),
                "--repeats=1",
            ],
            cwd=pathlib.Path(__file__).parents[1],
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stderr[-3000:])
        self.assertRegex(done.stdout, r"exported for +64 tokens in .* MB")
        self.assertRegex(done.stdout, r"\n\| 64 \| \d+ ms, 1.00x \|\n")

    def test_times_stand_beside_those_of_the_own_length(self):
        milliseconds = {(64, 64): 10.4, (128, 64): 13.0, (128, 128): 20.0}
        self.assertEqual(
            [
                "| text | model of 64 | model of 128 |",
                "| --- | --- | --- |",
                "| 64 | 10 ms, 1.00x | 13 ms, 1.25x |",
                "| 128 |  | 20 ms, 1.00x |",
            ],
            [*serving.table([64, 128], milliseconds)],
        )


if __name__ == "__main__":
    absltest.main()
