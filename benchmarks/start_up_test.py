"""The benchmark of the first step runs, and counts what a graph executes."""

import importlib.util
import pathlib
from unittest import mock

import tensorflow as tf
from absl import app
from absl.testing import absltest

from benchmarks import measure
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
        """Runs in this process instead of fresh ones."""
        folder = self.get_temp_dir()
        values = program.parse(
            start_up.PROGRAM,
            *("--kerases=3", "--layers=1", "--length=8", "--global_length=2"),
            *("--models=etcmodel", f"--output={folder}"),
        )
        with mock.patch.object(
            measure, "in_fresh_process", lambda function, *args: function(*args)
        ):
            (line,) = program.run(start_up.PROGRAM, values)
        for column in ("first fit", "built optimizer", "export", "load"):
            self.assertGreater(line[column], 0, column)
        self.assertGreater(line["operations"], line["forward operations"])
        table = pathlib.Path(folder, "table.txt").read_text()
        self.assertIn("first request", table)


if __name__ == "__main__":
    absltest.main()
