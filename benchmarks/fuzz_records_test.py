import os
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import fuzz_records
from etcmodel.tasks import registry
from testing import tasks


class FuzzRecordsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*tasks.SMALL_RECORDS)
    def test_damaged_records_of_all_tasks(self, name):
        """Are read, or an error says what is wrong."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        write, _ = tasks.SMALL_RECORDS[name]
        path, _ = write(folder, 4)
        format_ = registry.get(name).dataset.FORMAT
        reading = fuzz_records.Reading(
            format_.read, None, os.path.basename(path), os.path.dirname(path)
        )
        contents = fuzz_records.load(path, 4)
        line = fuzz_records.fuzz(contents, reading, format_.splits, 400, 1)
        self.assertEqual((0, []), (line["failure"], line["failures"]))
        self.assertGreater(line["error"], 2)


if __name__ == "__main__":
    tf.test.main()
