import os

import tensorflow as tf

from etcmodel.engine import inspect_record
from etcmodel.errors import UserError
from testing.tasks import CommandTestCase
from testing.tasks import write_small_wikihop


class InspectRecordTest(CommandTestCase):
    def _inspect(self, **options):
        path, vocab_file = write_small_wikihop(self.directory, 2)
        values = {
            "task": "wikihop",
            "input": path,
            "vocab_file": vocab_file,
            "output": self.path("record.png"),
            "preset": "tiny",
            "task_options": {"long_length": 32, "global_length": 16},
            **options,
        }
        return inspect_record.inspect_record(inspect_record.Options(**values))

    def test_result(self):
        result = self._inspect(record="1")
        self.assertTrue(os.path.exists(result.picture))
        self.assertIn("etc/wikihop", result.text)
        self.assertIn("lower case", result.tokenizer)

    def test_errors_name_options(self):
        for options, message in (
            ({"experiment": "etc/nq"}, "`experiment=etc/nq` is of the task nq"),
            ({"task": "read_twice_triviaqa"}, "`task=read_twice_triviaqa`: "),
            ({"first_token": 99}, "`first_token=99`: record "),
            ({"output": "a.gif"}, "`output=a.gif`: pictures end in"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self._inspect(**options)


if __name__ == "__main__":
    tf.test.main()
