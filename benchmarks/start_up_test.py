"""The benchmark of the first step runs, and counts what a graph executes."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import tensorflow as tf
from absl import app
from absl.testing import absltest

from benchmarks import program
from benchmarks import start_up


def _cases(*arguments):
    return start_up.make_cases(program.parse(start_up.PROGRAM, *arguments))


class CountTest(absltest.TestCase):
    def test_a_function_counts_once_and_only_if_it_is_called(self):
        @tf.function
        def twice(x):
            return x + x  # x, the sum, and what is returned

        @tf.function
        def never(x):
            return tf.exp(x)

        graph = tf.Graph()
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, [])
            never.get_concrete_function(x).add_to_graph(graph)
            twice(twice(x))
        # A placeholder and two calls; in the function a sum and an identity.
        self.assertEqual(3 + 2, start_up.count_operations(graph))


class CasesTest(absltest.TestCase):
    def test_other_models_have_no_implementations(self):
        cases = _cases(
            *("--kerases=3", "--layers=1"), "--implementations=sparse,full"
        )
        self.assertEqual(
            [("etcmodel", "sparse"), ("etcmodel", "full"), ("keras", "auto")],
            [(case.model, case.implementation) for case in cases],
        )

    def test_keras_hub_has_to_be_installed(self):
        if importlib.util.find_spec("keras_hub"):
            self.skipTest("keras-hub is installed")
        with self.assertRaisesRegex(app.UsageError, "pip install keras-hub"):
            _cases("--models=keras_hub")


class ProgramTest(tf.test.TestCase):
    def test_prints_and_writes_a_table(self):
        folder = self.get_temp_dir()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.start_up"),
                *("--kerases=3", "--layers=1", "--length=8"),
                *("--global_length=2", "--models=etcmodel"),
                f"--output={folder}",
            ],
            cwd=pathlib.Path(__file__).parents[1],
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stderr[-3000:])
        path = pathlib.Path(folder)
        (line,) = map(
            json.loads, (path / "results.jsonl").read_text().splitlines()
        )
        for column in ("first fit", "built optimizer", "export", "load"):
            self.assertGreater(line[column], 0, column)
        self.assertGreater(line["operations"], line["forward operations"])
        self.assertIn("first request", (path / "table.txt").read_text())


if __name__ == "__main__":
    absltest.main()
