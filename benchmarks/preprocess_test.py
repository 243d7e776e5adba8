"""Tests of `preprocess`: it runs, and both ways treat every record."""

import io
import unittest
from contextlib import redirect_stdout

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import preprocess
from benchmarks import program
from testing import tasks


class PreprocessTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("wikihop", "hotpotqa", "nq")
    def test_table(self, task):
        write, _ = tasks.SMALL_RECORDS[task]
        data, vocab = write(self.get_temp_dir(), 3)
        values = program.parse(
            preprocess.PROGRAM,
            *(f"--task={task}", f"--input={data}", f"--vocab_file={vocab}"),
            *("--batch_size=2", "--seconds=0"),
        )
        with redirect_stdout(io.StringIO()) as out:
            lines = program.run(preprocess.PROGRAM, values)
        self.assertRegex(out.getvalue(), rf"{task}: 3 records, .* wordpiece")
        self.assertEqual(
            [
                "plain Python, reading",
                "package, reading",
                "plain Python, features",
                "plain Python, serialized",
                "graph code, features",
                "package, serialized",
            ],
            [line["name"] for line in lines],
        )
        for line in (lines[0], *lines[2:4]):
            self.assertEqual(1.0, line["speedup"])
        self.assertGreater(min(line["cpu_speedup"] for line in lines), 0)

    def test_repeated(self):
        self.assertEqual(list(preprocess.repeated([1, 2], 0)), [1, 2])
        repeated = list(preprocess.repeated([1, 2], 0.01))
        self.assertEqual(repeated, [1, 2] * (len(repeated) // 2))
        self.assertGreater(len(repeated), 2)

    def test_every_record_is_treated(self):
        encoder = unittest.mock.Mock()
        encoder.make_examples = lambda records, split: records
        encoder.preprocessor.RECORDS_AT_ONCE = 2
        costs = preprocess.measure_package(encoder, [1, 2, 3], 2, 0)
        built = {
            tuple(call.args[0]) for call in encoder.preprocess.call_args_list
        }
        self.assertEqual(built, {(1, 2), (3,)})
        self.assertLen(costs, 2)


if __name__ == "__main__":
    unittest.main()
