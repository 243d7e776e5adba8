import tempfile

import tensorflow as tf
from absl.testing import parameterized

from etcmodel.tasks import registry
from testing import damaged_records
from testing import tasks


class FuzzTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*tasks.SMALL_RECORDS)
    def test_damaged_records_are_read_or_raise_a_record_error(self, name):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        write, _ = tasks.SMALL_RECORDS[name]
        path, _ = write(folder, 4)
        form = registry.get(name).dataset.FORMAT
        errors, failures = damaged_records.find_failures(
            path, form.read, form.splits, mutations=400, seed=1
        )
        self.assertEqual([], failures)
        self.assertGreater(errors, 2)


if __name__ == "__main__":
    tf.test.main()
