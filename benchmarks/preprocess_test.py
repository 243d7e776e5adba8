"""Tests of `preprocess`: it runs, and both ways treat every record."""

import io
import unittest
from contextlib import redirect_stdout

import tensorflow as tf
from absl.testing import flagsaver
from absl.testing import parameterized

from benchmarks import preprocess
from testing import tasks


class PreprocessTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("wikihop", "hotpotqa", "nq")
    def test_table(self, task):
        write, _ = tasks.SMALL_RECORDS[task]
        data, vocab = write(self.get_temp_dir(), 3)
        with (
            flagsaver.as_parsed(
                task=task,
                input=data,
                vocab_file=vocab,
                batch_size="2",
                seconds="0",
            ),
            redirect_stdout(io.StringIO()) as out,
        ):
            preprocess.main([""])
        first, _, *lines = out.getvalue().splitlines()
        self.assertRegex(first, rf"{task}: 3 records, .* wordpiece")
        for line, pattern in zip(
            lines,
            (
                r"plain Python, reading .* 1\.0x",
                r"package, reading .*x",
                r"plain Python, features .* 1\.0x",
                r"plain Python, serialized .* 1\.0x",
                r"graph code, features .*x",
                r"package, serialized .*x",
            ),
            strict=True,
        ):
            self.assertRegex(line, pattern)

    def test_repeated(self):
        self.assertEqual(list(preprocess.repeated([1, 2], 0)), [1, 2])
        repeated = list(preprocess.repeated([1, 2], 0.01))
        self.assertEqual(repeated, [1, 2] * (len(repeated) // 2))
        self.assertGreater(len(repeated), 2)

    def test_every_record_is_treated(self):
        encoder = unittest.mock.Mock()
        encoder.encode = lambda records, split: records
        costs = preprocess.measure_package(encoder, [1, 2, 3], 2, 0)
        built = {tuple(call.args[0]) for call in encoder.build.call_args_list}
        self.assertEqual(built, {(1, 2), (3,)})
        self.assertLen(costs, 2)


if __name__ == "__main__":
    unittest.main()
