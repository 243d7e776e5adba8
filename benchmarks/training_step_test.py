import contextlib
import io
import json
from unittest import mock

import tensorflow as tf

from benchmarks import program
from benchmarks import training_step
from testing.models import small_records


class TrainingStepTest(tf.test.TestCase):
    def test_a_line_for_an_experiment(self):
        values = program.parse(
            training_step.PROGRAM,
            "--experiment=etc/wikihop",
            f"--records={small_records('wikihop')}",
            "--batch_size=3",
            "--repeats=1",
            "--options=--small",
        )
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            (line,) = program.run(training_step.PROGRAM, values)
        self.assertEqual(line, json.loads(out.getvalue().splitlines()[0]))
        self.assertEqual("[3, 32]", line["shape"])
        self.assertEqual({"task", "bare"}, set(line["milliseconds"]))
        self.assertAlmostEqual(
            line["milliseconds"]["task"][0] / line["milliseconds"]["bare"][0],
            line["ratio"],
        )
        self.assertBetween(line["waiting"], 0.0, 1.0)

    def test_waiting(self):
        """Two batches of five seconds each, waited for 2 and 1 seconds."""
        clock = mock.Mock(side_effect=[0, 1, 3, 5, 6, 10])
        with mock.patch.object(training_step.time, "perf_counter", clock):
            waiting = training_step.measure_waiting(str, range(3), 2)
        self.assertAlmostEqual(0.3, waiting)


if __name__ == "__main__":
    tf.test.main()
