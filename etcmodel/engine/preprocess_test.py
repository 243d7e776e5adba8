import json
import os

import tensorflow as tf

from etcmodel.engine import preprocess
from etcmodel.errors import UserError
from etcmodel.pipeline import tfrecords
from testing.tasks import CommandTestCase
from testing.tasks import write_test_vocab

_ROWS = [
    {"text": f"rome is old {i}", "label": "ab"[i % 2], "id": f"d{i}"}
    for i in range(6)
]


class PreprocessTest(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.vocab_file = write_test_vocab(self.directory, "rome is old")

    def _preprocess(self, name, rows, **options):
        return preprocess.preprocess(
            preprocess.Options(
                task="classify",
                input=rows,
                output_dir=self.path(name),
                vocab_file=self.vocab_file,
                num_shards=1,
                task_options={"long_length": 16, "global_length": 4},
                **options,
            )
        )

    def _stored(self, name):
        return list(tfrecords.read_examples(self.path(name)))

    def test_rows_equal_a_file(self):
        path = self.path("rows.jsonl")
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in _ROWS)
        result = self._preprocess("file", path)
        # An iterator can be read only once.
        for name, rows in (("list", _ROWS), ("iterator", iter(_ROWS))):
            self.assertEqual(
                result.splits["train"].totals,
                self._preprocess(name, rows).splits["train"].totals,
            )
            self.assertEqual(self._stored("file"), self._stored(name))

    def test_errors_name_rows_and_options(self):
        for rows, options, message in (
            ([*_ROWS, {"text": "", "label": "a"}], {}, r"records, record 6"),
            (_ROWS, {"num_shards": 0}, "`num_shards` is 0"),
            (_ROWS, {"runner": "DirectRunner"}, "`runner` needs files"),
            (_ROWS, {"task": "nq"}, "`input`: nq reads files"),
            (_ROWS, {"task_options": {"lenght": 3}}, "`lenght=3`: classify"),
            (_ROWS, {"task_options": {"long_length": 0}}, "`long_length` is 0"),
        ):
            values = {
                "task": "classify",
                "input": rows,
                "output_dir": self.path("bad"),
                "vocab_file": self.vocab_file,
                **options,
            }
            with self.assertRaisesRegex(UserError, message):
                preprocess.preprocess(preprocess.Options(**values))
            self.assertFalse(os.path.exists(self.path("bad")))


if __name__ == "__main__":
    tf.test.main()
