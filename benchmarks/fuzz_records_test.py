import json
import os
import random
import tempfile
import time
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import fuzz_records
from benchmarks import program
from etcmodel.errors import UserError
from etcmodel.tasks import registry
from testing import tasks

_RECORD = {"id": "a", "texts": ["b", {"c": 1.5}], "d": None}


class FuzzRecordsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def _reading(self, read):
        return fuzz_records.Reading(read, None, "x.json", self.folder)

    def test_damages_are_many_and_can_be_made_again(self):
        for value in ([_RECORD], b"a text\nof lines\n"):
            made = [
                fuzz_records.mutate(value, random.Random(str(i)))
                for i in range(200)
            ]
            self.assertGreater(len({*made}), 100)
            self.assertEqual(
                made[7], fuzz_records.mutate(value, random.Random("7"))
            )
        # What is damaged is a copy.
        self.assertEqual(["b", {"c": 1.5}], _RECORD["texts"])

    def test_contents_are_records_one_by_one(self):
        for name, text, expected in (
            (
                "file",
                json.dumps([{"a": 1}, {"a": 2}, {"a": 3}]),
                [[{"a": 1}], [{"a": 2}]],
            ),
            ("file", '{"a": 1}\n\n{"a": 2}\n', [{"a": 1}]),
            (
                "file",
                '{"v": 1, "data": [1, 2, 3]}',
                [{"v": 1, "data": [1]}, {"v": 1, "data": [2]}],
            ),
            ("file", "a\nb\n", [b"a\nb\n"]),
            ("a.csv", "a,b\n1,2\n3,4\n5,6\n", [b"a,b\n1,2\n", b"a,b\n3,4\n"]),
        ):
            path = os.path.join(self.folder, name)
            with open(path, "w") as stream:
                stream.write(text)
            self.assertEqual(expected, fuzz_records.load(path, 2))

    def test_outcomes(self):
        def find_none(path, *_):
            with open(path) as stream:
                content = stream.read()
            if content == "slow":
                time.sleep(5)
            if content == "bad":
                raise UserError("bad")
            yield int(content)

        reading = self._reading(find_none)
        found = {}
        with mock.patch.object(fuzz_records, "_SECONDS", 1):
            for content in ("5", "bad", "x", "slow"):
                outcome = fuzz_records.try_content(
                    content.encode(), reading, "train"
                )
                found[content] = (outcome.kind, outcome.detail[:12])
        self.assertEqual(
            {
                "5": ("features", ""),
                "bad": ("error", "file"),
                "x": ("failure", "ValueError: "),
                "slow": ("failure", "TimeoutError"),
            },
            found,
        )
        self.assertEqual([], os.listdir(self.folder))
        line = fuzz_records.fuzz([b"1"], reading, ["train"], 50, 0)
        self.assertGreater(line["failure"], 0)
        self.assertIn("ValueError", line["failures"][0])

    @parameterized.parameters(*tasks.SMALL_RECORDS)
    def test_damaged_records_of_all_tasks(self, name):
        """Are read, or an error says what is wrong."""
        write, _ = tasks.SMALL_RECORDS[name]
        path, _ = write(self.folder, 4)
        format_ = registry.get(name).dataset.FORMAT
        reading = fuzz_records.Reading(
            format_.read, None, os.path.basename(path), os.path.dirname(path)
        )
        contents = fuzz_records.load(path, 4)
        line = fuzz_records.fuzz(contents, reading, format_.splits, 400, 1)
        self.assertEqual((0, []), (line["failure"], line["failures"]))
        self.assertGreater(line["error"], 2)

    def test_flags(self):
        flags = "--task=nq", "--input=a", "--vocab_file=b"
        values = program.parse(fuzz_records.PROGRAM, *flags)
        self.assertEqual(10000, values.mutations)


if __name__ == "__main__":
    tf.test.main()
